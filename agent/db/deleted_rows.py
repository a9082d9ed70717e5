# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make place for a row that comes back under an id that was deleted."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES


def forget(connection: sa.Connection, volume_id: str) -> None:
    """Remove the deleted rows of this volume; what is not deleted stays."""
    for table in (VOLUME_ATTACHMENT, SNAPSHOTS):
        mine = table.c.volume_id == volume_id
        connection.execute(sa.delete(table).where(mine, table.c.deleted == sa.true()))
    dead = VOLUMES.c.deleted == sa.true()
    connection.execute(sa.delete(VOLUMES).where(VOLUMES.c.id == volume_id, dead))
