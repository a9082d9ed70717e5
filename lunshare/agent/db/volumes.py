# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of volumes, read and written as records.

Every function takes a connection, so that a service can call several in one
transaction. Only lunshare.agent.db.status_changes writes a status.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import attachments, paging, status_changes
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import VOLUME_ATTACHMENT, VOLUME_TYPES, VOLUMES, listed
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared, Record, Row, named
from lunshare.agent.model import metadata_limits
from lunshare.agent.model.page_rows import ROW_BYTES, PageRows, fill, json_bytes
from lunshare.agent.model.records import (
    NamedVolume,
    Page,
    RequestContext,
    Volume,
    visible,
)
from lunshare.agent.model.states import (
    ATTACHMENT_PRIORITY,
    HAS_DISK,
    UNFINISHED,
    AttachStatus,
    VolumeStatus,
)

_V = VOLUMES.c
_A = VOLUME_ATTACHMENT.c
_HERE = _V.deleted == sa.false()
_OWN = _V.project_id == paging.PROJECT
_PLACED = _V.backend != ""

_FIELDS = RecordColumns(
    Volume,
    VOLUMES,
    last="reset_from",
    own_status=_V.status,
    name=_V.display_name,
    description=_V.display_description,
    volume_type=VOLUME_TYPES.c.name,
)
_ROWS = sa.select(*_FIELDS.labels).join_from(
    VOLUMES, VOLUME_TYPES, _V.volume_type_id == VOLUME_TYPES.c.id, isouter=True
)
_NAMES = sa.select(*RecordColumns(NamedVolume, VOLUMES, name=_V.display_name).labels)

# Built once: to build a statement costs more than to run it.
_NAMED = Prepared(_NAMES.where(_HERE, _V.id.in_(listed("ids"))), record=NamedVolume)
_BY_IDS = Prepared(_ROWS.where(_V.id.in_(listed(paging.IDS))))
_WITHOUT_HOSTS = _FIELDS.prepared(
    _ROWS.where(_V.id == sa.bindparam("volume_id"), _HERE)
)


def _has_seen(status: AttachStatus) -> sa.ColumnElement[bool]:
    """Return Attachment.seen_status in SQL: whether one of the volume's has it."""
    has, attached = status_changes.has, _A.attach_status == AttachStatus.ATTACHED
    if status is AttachStatus.ATTACHED:
        return has(attached, _A.announced == sa.false())
    plain = has(_A.attach_status == status)
    if status is AttachStatus.DETACHING:
        return sa.or_(plain, has(attached, _A.announced == sa.true()))
    return plain


#: lunshare.agent.model.states.volume_status, in SQL, for filters and sorting.
STATUS: sa.ColumnElement[Any] = sa.case(
    (_V.status != VolumeStatus.AVAILABLE, _V.status),
    *(
        (_has_seen(attach_status), sa.literal(str(status)))
        for attach_status, status in ATTACHMENT_PRIORITY
    ),
    else_=sa.literal(str(VolumeStatus.AVAILABLE)),
)

COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    "id": _V.id,
    "name": _V.display_name,
    "display_name": _V.display_name,
    "description": _V.display_description,
    "size": _V.size,
    "status": STATUS,
    "created_at": _V.created_at,
    "updated_at": _V.updated_at,
    "bootable": _V.bootable,
    "multiattach": _V.multiattach,
    "availability_zone": _V.availability_zone,
    "host": _V.backend,
    "migration_status": _V.migration_status,
    "volume_type_id": _V.volume_type_id,
    "snapshot_id": _V.snapshot_id,
    "source_volid": _V.source_volid,
    "user_id": _V.user_id,
    "project_id": _V.project_id,
    "consumes_quota": sa.true(),
}

# A host may have access now or soon, so a plain volume takes no other attachment.
_IN_USE = sa.or_(
    _A.attach_status != AttachStatus.ERROR_ATTACHING,
    _A.initiator.is_not(None),
    _A.former_initiator.is_not(None),
)

_CLAIM = Prepared(
    sa.update(VOLUMES)
    .where(
        _V.id == sa.bindparam("_id"),
        _HERE,
        _V.status == VolumeStatus.AVAILABLE,
        sa.or_(
            _V.multiattach == sa.true(),
            ~status_changes.has(_IN_USE),
            # NULL, for a client without an instance, equals nothing. A failed
            # attachment of the instance does not count: another one may have the
            # volume since.
            status_changes.has(
                _IN_USE, _A.instance_uuid == sa.bindparam("_instance", type_=sa.String)
            ),
        ),
    )
    .values(updated_at=sa.bindparam("_now"))
)

_INSERT = _FIELDS.insertion(deleted=sa.false())
_LOCK = Prepared(
    sa.update(VOLUMES)
    .where(_V.id == sa.bindparam("_id"), _HERE, _V.status == VolumeStatus.AVAILABLE)
    .values(status=_V.status)
)
_REMOVE = Prepared(
    sa.update(VOLUMES)
    .where(_V.id == sa.bindparam("_id"))
    .values(
        deleted=True,
        deleted_at=sa.bindparam("_now"),
        updated_at=sa.bindparam("_now"),
        display_description=None,
        metadata={},
        image_metadata={},
    )
)


