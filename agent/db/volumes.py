# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of volumes, in and out as records.

Every function takes a connection, so that a service can put several into one
transaction. ``move`` is the only writer of a status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agent.db import attachments, paging
from agent.db.engine import now
from agent.db.schema import (
    VOLUME_ATTACHMENT,
    VOLUME_METADATA,
    VOLUME_TYPES,
    VOLUMES,
)
from agent.records import Page, Volume
from agent.states import (
    ATTACHMENT_PRIORITY,
    AttachStatus,
    VolumeStatus,
    may_move_volume,
)

_V = VOLUMES.c
_A = VOLUME_ATTACHMENT.c
_HERE = _V.deleted == sa.false()

_ROWS = sa.select(VOLUMES, VOLUME_TYPES.c.name.label("type_name")).join_from(
    VOLUMES, VOLUME_TYPES, _V.volume_type_id == VOLUME_TYPES.c.id, isouter=True
)


def _has(*where: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether the volume of this row has an attachment like that."""
    return (
        sa.select(sa.literal(1))
        .select_from(VOLUME_ATTACHMENT)
        .where(_A.volume_id == _V.id, _A.deleted == sa.false(), *where)
        .correlate(VOLUMES)
        .exists()
    )


#: agent.states.volume_status, in SQL, for filters and sorting.
STATUS: sa.ColumnElement[Any] = sa.case(
    (_V.status != VolumeStatus.AVAILABLE, _V.status),
    *(
        (_has(_A.attach_status == attached), sa.literal(str(seen)))
        for attached, seen in ATTACHMENT_PRIORITY
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
    "volume_type_id": _V.volume_type_id,
    "user_id": _V.user_id,
    "project_id": _V.project_id,
}

# An access may be open, or is about to be: a plain volume is not free.
_TAKEN = sa.or_(
    _A.attach_status != AttachStatus.ERROR_ATTACHING, _A.initiator.is_not(None)
)


def insert(connection: sa.Connection, volume: Volume) -> None:
    """Write a new row with its metadata."""
    connection.execute(
        sa.insert(VOLUMES).values(
            id=volume.id,
            display_name=volume.name,
            display_description=volume.description,
            size=volume.size,
            status=volume.own_status,
            backend=volume.backend,
            project_id=volume.project_id,
            user_id=volume.user_id,
            availability_zone=volume.availability_zone,
            multiattach=volume.multiattach,
            bootable=volume.bootable,
            volume_type_id=volume.volume_type_id,
            created_at=volume.created_at,
            updated_at=volume.updated_at,
            deleted=False,
        )
    )
    _write_metadata(connection, volume.id, volume.metadata)


def get(connection: sa.Connection, volume_id: str) -> Volume | None:
    """One volume with its attachments, or None."""
    query = _ROWS.where(_V.id == volume_id, _HERE)
    found = _filled(connection, connection.execute(query).all())
    return found[0] if found else None


def page(connection: sa.Connection, page: Page, detail: bool = True) -> list[Volume]:
    """A page of volumes; attachments and metadata only with ``detail``.

    Three statements whatever the page holds.

    :raises NotFound: the marker.
    """
    query = paging.paged(connection, _scoped(_ROWS, page), page, COLUMNS, "volume")
    rows = connection.execute(query).all()
    return _filled(connection, rows) if detail else [_record(row) for row in rows]


def count(connection: sa.Connection, page: Page) -> int:
    """How many volumes the page's filters let through, on all pages."""
    query = _scoped(sa.select(sa.func.count()).select_from(VOLUMES), page)
    return int(connection.execute(query).scalar_one())


def update(
    connection: sa.Connection, volume_id: str, changes: Mapping[str, Any]
) -> None:
    """Write name, description or metadata."""
    names = {"name": "display_name", "description": "display_description"}
    values = {names[key]: changes[key] for key in names if key in changes}
    connection.execute(
        sa.update(VOLUMES)
        .where(_V.id == volume_id, _HERE)
        .values(updated_at=now(), **values)
    )
    if "metadata" in changes:
        connection.execute(
            sa.delete(VOLUME_METADATA).where(VOLUME_METADATA.c.volume_id == volume_id)
        )
        _write_metadata(connection, volume_id, changes["metadata"])


def move(
    connection: sa.Connection,
    volume_id: str,
    old: Collection[VolumeStatus],
    new: VolumeStatus,
    *,
    reason: str | None = None,
    unattached: bool = False,
) -> bool:
    """Compare and swap the status; False when the row is not in ``old`` any more.

    With ``unattached`` it also fails while the volume has any attachment.
    """
    if not all(may_move_volume(status, new) for status in old):
        raise AssertionError(f"agent.states has no move from {sorted(old)} to {new}")
    where = [_V.id == volume_id, _HERE, _V.status.in_(old)]
    if unattached:
        where.append(~_has())
    values = {"status": new, "status_reason": reason, "updated_at": now()}
    done = connection.execute(sa.update(VOLUMES).where(*where).values(values))
    return done.rowcount == 1


def claim(connection: sa.Connection, volume_id: str, instance_uuid: str | None) -> bool:
    """Whether this volume may take one more attachment, decided under its row lock.

    A plain volume takes one; the same instance may come a second time, which
    is how a live migration connects its new host (Launchpad bug 1694530).
    """
    free = [_V.multiattach == sa.true(), ~_has(_TAKEN)]
    if instance_uuid is not None:
        free.append(_has(_A.instance_uuid == instance_uuid))
    done = connection.execute(
        sa.update(VOLUMES)
        .where(
            _V.id == volume_id,
            _HERE,
            _V.status == VolumeStatus.AVAILABLE,
            sa.or_(*free),
        )
        .values(updated_at=now())
    )
    return done.rowcount == 1


def remove(connection: sa.Connection, volume_id: str) -> None:
    """Mark a volume deleted."""
    connection.execute(
        sa.update(VOLUMES)
        .where(_V.id == volume_id)
        .values(deleted=True, deleted_at=now(), updated_at=now())
    )


def unfinished(connection: sa.Connection) -> list[Volume]:
    """Volumes whose making or removing was under way."""
    states = (VolumeStatus.CREATING, VolumeStatus.DELETING)
    query = _ROWS.where(_HERE, _V.status.in_(states)).order_by(_V.created_at)
    return [_record(row) for row in connection.execute(query)]


def ids(connection: sa.Connection) -> set[str]:
    """The id of every volume."""
    return set(connection.execute(sa.select(_V.id).where(_HERE)).scalars())


def promised(connection: sa.Connection, backend: str) -> tuple[int, int]:
    """How many volumes a backend holds, and their sizes together in GiB."""
    total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_V.size), 0))
    row = connection.execute(total.where(_HERE, _V.backend == backend)).one()
    return int(row[0]), int(row[1])


