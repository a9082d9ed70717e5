# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of attachments, read and written as records.

Only ``change_status`` writes a status.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import (
    MAY_WRITE,
    STATUS_TOTALS,
    VOLUME_ATTACHMENT,
    VOLUMES,
    listed,
)
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared, Row
from lunshare.agent.model.errors import Invalid, existing
from lunshare.agent.model.page_rows import PageRows, fill, json_bytes
from lunshare.agent.model.records import Attachment, Page, RequestContext
from lunshare.agent.model.states import (
    WANTED,
    AttachStatus,
    FenceKind,
    attachment_may_change,
)
from lunshare.drivers.values import PortalHost, host_address

#: Attachments of the node, and of a volume once the node has many: no quota counts
#: them, and each may have a connector of 8 KiB. The check of a volume reads an index
#: entry for each of its attachments, so a node with fewer than MANY_ROWS makes none.
MAX_ROWS, MANY_ROWS, MAX_OF_VOLUME = 100_000, 10_000, 4_096
#: A volume may have one more than this part of what is left of the node's. So who has
#: many volumes cannot take all: each volume of others may have as many as each of his.
SHARE = 4

_A = VOLUME_ATTACHMENT.c
_HERE = _A.deleted == sa.false()
_FIELDS = RecordColumns(
    Attachment, VOLUME_ATTACHMENT, status=_A.attach_status, mode=_A.attach_mode
)

#: A volume shows its hosts without connector and connection_info, so a ``brief``
#: record does not have these.
BRIEF = _FIELDS.part("announced")

_ALL = sa.select(*_FIELDS.labels)
_LARGE = ("connector", "connection_info")
_SMALL = sa.select(
    *(sa.null().label(x.key) if x.key in _LARGE else x for x in _FIELDS.labels)
)
_AGE = (_A.created_at, _A.id)
_THIS = _A.volume_id == sa.bindparam("volume_id")

# Built once: to build a statement costs more than to run it.
_INSERT = _FIELDS.insertion(deleted=sa.false())
_ONE = _FIELDS.prepared(_ALL.where(_A.id == sa.bindparam("id"), _HERE))
# The same of one project, to which an attachment belongs with its volume.
_OWN = (VOLUMES.c.id == _A.volume_id, VOLUMES.c.project_id == paging.PROJECT)
_OWN_ONE = _FIELDS.prepared(_ALL.where(_A.id == sa.bindparam("id"), _HERE, *_OWN))
_BY_IDS = _FIELDS.prepared(_ALL.where(_A.id.in_(listed(paging.IDS))))
_MANY = _FIELDS.prepared(_ALL.where(_A.id.in_(listed("names")), _HERE))
_OF_VOLUME = _FIELDS.prepared(_ALL.where(_THIS, _HERE).order_by(*_AGE))
_WITH_INITIATOR = _FIELDS.prepared(
    _SMALL.where(_THIS, _HERE, _A.initiator.is_not(None)).order_by(*_AGE)
)
_LEGACY = _FIELDS.prepared(
    _ALL.where(_THIS, _HERE, _A.legacy.is_not(None)).order_by(*_AGE)
)
_BRIEF = BRIEF.prepared(
    sa.select(*BRIEF.labels)
    .where(_THIS, _HERE)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
# Named, since SQLite takes either this index or attachments_of_volume, by the order in
# which they were created; with the other one it reads every host of the volume.
_OF_INITIATOR, _OF_INITIATORS = (
    _FIELDS.prepared(
        columns.where(_THIS, _A.initiator.in_(listed("names")), _HERE).order_by(*_AGE),
        index="attachments_of_initiator",
    )
    for columns in (_ALL, _SMALL)
)
_WRITERS = _FIELDS.prepared(
    _ALL.where(_THIS, _HERE, MAY_WRITE).order_by(*_AGE),
    index="attachments_that_may_write",
)
# As wanted_state.list_accesses has it.
_HAS_ACCESS = (
    _HERE,
    _A.initiator.is_not(None),
    sa.or_(*(_A.attach_status == status for status in sorted(WANTED))),
    sa.or_(_A.fence.is_(None), _A.fence == FenceKind.WRITES),
)
_ANY_WANTED = Prepared(
    sa.select(_A.id).where(_THIS, *_HAS_ACCESS).limit(1),
    # Named for the same reason: the other one has every host that is detaching.
    index="attachments_of_volume",
)

_FULL = Prepared(
    sa.select(_A.id)
    .where(_THIS, _HERE)
    .limit(1)
    .offset(sa.bindparam("others", type_=sa.Integer)),
    index="attachments_of_volume",
)
_TOTAL = Prepared(
    sa.select(sa.func.sum(STATUS_TOTALS.c.count).label("total")).where(
        STATUS_TOTALS.c.kind == "attachment"
    )
)

# In the words of the index: SQLite uses it for this expression only.
_ADDRESS: sa.ColumnElement[str] = sa.literal_column("json_extract(connector, '$.ip')")
_HAS_HOST = (
    *_HAS_ACCESS,
    VOLUMES.c.id == _A.volume_id,
    VOLUMES.c.backend == sa.bindparam("backend"),
)
_AT_ADDRESS = Prepared(
    sa.select(_A.id).where(sa.bindparam("address") == _ADDRESS, *_HAS_HOST).limit(1)
)
_PORTAL_HOSTS = sa.select(_A.volume_id, _A.initiator, _ADDRESS.label("address")).where(
    *_HAS_HOST
)

#: Rows of a range of ids, deleted or not: those of one batch. ``attach_time`` is kept
#: when a row is deleted, so without one its access was never open.
_IN_RANGE = Prepared(
    sa.select(_A.id, _A.attach_status.label("status"), _A.attach_time)
    .where(_A.id >= sa.bindparam("first"), _A.id <= sa.bindparam("last"))
    .order_by(_A.id)
)
_FORGET = sa.delete(VOLUME_ATTACHMENT).where(
    _A.id == sa.bindparam("_id"), _A.deleted == sa.true()
)

# Without _HERE, which holds for all of these rows: with it SQLite would use the index
# attachments_of_volume, and read every host of the volume.
_UNANSWERED = _FIELDS.prepared(
    _ALL.where(_THIS, _A.answered == sa.false()).order_by(*_AGE)
)

COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    "id": _A.id,
    "volume_id": _A.volume_id,
    "status": _A.attach_status,
    "attach_status": _A.attach_status,
    "instance_id": _A.instance_uuid,
    "instance_uuid": _A.instance_uuid,
    "attached_host": _A.attached_host.collate("NOCASE"),
    "attach_mode": _A.attach_mode,
    "created_at": _A.created_at,
    "updated_at": _A.updated_at,
}


