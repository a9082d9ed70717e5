# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How often hosts of a volume have lost write access, and its latest handover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lunshare.agent.db.schema import VOLUMES, WRITE_FENCES

_F = WRITE_FENCES.c


def generation(connection: sa.Connection, volume_id: str) -> int:
    """Return the fencing generation of a volume, 0 at first. It only grows."""
    query = sa.select(_F.generation).where(_F.volume_id == volume_id)
    return int(connection.execute(query).scalar() or 0)


def handover(connection: sa.Connection, volume_id: str) -> dict[str, Any] | None:
    """Return the latest handover of a volume, as it was written."""
    query = sa.select(_F.handover).where(_F.volume_id == volume_id)
    text = connection.execute(query).scalar()
    return None if text is None else dict(text)


def write_handover(
    connection: sa.Connection, volume_id: str, text: Mapping[str, Any]
) -> None:
    """Write the latest handover of a volume."""
    row = {"volume_id": volume_id, "generation": 0, "handover": dict(text)}
    connection.execute(
        sqlite.insert(WRITE_FENCES)
        .values(row)
        .on_conflict_do_update(
            index_elements=["volume_id"], set_={"handover": row["handover"]}
        )
    )


def purge(connection: sa.Connection) -> None:
    """Remove the rows of volumes that are not there any more."""
    deleted = _F.volume_id.not_in(sa.select(VOLUMES.c.id))
    connection.execute(sa.delete(WRITE_FENCES).where(deleted))