def uses_type(connection: sa.Connection, type_id: str) -> bool:
    """Whether a volume is of this type."""
    query = sa.select(_V.id).where(_HERE, _V.volume_type_id == type_id).limit(1)
    return connection.execute(query).first() is not None


def _scoped(query: sa.Select[Any], page: Page) -> sa.Select[Any]:
    query = query.where(_HERE)
    if page.project_id is not None:
        query = query.where(_V.project_id == page.project_id)
    filters = dict(page.filters)
    for key, value in (filters.pop("metadata", None) or {}).items():
        query = query.where(_has_metadata(key, value))
    return paging.filtered(query, filters, COLUMNS)


def _has_metadata(key: str, value: str) -> sa.ColumnElement[bool]:
    table = VOLUME_METADATA.c
    return (
        sa.select(sa.literal(1))
        .select_from(VOLUME_METADATA)
        .where(table.volume_id == _V.id, table.key == key, table.value == value)
        .correlate(VOLUMES)
        .exists()
    )


def _write_metadata(
    connection: sa.Connection, volume_id: str, metadata: Mapping[str, str]
) -> None:
    if metadata:
        rows = [
            {"volume_id": volume_id, "key": key, "value": value}
            for key, value in metadata.items()
        ]
        connection.execute(sa.insert(VOLUME_METADATA), rows)


def _filled(connection: sa.Connection, rows: Sequence[Any]) -> list[Volume]:
    volume_ids = [row.id for row in rows]
    attached = attachments.of_volumes(connection, volume_ids)
    metadata = _metadata_of(connection, volume_ids)
    return [
        _record(row, metadata.get(row.id, {}), tuple(attached.get(row.id, ())))
        for row in rows
    ]


def _metadata_of(
    connection: sa.Connection, volume_ids: Sequence[str]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    table = VOLUME_METADATA.c
    for some in paging.chunks(volume_ids):
        query = sa.select(table.volume_id, table.key, table.value)
        for row in connection.execute(query.where(table.volume_id.in_(some))):
            found.setdefault(row.volume_id, {})[row.key] = row.value
    return found


def _record(
    row: Any,
    metadata: Mapping[str, str] | None = None,
    attached: Iterable[Any] = (),
) -> Volume:
    return Volume(
        id=row.id,
        size=row.size,
        own_status=VolumeStatus(row.status),
        backend=row.backend,
        project_id=row.project_id,
        user_id=row.user_id,
        name=row.display_name,
        description=row.display_description,
        availability_zone=row.availability_zone,
        multiattach=row.multiattach,
        bootable=row.bootable,
        volume_type_id=row.volume_type_id,
        volume_type=row.type_name,
        metadata=metadata or {},
        created_at=row.created_at,
        updated_at=row.updated_at,
        attachments=tuple(attached),
    )
