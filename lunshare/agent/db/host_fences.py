# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of fenced hosts: each has a name of the host, and the host as it was fenced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lunshare.agent.db.schema import HOST_FENCES, VOLUME_ATTACHMENT, listed
from lunshare.agent.db.sqlite.prepared import Prepared, Row
from lunshare.agent.model.states import FenceKind
from lunshare.drivers.values import plain_name

_F, _A = HOST_FENCES.c, VOLUME_ATTACHMENT.c
# Each attach reads it: built once. An unfence ends with the attachments: until then the
# initiator has no access that a new one could share.
_OF_NAMES = Prepared(
    sa.union_all(
        sa.select(_F.host, _F.fence, _F.created_at).where(_F.name.in_(listed("names"))),
        sa.select(_A.initiator, _A.fence, _A.updated_at).where(
            _A.initiator.in_(listed("names")),
            _A.fence.is_not(None),
            _A.deleted == sa.false(),
        ),
    ).order_by("created_at")
)


def find(connection: sa.Connection, *names: str | None) -> Sequence[Row]:
    """Return the fences of hosts and initiators, oldest first, until they end."""
    plain = [plain_name(name) for name in names if name]
    return _OF_NAMES.rows(connection, {"names": plain})


def strictest(fences: Iterable[Row]) -> FenceKind | None:
    """Return what these fences take together."""
    kinds = {fence.fence for fence in fences}
    return next((kind for kind in FenceKind if kind in kinds), None)


def of_host(connection: sa.Connection, host: str) -> Sequence[Row]:
    """Return the rows of one fence, one for each name."""
    query = sa.select(HOST_FENCES).where(_F.host == host).order_by(_F.name)
    return connection.execute(query).all()


def after(
    connection: sa.Connection, host: str | None, limit: int
) -> dict[str, list[Row]]:
    """Return the rows of up to ``limit`` fences by host, in the order of hosts.

    ``host``: the last one that the client has, None if none.
    """
    beyond = sa.true() if host is None else _F.host > host
    hosts = sa.select(_F.host).where(beyond).distinct().order_by(_F.host).limit(limit)
    query = sa.select(HOST_FENCES).where(_F.host.in_(hosts)).order_by(_F.host, _F.name)
    fences: dict[str, list[Row]] = {}
    for row in connection.execute(query):
        fences.setdefault(row.host, []).append(row)
    return fences


def write(
    connection: sa.Connection,
    host: str,
    names: Iterable[str],
    fence: FenceKind,
    since: datetime,
) -> None:
    """Fence a host, under each of its names."""
    for name in sorted(names):
        row = {"name": name, "host": host, "fence": fence, "created_at": since}
        connection.execute(
            sqlite.insert(HOST_FENCES)
            .values(row)
            .on_conflict_do_update(
                index_elements=["name", "host"], set_={"fence": fence}
            )
        )


def remove(connection: sa.Connection, host: str) -> None:
    """Remove the fence of a host."""
    connection.execute(sa.delete(HOST_FENCES).where(_F.host == host))
