# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Remove rows that are marked deleted: old or many ones, or those of one volume."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import write_fences
from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES

#: Of more deleted rows of a table the oldest are removed, however young: a member who
#: creates and deletes outside of every quota writes up to 5 KiB for each.
MAX_DELETED = 20_000

_BEFORE: sa.BindParameter[datetime] = sa.bindparam("_before", type_=sa.DateTime)
_MOST: sa.BindParameter[int] = sa.bindparam("_most", type_=sa.Integer)


def _old(table: sa.Table, *where: sa.ColumnElement[bool]) -> Any:
    """Return the statement that removes the oldest deleted rows of a table."""
    old = sa.and_(table.c.deleted == sa.true(), table.c.deleted_at < _BEFORE)
    ids = sa.select(table.c.id).where(old, *where).order_by(table.c.deleted_at)
    which = table.c.id.in_(ids.limit(_MOST).scalar_subquery())
    return sa.delete(table).where(which).returning(table.c.id)


def _none_in(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return whether the volume has no row in this table, deleted or not."""
    rows = sa.select(sa.literal(1)).where(table.c.volume_id == VOLUMES.c.id)
    return ~rows.correlate(VOLUMES).exists()


_YOUNGEST = [
    sa.select(table.c.deleted_at)
    .where(table.c.deleted == sa.true())
    .order_by(table.c.deleted_at.desc())
    .offset(MAX_DELETED - 1)
    .limit(1)
    for table in (VOLUME_ATTACHMENT, SNAPSHOTS, VOLUMES)
]

# Rows that refer to a volume are removed before it.
_STATEMENTS = (
    _old(VOLUME_ATTACHMENT),
    _old(SNAPSHOTS),
    _old(VOLUMES, _none_in(VOLUME_ATTACHMENT), _none_in(SNAPSHOTS)),
)


def oldest_kept(connection: sa.Connection, before: datetime) -> datetime:
    """Return ``before``, or a later time if rows deleted since then are too many.

    One time for all tables: then no volume has to stay for a row that was deleted
    earlier. It reads ``MAX_DELETED`` entries of an index, however many rows there are.
    """
    times = (connection.execute(query).scalar() for query in _YOUNGEST)
    return max(before, *(time or before for time in times))


def purge(connection: sa.Connection, before: datetime, most: int) -> int:
    """Remove up to ``most`` rows deleted before ``before``; return their number."""
    count = 0
    for statement in _STATEMENTS:
        values: dict[str, Any] = {_BEFORE.key: before, _MOST.key: most - count}
        ids = connection.execute(statement, values).scalars().all()
        count += len(ids)
        if count == most:
            break
    write_fences.purge(connection, ids)
    return count


def purge_volume(connection: sa.Connection, volume_id: str) -> None:
    """Remove the rows of this volume that are marked deleted, and no others."""
    for table in (VOLUME_ATTACHMENT, SNAPSHOTS):
        of_volume = table.c.volume_id == volume_id
        connection.execute(
            sa.delete(table).where(of_volume, table.c.deleted == sa.true())
        )
    dead = VOLUMES.c.deleted == sa.true()
    connection.execute(sa.delete(VOLUMES).where(VOLUMES.c.id == volume_id, dead))
    write_fences.purge(connection, [volume_id])
