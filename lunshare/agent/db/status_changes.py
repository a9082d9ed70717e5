# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Change the status of a volume. Only ``change_status`` writes it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.records import Volume
from lunshare.agent.model.states import VolumeStatus, volume_may_change

_V = VOLUMES.c
_A = VOLUME_ATTACHMENT.c
_HERE = _V.deleted == sa.false()

#: The fields of a volume that decide what may be done to it, and their columns.
DECISIVE: Mapping[str, sa.Column[Any]] = {
    "own_status": _V.status,
    "size": _V.size,
    "backend": _V.backend,
    "project_id": _V.project_id,
    "multiattach": _V.multiattach,
    "volume_type_id": _V.volume_type_id,
    "stale_backend": _V.stale_backend,
}


def has(*where: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return whether the volume has an attachment that matches ``where``."""
    return (
        sa.select(sa.literal(1))
        .select_from(VOLUME_ATTACHMENT)
        .where(_A.volume_id == _V.id, _A.deleted == sa.false(), *where)
        .correlate(VOLUMES)
        .exists()
    )


_HAS_SNAPSHOTS = (
    sa.select(sa.literal(1))
    .select_from(SNAPSHOTS)
    .where(SNAPSHOTS.c.volume_id == _V.id, SNAPSHOTS.c.deleted == sa.false())
    .correlate(VOLUMES)
    .exists()
)

# Other volumes than that of the row: its clones that still need its bytes. A complete
# one has no ``source_size`` in its intent, whatever else is being done to it.
OTHERS = VOLUMES.alias("others")
CLONES = (
    sa.select(OTHERS.c.id)
    .where(
        OTHERS.c.deleted == sa.false(),
        OTHERS.c.intent["source_size"].as_integer().is_not(None),
    )
    .limit(1)
)
_HAS_CLONES = CLONES.where(OTHERS.c.source_volid == _V.id).correlate(VOLUMES).exists()


def change_status(
    connection: sa.Connection,
    seen: Volume,
    new: VolumeStatus,
    *,
    reason: str | None = None,
    unattached: bool = False,
    unsnapped: bool = False,
    uncloned: bool = False,
    forced: bool = False,
    **values: Any,
) -> bool:
    """Compare and swap; return False if the row is not as it was ``seen`` any more.

    The columns of DECISIVE are compared, all on which a decision may depend. With
    ``unattached`` it also fails while the volume has any attachment, with
    ``unsnapped`` while it has snapshots, with ``uncloned`` while it has incomplete
    clones. ``forced``: an administrator asks for it, so the table of allowed changes
    does not apply. ``values``: other columns to write.
    """
    if not forced and not volume_may_change(seen.own_status, new):
        raise AssertionError(
            f"lunshare.agent.model.states has no move from {seen.own_status} to {new}"
        )
    values = {"reset_from": None, **values, "status": new, "status_reason": reason}
    values["updated_at"] = now()
    guards = (unattached, unsnapped, uncloned)
    statement = _update(frozenset(values), guards)
    expected = {f"_{name}": getattr(seen, name) for name in DECISIVE}
    which = {"_id": seen.id, **expected}
    return statement.write(connection, {**values, **which}) == 1


def is_unchanged(seen: Volume, found: Volume | None) -> bool:
    """Return whether ``found`` still has all that a decision on ``seen`` used."""
    return found is not None and all(
        getattr(seen, name) == getattr(found, name) for name in (*DECISIVE, "intent")
    )


@functools.lru_cache
def _update(columns: frozenset[str], guards: tuple[bool, bool, bool]) -> Prepared:
    """Return the statement that writes these columns of row ``_id``; built once."""
    none_of = (has(), _HAS_SNAPSHOTS, _HAS_CLONES)
    where = [_V.id == sa.bindparam("_id"), _HERE]
    for name, column in DECISIVE.items():
        value = sa.bindparam(f"_{name}", type_=column.type)
        where.append(column.is_not_distinct_from(value))
    where += [~rows for rows, guard in zip(none_of, guards, strict=True) if guard]
    values: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    return Prepared(sa.update(VOLUMES).where(*where).values(values))