def insert(connection: sa.Connection, *rows: Attachment) -> None:
    """Insert rows of one volume.

    :raises Invalid: the volume or the node would have more than it may have.
    """
    _check_number(connection, rows[0].volume_id, len(rows))
    _INSERT.write(connection, *map(_FIELDS.values, rows))


def _check_number(connection: sa.Connection, volume_id: str, more: int) -> None:
    count, why = _TOTAL.rows(connection, {})[0].total or 0, ""
    last = count + more - 1
    most = min(MAX_OF_VOLUME, 1 + (MAX_ROWS - last) // SHARE)
    own = {"volume_id": volume_id, "others": most - more}
    has = "has" if more == 1 else "would have more than"
    if last >= MAX_ROWS:
        why = f"the node {has} {MAX_ROWS}"
    elif last >= MANY_ROWS and (most < more or _FULL.first(connection, own)):
        why = f"volume {volume_id} {has} {most} of {count}"
    if why:
        raise Invalid(f"{why} attachments, the most it may have: delete one first")


def get(
    connection: sa.Connection, attachment_id: str, project_id: str | None = None
) -> Attachment | None:
    """Return one attachment, of a project if one is named, or None."""
    if project_id is None:
        return _ONE.first(connection, {"id": attachment_id})
    own = {"id": attachment_id, paging.PROJECT.key: project_id}
    return _OWN_ONE.first(connection, own)


def require(
    connection: sa.Connection, attachment_id: str, ctx: RequestContext | None = None
) -> Attachment:
    """Return one attachment, for a client, or for a step of a job (None).

    :raises NotFound: it does not exist, is deleted, or is of another project.
    """
    project_id = None if ctx is None else ctx.only_project
    row = get(connection, attachment_id, project_id)
    return existing(row, "attachment", attachment_id)


def require_all(
    connection: sa.Connection, ids: Iterable[str], volume_id: str | None = None
) -> list[Attachment]:
    """Return attachments in this order, each once; all of them of one volume if named.

    :raises NotFound: one does not exist, is deleted, or is of another volume.
    """
    names = list(dict.fromkeys(ids))
    by_id = {
        row.id: row
        for row in _MANY.rows(connection, {"names": names})
        if volume_id in (None, row.volume_id)
    }
    return [existing(by_id.get(ident), "attachment", ident) for ident in names]


def page(connection: sa.Connection, page: Page) -> PageRows[Attachment]:
    """Return a page of attachments.

    :raises NotFound: the marker does not exist.
    """
    query = _listed(page.sort, page.project_id is None)
    query = paging.filtered(query, page.filters, COLUMNS)
    query = paging.after_marker(connection, query, page, COLUMNS, "attachment", *_OWN)
    if paging.is_indexed(page):
        rows = _FIELDS.iterate(connection.execute(query, paging.values(page)))
    else:
        rows = paging.in_order(connection, query, page, _A.id, _BY_IDS)
    return fill(
        rows,
        page.limit,
        lambda row: json_bytes(row.connector, row.connection_info),
    )


@functools.lru_cache(maxsize=paging.SORTS)
def _listed(sort: paging.Sort, every_project: bool) -> sa.Select[Any]:
    """Return the statement for this order; built once for each order."""
    query = _ALL.where(_HERE)
    if not every_project:
        query = query.join(VOLUMES, _OWN[0]).where(_OWN[1])
    return paging.ordered(query, sort, COLUMNS)


def of_volumes(
    connection: sa.Connection, volume_ids: Sequence[str]
) -> dict[str, list[Attachment]]:
    """Return the attachments of many volumes, oldest first, in brief."""
    attachments: dict[str, list[Attachment]] = {}
    for chunk in paging.chunks(volume_ids):
        for attachment in _brief_of(len(chunk)).rows(connection, chunk):
            attachments.setdefault(attachment.volume_id, []).append(attachment)
    return attachments


def counts(connection: sa.Connection, volume_ids: Sequence[str]) -> dict[str, int]:
    """Return how many attachments each of these volumes has, if any."""
    return {
        row.volume_id: row.count
        for chunk in paging.chunks(volume_ids)
        for row in _counts_of(len(chunk)).iterate(connection, chunk)
    }


@functools.lru_cache
def _counts_of(count: int) -> Prepared:
    ids: list[Any] = [sa.bindparam(name) for name in paging.names(count)]
    query = sa.select(_A.volume_id, sa.func.count().label("count"))
    query = query.where(_A.volume_id.in_(ids), _HERE).group_by(_A.volume_id)
    return Prepared(query, index="attachments_of_volume")


@functools.lru_cache
def _brief_of(count: int) -> Prepared:
    """Return the statement for ``count`` volumes.

    With an "expanding" list SQLAlchemy 2.0 compiles it at each run: 0.20 ms for 3
    volumes with 3 hosts each, instead of 0.08.
    """
    ids: list[Any] = [sa.bindparam(name) for name in paging.names(count)]
    query = sa.select(*BRIEF.labels).where(_A.volume_id.in_(ids), _HERE).order_by(*_AGE)
    return BRIEF.prepared(query)


def of_volume(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return the complete attachments of one volume, oldest first."""
    return _OF_VOLUME.rows(connection, {"volume_id": volume_id})


def brief_of_volume(
    connection: sa.Connection, volume_id: str, most: int
) -> list[Attachment]:
    """Return up to ``most`` attachments of one volume, in brief and in no order."""
    return _BRIEF.rows(connection, {"volume_id": volume_id, "most": most})


def of_initiator(
    connection: sa.Connection, volume_id: str, initiator: str
) -> list[Attachment]:
    """Return the complete attachments of an initiator on a volume, oldest first."""
    which = {"volume_id": volume_id, "names": [initiator]}
    return _OF_INITIATOR.rows(connection, which)


def of_initiators(
    connection: sa.Connection, volume_id: str, initiators: Sequence[str]
) -> dict[str, list[Attachment]]:
    """Return those of several initiators, by name; also of those without any.

    As ``with_initiator``, they have no connector and no connection_info.
    """
    which = {"volume_id": volume_id, "names": initiators}
    by_name: dict[str, list[Attachment]] = {name: [] for name in initiators}
    for row in _OF_INITIATORS.rows(connection, which):
        by_name[str(row.initiator)].append(row)
    return by_name


def legacy(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return those that actions of a volume made, complete and oldest first."""
    return _LEGACY.rows(connection, {"volume_id": volume_id})


def with_hosts(connection: sa.Connection) -> list[str]:
    """Return the ids of the volumes that have an attachment with an initiator."""
    query = sa.select(_A.volume_id).where(_HERE, _A.initiator.is_not(None)).distinct()
    return list(connection.execute(query).scalars())


def with_initiator(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return the attachments of a volume with an initiator, oldest first.

    They have no connector and no connection_info, which may be large.
    """
    return _WITH_INITIATOR.rows(connection, {"volume_id": volume_id})


def unanswered(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return attachments of a volume that no client may know yet, oldest first."""
    return _UNANSWERED.rows(connection, {"volume_id": volume_id})


def in_range(connection: sa.Connection, first: str, last: str) -> list[Row]:
    """Return id, status and attach_time of these rows, deleted or not, by id."""
    return _IN_RANGE.rows(connection, {"first": first, "last": last})


def forget(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Remove deleted rows, so that their ids can be used again."""
    connection.execute(_FORGET, [{"_id": attachment_id} for attachment_id in ids])


def mark_answered(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Note that the clients have had time to receive these attachments."""
    rows = [{"answered": True, "_id": attachment_id} for attachment_id in ids]
    _update(frozenset({"answered"})).write(connection, *rows)


def writers(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return the complete attachments whose hosts may be writing, oldest first.

    Also those whose access could not be closed.
    """
    return _WRITERS.rows(connection, {"volume_id": volume_id})


def any_wanted(connection: sa.Connection, volume_id: str) -> bool:
    """Return whether the volume must be exported to any host."""
    return _ANY_WANTED.first(connection, {"volume_id": volume_id}) is not None


def any_at_address(connection: sa.Connection, backend: str, address: str) -> bool:
    """Return whether a host at this address must reach any volume of a backend."""
    which = {"backend": backend, "address": address}
    return _AT_ADDRESS.first(connection, which) is not None


def portal_hosts(connection: sa.Connection, backend: str) -> list[PortalHost]:
    """Return the hosts that must reach a backend, each with its connector's ip."""
    rows = connection.execute(_PORTAL_HOSTS, {"backend": backend})
    return [
        PortalHost(volume_id, initiator, host_address(address))
        for volume_id, initiator, address in rows
    ]


def change_status(
    connection: sa.Connection,
    attachment_id: str,
    old: Collection[AttachStatus],
    new: AttachStatus,
    **values: Any,
) -> bool:
    """Compare and swap the status; return False if it is not in ``old`` any more.

    ``values``: other fields of lunshare.agent.model.records.Attachment to write.
    """
    return change_all(connection, {attachment_id: {}}, old, new, **values) == 1


def change_all(
    connection: sa.Connection,
    rows: Mapping[str, Mapping[str, Any]],
    old: Collection[AttachStatus],
    new: AttachStatus,
    **values: Any,
) -> int:
    """Do the same for many; return how many were in ``old``.

    ``rows``: by id, the fields of which each row has its own value.
    """
    if not all(attachment_may_change(status, new) for status in old):
        raise AssertionError(
            f"lunshare.agent.model.states has no move from {sorted(old)} to {new}"
        )
    if not rows:
        return 0
    values = {"status_reason": None, **values, "status": new, "updated_at": now()}
    rows = {ident: _FIELDS.named({**values, **own}) for ident, own in rows.items()}
    statement = _update(frozenset(next(iter(rows.values()))), frozenset(old))
    parameters = ({**row, "_id": ident} for ident, row in rows.items())
    return statement.write(connection, *parameters)


def set_values(connection: sa.Connection, attachment_id: str, **values: Any) -> None:
    """Write fields other than the status."""
    columns = _FIELDS.named({**values, "updated_at": now()})
    _update(frozenset(columns)).write(connection, {**columns, "_id": attachment_id})


def set_fenced(connection: sa.Connection, attachment_id: str, fence: FenceKind) -> None:
    """Note that the target has closed what this fence takes, if it is still the one."""
    row = get(connection, attachment_id)
    if row is not None and row.fence is fence:
        set_values(connection, attachment_id, fenced_at=now())


def remove(
    connection: sa.Connection, ids: Iterable[str], old: Collection[AttachStatus]
) -> int:
    """Mark rows deleted and detached, and drop what may be large in them.

    Returns how many were in ``old``.
    """
    return change_all(
        connection,
        {ident: {} for ident in ids},
        old,
        AttachStatus.DETACHED,
        deleted=True,
        deleted_at=now(),
        detach_time=now(),
        auth_password=None,
        connector=None,
        connection_info=None,
        answered=True,
    )


@functools.lru_cache
def _update(
    columns: frozenset[str], old: frozenset[AttachStatus] | None = None
) -> Prepared:
    """Return the statement that writes these columns of row ``_id``; built once."""
    where = [_A.id == sa.bindparam("_id"), _HERE]
    if old is not None:
        where.append(sa.or_(*(_A.attach_status == status for status in sorted(old))))
    values: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    return Prepared(sa.update(VOLUME_ATTACHMENT).where(*where).values(values))
