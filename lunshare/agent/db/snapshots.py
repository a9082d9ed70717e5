# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of snapshots as records. Only ``change_status`` writes a status."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import SNAPSHOTS, VOLUMES, listed
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model import metadata_limits
from lunshare.agent.model.page_rows import PageRows, fill, json_bytes
from lunshare.agent.model.records import Page, RequestContext, Snapshot, visible
from lunshare.agent.model.states import (
    SnapshotStatus,
    VolumeStatus,
    snapshot_may_change,
)

_S = SNAPSHOTS.c
_V = VOLUMES.c
_HERE = _S.deleted == sa.false()
_OWN = _S.project_id == paging.PROJECT

_FIELDS = RecordColumns(
    Snapshot,
    SNAPSHOTS,
    name=_S.display_name,
    description=_S.display_description,
    size=_S.volume_size,
)
_ROWS = sa.select(*_FIELDS.labels)
_ONE = _FIELDS.prepared(_ROWS.where(_S.id == sa.bindparam("id"), _HERE))
_BY_IDS = _FIELDS.prepared(_ROWS.where(_S.id.in_(listed(paging.IDS))))
_OF_VOLUME = _FIELDS.prepared(
    _ROWS.where(_S.volume_id == sa.bindparam("volume_id"), _HERE).order_by(_S.sequence)
)


def _of_volume(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return what the snapshot's volume has in this column."""
    query = sa.select(column).where(_V.id == _S.volume_id)
    return query.correlate(SNAPSHOTS).scalar_subquery()


COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    "id": _S.id,
    "volume_id": _S.volume_id,
    "name": _S.display_name,
    "display_name": _S.display_name,
    "description": _S.display_description,
    "size": _S.volume_size,
    "volume_size": _S.volume_size,
    "status": _S.status,
    "created_at": _S.created_at,
    "updated_at": _S.updated_at,
    "user_id": _S.user_id,
    "project_id": _S.project_id,
    "consumes_quota": sa.true(),
    "availability_zone": _of_volume(_V.availability_zone),
    "host": _of_volume(_V.backend),
}

# A volume that is being created from the snapshot.
_IS_READ = (
    sa.select(sa.literal(1))
    .select_from(VOLUMES)
    .where(
        _V.snapshot_id == _S.id,
        _V.deleted == sa.false(),
        _V.status == VolumeStatus.CREATING,
    )
    .correlate(SNAPSHOTS)
    .exists()
)
# A volume that is being reverted to the snapshot.
_IS_REVERTED_TO = (
    sa.select(sa.literal(1))
    .select_from(VOLUMES)
    .where(_V.id == _S.volume_id, _V.status == VolumeStatus.REVERTING)
    .correlate(SNAPSHOTS)
    .exists()
)


_CREATED_FROM = (
    sa.select(_V.id)
    .where(
        _V.snapshot_id == sa.bindparam("id"),
        _V.deleted == sa.false(),
        _V.status == VolumeStatus.CREATING,
    )
    .limit(1)
)


_VOLUME = sa.bindparam("_volume", type_=sa.String)
_INSERT = _FIELDS.insertion(
    deleted=sa.false(),
    volume_id=_VOLUME,
    volume_type_id=sa.select(_V.volume_type_id)
    .where(_V.id == _VOLUME)
    .scalar_subquery(),
    sequence=sa.select(sa.func.coalesce(sa.func.max(_S.sequence), 0) + 1)
    .where(_S.volume_id == _VOLUME, _HERE)
    .scalar_subquery(),
)
_REMOVE = Prepared(
    sa.update(SNAPSHOTS)
    .where(_S.id == sa.bindparam("_id"))
    .values(
        deleted=True,
        deleted_at=sa.bindparam("_now"),
        updated_at=sa.bindparam("_now"),
        display_description=None,
        metadata={},
    )
)


def insert(connection: sa.Connection, snapshot: Snapshot) -> None:
    """Insert a row, after all other snapshots of its volume.

    :raises Invalid: its metadata is too large.
    """
    values = _FIELDS.values(snapshot)
    metadata_limits.check(values)
    values[_VOLUME.key] = values.pop("volume_id")
    _INSERT.write(connection, values)


def get(connection: sa.Connection, snapshot_id: str) -> Snapshot | None:
    """Return one snapshot, or None."""
    return _ONE.first(connection, {"id": snapshot_id})


def require(
    connection: sa.Connection, snapshot_id: str, ctx: RequestContext | None = None
) -> Snapshot:
    """Return what ``get`` does, for a client, or for a step of a job (None).

    :raises NotFound: it does not exist, or belongs to another project.
    """
    row = get(connection, snapshot_id)
    return visible(row, ctx, "snapshot", snapshot_id)


def of_volume(connection: sa.Connection, volume_id: str) -> list[Snapshot]:
    """Return the snapshots of one volume, oldest first."""
    return _OF_VOLUME.rows(connection, {"volume_id": volume_id})


def type_id(connection: sa.Connection, snapshot_id: str) -> str | None:
    """Return the type that the volume had when the snapshot was created."""
    query = sa.select(_S.volume_type_id).where(_S.id == snapshot_id)
    return connection.execute(query).scalar()


def type_ids(connection: sa.Connection, volume_id: str, project_id: str) -> set[str]:
    """Return the types for which a project's snapshots of a volume count."""
    where = (_S.volume_id == volume_id, _S.project_id == project_id, _HERE)
    query = sa.select(_S.volume_type_id).where(*where).distinct()
    return set(filter(None, connection.execute(query).scalars()))


