# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Delete old rows of an id, before a volume with that id is recovered."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES


def delete(connection: sa.Connection, volume_id: str) -> None:
    """Remove the rows of this volume that are marked deleted, and no others."""
    for table in (VOLUME_ATTACHMENT, SNAPSHOTS):
        of_volume = table.c.volume_id == volume_id
        connection.execute(
            sa.delete(table).where(of_volume, table.c.deleted == sa.true())
        )
    dead = VOLUMES.c.deleted == sa.true()
    connection.execute(sa.delete(VOLUMES).where(VOLUMES.c.id == volume_id, dead))