def insert(connection: sa.Connection, volume: Volume) -> None:
    """Insert a row with its metadata; raise Invalid if that is too large."""
    values = _FIELDS.values(volume)
    metadata_limits.check(values)
    _INSERT.write(connection, values)


def get(connection: sa.Connection, volume_id: str) -> Volume | None:
    """Return one volume with its attachments, or None.

    With a statement for each: a join would read the volume, which may have large
    metadata, once for each host.
    """
    row = get_row(connection, volume_id)
    if row is None:
        return None
    hosts = attachments.of_volumes(connection, [volume_id])
    return dataclasses.replace(row, attachments=tuple(hosts.get(volume_id, ())))


def get_row(connection: sa.Connection, volume_id: str) -> Volume | None:
    """Return one volume without its attachments, or None.

    It reads one row, however many hosts the volume has. ``status`` is that of the
    row, which does not show attachments.
    """
    return _WITHOUT_HOSTS.first(connection, {"volume_id": volume_id})


def require(
    connection: sa.Connection, volume_id: str, ctx: RequestContext | None = None
) -> Volume:
    """Return what ``get`` does, for a client, or for a step of a job (None).

    :raises NotFound: it does not exist, or belongs to another project.
    """
    row = get(connection, volume_id)
    return visible(row, ctx, "volume", volume_id)


def require_row(
    connection: sa.Connection, volume_id: str, ctx: RequestContext | None = None
) -> Volume:
    """Return what ``get_row`` does, for a client, or for a step of a job (None).

    :raises NotFound: it does not exist, or belongs to another project.
    """
    row = get_row(connection, volume_id)
    return visible(row, ctx, "volume", volume_id)


def page(connection: sa.Connection, page: Page) -> PageRows[Volume]:
    """Return a page of volumes with their attachments.

    It runs one statement, and two for each 256 volumes of the page.

    :raises NotFound: the marker does not exist.
    """
    read = fill(_page_rows(connection, page, _ROWS, by_ids=_BY_IDS), page.limit, _bytes)
    counts = attachments.counts(connection, [row.id for row in read])
    rows = fill(
        read, page.limit, lambda row: _bytes(row) + ROW_BYTES * counts.get(row.id, 0)
    )
    hosts = attachments.of_volumes(connection, [row.id for row in rows])
    records = [_FIELDS.record(row, tuple(hosts.get(row.id, ()))) for row in rows]
    return PageRows(records, read.is_full or rows.is_full)


def _bytes(row: Row) -> int:
    return json_bytes(row.metadata, row.image_metadata)


def names(connection: sa.Connection, page: Page) -> PageRows[NamedVolume]:
    """Return a page of volumes without detail; raise as ``page`` does."""
    return fill(_page_rows(connection, page, _NAMES, NamedVolume), page.limit)


def named_as(connection: sa.Connection, volume_ids: Sequence[str]) -> list[NamedVolume]:
    """Return those of these volumes that exist."""
    return _NAMED.rows(connection, {"ids": volume_ids})


def count(connection: sa.Connection, page: Page) -> int:
    """Return how many volumes match the filters, on all pages."""
    query = sa.select(sa.func.count()).select_from(VOLUMES).where(_HERE)
    if page.project_id is not None:
        query = query.where(_V.project_id == page.project_id)
    return int(connection.execute(_filtered(query, page)).scalar_one())


def update(
    connection: sa.Connection, volume_id: str, changes: Mapping[str, Any]
) -> None:
    """Write name, description or metadata."""
    set_values(connection, volume_id, updated_at=now(), **_FIELDS.named(changes))


def set_values(connection: sa.Connection, volume_id: str, **values: Any) -> None:
    """Write columns other than the status; raise Invalid if metadata is too large."""
    metadata_limits.check(values)
    connection.execute(
        sa.update(VOLUMES).where(_V.id == volume_id, _HERE).values(values)
    )


def lock_available(connection: sa.Connection, volume_id: str) -> bool:
    """Return whether it is available, and lock it until the transaction ends."""
    return _LOCK.write(connection, {"_id": volume_id}) == 1


def clone_in_progress(connection: sa.Connection, volume_id: str) -> str | None:
    """Return the id of an incomplete clone of this volume, or None."""
    return connection.execute(
        status_changes.CLONES.where(status_changes.OTHERS.c.source_volid == volume_id)
    ).scalar()


def claim(connection: sa.Connection, volume_id: str, instance_uuid: str | None) -> bool:
    """Return whether this volume may have one more attachment; lock its row.

    A plain volume may have one. The same instance may attach it a second time, as
    a live migration does for its new host (Launchpad bug 1694530).
    """
    which = {"_id": volume_id, "_now": now(), "_instance": instance_uuid}
    return _CLAIM.write(connection, which) == 1


