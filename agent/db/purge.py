# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that were deleted long ago go for good, a few at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES

_BEFORE: sa.BindParameter[datetime] = sa.bindparam("_before", type_=sa.DateTime)
_MOST: sa.BindParameter[int] = sa.bindparam("_most", type_=sa.Integer)


def _old(table: sa.Table, *where: sa.ColumnElement[bool]) -> sa.Delete:
    """The statement that takes the oldest deleted rows of a table."""
    gone = sa.and_(table.c.deleted == sa.true(), table.c.deleted_at < _BEFORE)
    ids = sa.select(table.c.id).where(gone, *where).order_by(table.c.deleted_at)
    return sa.delete(table).where(table.c.id.in_(ids.limit(_MOST).scalar_subquery()))


def _none_in(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether no row of this table, dead or alive, is of the volume."""
    rows = sa.select(sa.literal(1)).where(table.c.volume_id == VOLUMES.c.id)
    return ~rows.correlate(VOLUMES).exists()


# What belongs to a volume goes before it.
_STATEMENTS = (
    _old(VOLUME_ATTACHMENT),
    _old(SNAPSHOTS),
    _old(VOLUMES, _none_in(VOLUME_ATTACHMENT), _none_in(SNAPSHOTS)),
)


def purge(connection: sa.Connection, before: datetime, most: int) -> int:
    """Take up to ``most`` rows that were deleted before then; how many there were."""
    left = most
    for statement in _STATEMENTS:
        asked: dict[str, Any] = {_BEFORE.key: before, _MOST.key: left}
        left -= connection.execute(statement, asked).rowcount
        if not left:
            break
    return most - left
