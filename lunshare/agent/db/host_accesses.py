# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments by the names of their hosts, on all volumes: what fences take of them.

Names are in the form of lunshare.drivers.values.plain_name: those of hosts have no case
(RFC 4343), and those of initiators are in lower case. Nothing here reads an attachment
that has none of the names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import (
    HOST_FENCES,
    VOLUME_ATTACHMENT,
    VOLUMES,
    WRITE_FENCES,
)
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import named
from lunshare.agent.model.records import Attachment
from lunshare.agent.model.states import FenceKind
from lunshare.drivers.values import plain_name

_A = VOLUME_ATTACHMENT.c
_HERE = _A.deleted == sa.false()
_FIELDS = RecordColumns(
    Attachment, VOLUME_ATTACHMENT, status=_A.attach_status, mode=_A.attach_mode
)
_LARGE = ("connector", "connection_info")
_BACKEND = (
    sa.select(VOLUMES.c.backend).where(VOLUMES.c.id == _A.volume_id).scalar_subquery()
)
_GENERATION = (
    sa.select(WRITE_FENCES.c.generation)
    .where(WRITE_FENCES.c.volume_id == _A.volume_id)
    .scalar_subquery()
)
_ROWS = sa.select(
    *(sa.null().label(x.key) if x.key in _LARGE else x for x in _FIELDS.labels),
    _BACKEND.label("backend"),
    sa.func.coalesce(_GENERATION, 0).label("generation"),
).where(_HERE)
# In the words of their indexes, one for each.
_LEAVING = _A.former_initiator.is_not(None)
_NAMED: Sequence[tuple[sa.ColumnElement[Any], ...]] = (
    (_A.initiator,),
    (_A.attached_host.collate("NOCASE"),),
    (_A.former_initiator, _LEAVING),
    (_A.former_host.collate("NOCASE"), _LEAVING),
)
_SENT_HOST: sa.ColumnElement[str] = sa.literal_column(
    "json_extract(connector, '$.host') COLLATE NOCASE"
)
_SENT_BY = sa.select(_A.initiator).where(
    _HERE,
    _A.legacy.is_not(None),
    _A.initiator.is_not(None),
    sa.bindparam("host") == _SENT_HOST,
)
# The strictest, as FenceKind has them in order.
_FENCE = (
    sa.select(sa.func.min(HOST_FENCES.c.fence))
    .where(
        sa.or_(
            HOST_FENCES.c.name == _A.initiator,
            HOST_FENCES.c.name == sa.func.lower(_A.attached_host),
        )
    )
    .correlate(VOLUME_ATTACHMENT)
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class AccessOfHost:
    """An attachment, and its volume's backend and fencing generation.

    ``row`` has no connector and no connection_info.
    """

    row: Attachment
    backend: str
    generation: int

    @property
    def names(self) -> frozenset[str]:
        """The names of its hosts: the one that it has, and the one that it had."""
        row = self.row
        hosts = map(plain_name, filter(None, (row.attached_host, row.former_host)))
        return frozenset({*row.initiators, *hosts})


def of_names(connection: sa.Connection, names: Sequence[str]) -> list[AccessOfHost]:
    """Return the attachments by which hosts of these names may have access.

    Also as the initiator that their connector has replaced. It runs four statements for
    each 256 names.
    """
    accesses: dict[str, AccessOfHost] = {}
    for chunk in paging.chunks(names):
        for column, *conditions in _NAMED:
            query = _ROWS.where(column.in_([*chunk.values()]), *conditions)
            for row in named(connection.execute(query)):
                access = AccessOfHost(_FIELDS.record(row), row.backend, row.generation)
                if access.row.initiators:
                    accesses[row.id] = access
    return sorted(accesses.values(), key=lambda each: (each.row.volume_id, each.row.id))


def initiators_sent_by(connection: sa.Connection, host: str) -> list[str]:
    """Return the initiators of connectors that say this host, whatever os-attach said.

    Of an attachment that os-attach has not made, attached_host says the same.
    """
    return list(connection.execute(_SENT_BY, {"host": host}).scalars())


def _taken(lax: Collection[str]) -> sa.ColumnElement[Any]:
    """Return what the rows of fences take of an attachment: all, writes, or None.

    ``lax``: the backends whose target lets no host only read. Of theirs it is all.
    """
    whole = sa.and_(_BACKEND.in_([*lax]), _FENCE.is_not(None))
    return sa.case((whole, sa.literal(FenceKind.ALL)), else_=_FENCE) if lax else _FENCE


def _with_ids(ids: Sequence[str]) -> Iterator[sa.ColumnElement[bool]]:
    for chunk in paging.chunks(ids):
        yield sa.and_(_A.id.in_([*chunk.values()]), _HERE)


def released(
    connection: sa.Connection, ids: Sequence[str], lax: Collection[str]
) -> list[Attachment]:
    """Return those of these attachments, complete, from which nothing is taken now."""
    query = sa.select(*_FIELDS.labels).where(
        _A.fence.is_not(None), _taken(lax).is_(None)
    )
    return [
        record
        for those in _with_ids(ids)
        for record in _FIELDS.records(connection.execute(query.where(those)))
    ]


def write_fences(
    connection: sa.Connection, ids: Sequence[str], lax: Collection[str]
) -> None:
    """Write in these attachments what the rows of fences take. It is to be proven."""
    taken = _taken(lax)
    values: Mapping[str, Any] = {"fence": taken, "fenced_at": None, "updated_at": now()}
    update = sa.update(VOLUME_ATTACHMENT).values(values)
    for those in _with_ids(ids):
        concerned = sa.or_(_A.fence.is_not(None), taken.is_not(None))
        connection.execute(update.where(those, concerned))


def stale(connection: sa.Connection, lax: Collection[str]) -> list[str]:
    """Return the ids of attachments that do not have what the rows of fences take."""
    fenced = sa.select(_A.id).where(_HERE, _A.fence.is_not(None))
    names = list(connection.execute(sa.select(HOST_FENCES.c.name).distinct()).scalars())
    ids = {access.row.id for access in of_names(connection, names)}
    ids.update(connection.execute(fenced).scalars())
    different = sa.select(_A.id).where(_A.fence.is_distinct_from(_taken(lax)))
    return [
        ident
        for those in _with_ids(sorted(ids))
        for ident in connection.execute(different.where(those)).scalars()
    ]
