# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How often hosts of a volume have lost write access, and its latest handover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lunshare.agent.db import attachments
from lunshare.agent.db.schema import VOLUMES, WRITE_FENCES
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.states import OPEN_HANDOVER, HandoverStatus

_F = WRITE_FENCES.c
# Each attach that may write reads it: built once.
_LATEST = Prepared(
    sa.select(_F.handover).where(_F.volume_id == sa.bindparam("volume_id"))
)


def generation(connection: sa.Connection, volume_id: str) -> int:
    """Return the fencing generation of a volume, 0 at first. It only grows."""
    query = sa.select(_F.generation).where(_F.volume_id == volume_id)
    return int(connection.execute(query).scalar() or 0)


def handover(connection: sa.Connection, volume_id: str) -> dict[str, Any] | None:
    """Return the latest handover of a volume.

    It ends with the attachment that follows, also where no step has noticed that.
    """
    row = _LATEST.first(connection, {"volume_id": volume_id})
    if row is None or row.handover is None:
        return None
    state = dict(row.handover)
    if is_open(state) and attachments.get(connection, state["to"]) is None:
        return ended(state, NotFound("attachment", state["to"]))
    return state


def is_open(state: Mapping[str, Any] | None) -> bool:
    """Whether a handover has begun and not ended."""
    return state is not None and state["status"] in OPEN_HANDOVER


def ended(state: Mapping[str, Any], why: Exception) -> dict[str, Any]:
    """Return a handover in which nobody follows."""
    failed = {"status": HandoverStatus.FAILED, "pending": [], "reason": str(why)}
    return {**state, **failed}


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


def purge(connection: sa.Connection, volume_ids: Sequence[str]) -> None:
    """Remove the rows of those of these volumes that are not there any more."""
    missing = ~sa.exists().where(VOLUMES.c.id == _F.volume_id)
    connection.execute(
        sa.delete(WRITE_FENCES).where(_F.volume_id.in_(volume_ids), missing)
    )