def set_type(
    connection: sa.Connection, volume_id: str, project_id: str, type_id: str
) -> bool:
    """Count a project's snapshots of a volume for a type; whether it has some.

    Those that stayed with another project when the volume left it keep their type.
    """
    where = (_S.volume_id == volume_id, _S.project_id == project_id, _HERE)
    statement = sa.update(SNAPSHOTS).where(*where).values(volume_type_id=type_id)
    return connection.execute(statement).rowcount > 0


def volume_being_created(connection: sa.Connection, snapshot_id: str) -> str | None:
    """Return the id of a volume being created from this snapshot, or None."""
    return connection.execute(_CREATED_FROM, {"id": snapshot_id}).scalar()


def page(connection: sa.Connection, page: Page) -> PageRows[Snapshot]:
    """Return a page of snapshots.

    :raises NotFound: the marker does not exist.
    """
    query = _filtered(_listed(page.sort, page.project_id is None), page)
    query = paging.after_marker(connection, query, page, COLUMNS, "snapshot", _OWN)
    if paging.is_indexed(page):
        rows = _FIELDS.iterate(connection.execute(query, paging.values(page)))
    else:
        rows = paging.in_order(connection, query, page, _S.id, _BY_IDS)
    return fill(rows, page.limit, lambda row: json_bytes(row.metadata))


def count(connection: sa.Connection, page: Page) -> int:
    """Return how many snapshots match the filters, on all pages."""
    query = sa.select(sa.func.count()).select_from(SNAPSHOTS).where(_HERE)
    if page.project_id is not None:
        query = query.where(_S.project_id == page.project_id)
    return int(connection.execute(_filtered(query, page)).scalar_one())


def update(
    connection: sa.Connection, snapshot_id: str, changes: Mapping[str, Any]
) -> None:
    """Write name, description or metadata; raise Invalid if that is too large."""
    metadata_limits.check(changes)
    statement = sa.update(SNAPSHOTS).where(_S.id == snapshot_id, _HERE)
    values = _FIELDS.named(changes)
    connection.execute(statement.values(updated_at=now(), **values))


def change_status(
    connection: sa.Connection,
    snapshot_id: str,
    old: Collection[SnapshotStatus],
    new: SnapshotStatus,
    *,
    reason: str | None = None,
    unread: bool = False,
    forced: bool = False,
    **values: Any,
) -> bool:
    """Compare and swap the status; return False if it is not in ``old`` any more.

    With ``unread`` it also fails while a volume is being created from the snapshot,
    or reverted to it. ``forced``: an administrator wants it, also beside the table of
    moves. ``values``: other columns to write.
    """
    if not forced and not all(snapshot_may_change(status, new) for status in old):
        raise AssertionError(
            f"lunshare.agent.model.states has no move from {sorted(old)} to {new}"
        )
    values = {"reset_from": None, "progress": None, **values}
    values |= {"status": new, "status_reason": reason, "updated_at": now()}
    statement = _update(frozenset(values), frozenset(old), unread)
    return statement.write(connection, {**values, "_id": snapshot_id}) == 1


@functools.lru_cache
def _update(
    columns: frozenset[str], old: frozenset[SnapshotStatus], unread: bool
) -> Prepared:
    """Return the statement that writes these columns of row ``_id``; built once."""
    where = [_S.id == sa.bindparam("_id"), _HERE]
    where.append(sa.or_(*(_S.status == status for status in sorted(old))))
    if unread:
        where += [~_IS_READ, ~_IS_REVERTED_TO]
    values: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    return Prepared(sa.update(SNAPSHOTS).where(*where).values(values))


def remove(connection: sa.Connection, snapshot_id: str) -> None:
    """Mark a snapshot deleted, and drop what may be large in its row."""
    _REMOVE.write(connection, {"_id": snapshot_id, "_now": now()})


def unfinished(connection: sa.Connection) -> list[tuple[Snapshot, str]]:
    """Return the snapshots on which an operation works, and their backends."""
    states = (
        SnapshotStatus.CREATING,
        SnapshotStatus.DELETING,
        SnapshotStatus.ERROR_DELETING,
        SnapshotStatus.MANAGING,
        SnapshotStatus.UNMANAGING,
    )
    query = (
        _ROWS.add_columns(_V.backend)
        .join_from(SNAPSHOTS, VOLUMES, _V.id == _S.volume_id)
        .where(_HERE, _S.status.in_(states), _S.reset_from.is_(None))
        .order_by(_S.created_at)
    )
    return [(_FIELDS.record(row), row.backend) for row in connection.execute(query)]


def ids(connection: sa.Connection) -> set[str]:
    """Return the id of every snapshot."""
    return set(connection.execute(sa.select(_S.id).where(_HERE)).scalars())


@functools.lru_cache(maxsize=paging.SORTS)
def _listed(sort: paging.Sort, every_project: bool) -> sa.Select[Any]:
    """Return the statement for this order; built once for each order."""
    query = _ROWS.where(_HERE)
    if not every_project:
        query = query.where(_OWN)
    return paging.ordered(query, sort, COLUMNS)


def _filtered(query: sa.Select[Any], page: Page) -> sa.Select[Any]:
    filters = dict(page.filters)
    query = paging.with_metadata(query, filters.pop("metadata", None), _S.metadata)
    return paging.filtered(query, filters, COLUMNS)