def remove(connection: sa.Connection, volume_id: str) -> None:
    """Mark a volume deleted, and drop what may be large in its row."""
    _REMOVE.write(connection, {"_id": volume_id, "_now": now()})


def unfinished(connection: sa.Connection) -> list[Volume]:
    """Return volumes in states.UNFINISHED, or with a disk that will be deleted."""
    going = sa.or_(_V.status.in_(sorted(UNFINISHED)), _V.stale_backend.is_not(None))
    real = _V.reset_from.is_(None)
    query = _ROWS.where(_HERE, sa.or_(real, _V.stale_backend.is_not(None)), going)
    query = query.order_by(_V.created_at)
    return _FIELDS.records(connection.execute(query))


def disk_backends(connection: sa.Connection) -> dict[str, tuple[str, ...]]:
    """Return by id the backends that may have a disk of a volume, its own first.

    During a migration that is also the new backend, and then the old one. A volume
    that no pool could hold has none, and is left out.
    """
    new = _V.intent["backend"].as_string()
    query = sa.select(_V.id, _V.backend, _V.stale_backend, new).where(_HERE, _PLACED)
    return {
        volume_id: tuple(filter(None, names))
        for volume_id, *names in connection.execute(query)
    }


def existing_disks(connection: sa.Connection) -> set[tuple[str, str, int]]:
    """Return backend, id and GiB of every volume with a complete disk."""
    query = sa.select(_V.backend, _V.id, _V.size).where(
        _HERE, _V.status.in_(sorted(HAS_DISK))
    )
    return {
        (backend, volume_id, size)
        for backend, volume_id, size in connection.execute(query)
    }


def temporary_snapshot_ids(connection: sa.Connection) -> set[str]:
    """Return the ids of clones whose temporary snapshot may still exist."""
    query = sa.select(_V.id).where(
        _HERE, _V.source_volid.is_not(None), _V.intent.is_not(None)
    )
    return set(connection.execute(query).scalars())


def backends(connection: sa.Connection) -> set[str]:
    """Return the backends that have a volume."""
    query = sa.select(_V.backend).where(_HERE, _PLACED).distinct()
    return set(connection.execute(query).scalars())


def provisioned(connection: sa.Connection, backend: str) -> tuple[int, int]:
    """Return the number of volumes of a backend, and their total size in GiB."""
    total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_V.size), 0))
    query = total.where(_HERE, _V.backend == backend)
    count, size = connection.execute(query).one()
    return int(count), int(size)


def uses_type(connection: sa.Connection, type_id: str) -> bool:
    """Return whether a volume has this type, or is being changed to it."""
    coming = _V.intent["type_id"].as_string() == type_id
    retyping = sa.and_(_V.status == VolumeStatus.RETYPING, coming)
    of_it = sa.or_(_V.volume_type_id == type_id, retyping)
    query = sa.select(_V.id).where(_HERE, of_it).limit(1)
    return connection.execute(query).first() is not None


def _page_rows(
    connection: sa.Connection,
    page: Page,
    rows: sa.Select[Any],
    record: Record = None,
    by_ids: Prepared | None = None,
) -> Iterator[Row]:
    """Yield the rows of a page. Large ones are read with ``by_ids``: see in_order."""
    every_project = page.project_id is None
    is_sorted = by_ids is None or paging.is_indexed(page)
    if page.marker is None and not page.filters and is_sorted:
        plain = _first_page(rows, page.sort, every_project, record)
        return plain.iterate(connection, paging.values(page))
    query = _filtered(_listed(rows, page.sort, every_project), page)
    query = paging.after_marker(connection, query, page, COLUMNS, "volume", _OWN)
    if by_ids is not None and not is_sorted:
        return paging.in_order(connection, query, page, _V.id, by_ids)
    return named(connection.execute(query, paging.values(page)), record)


@functools.lru_cache(maxsize=paging.SORTS)
def _first_page(
    rows: sa.Select[Any], sort: paging.Sort, every_project: bool, record: Record
) -> Prepared:
    """Return the statement for this order, without filters and marker."""
    return Prepared(_listed(rows, sort, every_project), record=record)


@functools.lru_cache(maxsize=paging.SORTS)
def _listed(
    rows: sa.Select[Any], sort: paging.Sort, every_project: bool
) -> sa.Select[Any]:
    """Return the statement for this order; built once for each order."""
    query = rows.where(_HERE)
    if not every_project:
        query = query.where(_OWN)
    return paging.ordered(query, sort, COLUMNS)


def _filtered(query: sa.Select[Any], page: Page) -> sa.Select[Any]:
    filters = dict(page.filters)
    query = paging.with_metadata(query, filters.pop("metadata", None), _V.metadata)
    image = filters.pop("glance_metadata", None)
    query = paging.with_metadata(query, image, _V.image_metadata)
    return paging.filtered(query, filters, COLUMNS)
