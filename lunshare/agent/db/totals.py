# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Totals over volumes, snapshots and attachments."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, STATUS_TOTALS, VOLUMES
from lunshare.agent.db.sqlite.prepared import named
from lunshare.agent.model.page_rows import fill, json_bytes
from lunshare.agent.model.project_records import VolumeSummary

_V = VOLUMES.c
_S = SNAPSHOTS.c
_HERE = _V.deleted == sa.false()
_MOST = 1000  # values of metadata keys, and volumes

#: Volumes, their GiB, snapshots, their GiB; by project.
BackendTotals = tuple[str, tuple[int, int, int, int]]
#: Kind (volume or attachment), backend or mode, status.
StatusTotals = dict[tuple[str, str, str], int]


def by_project(connection: sa.Connection, backend: str) -> list[BackendTotals]:
    """Return the totals of each project, by its id.

    The cost grows with the volumes of the backend: it is for an operator.
    """
    if not backend:
        return []  # no backend has this name; an unplaced volume is on none either
    zero = sa.literal(0)
    volumes = sa.select(
        _V.project_id,
        sa.literal(1).label("volumes"),
        _V.size.label("gigabytes"),
        zero.label("snapshots"),
        zero.label("snapshot_gigabytes"),
    ).where(_V.backend == backend, _V.deleted == sa.false())
    snapshots = (
        sa.select(_S.project_id, zero, zero, sa.literal(1), _S.volume_size)
        .join_from(SNAPSHOTS, VOLUMES, _V.id == _S.volume_id)
        .where(_V.backend == backend, _S.deleted == sa.false())
    )
    rows = sa.union_all(volumes, snapshots).subquery().c
    sums = [sa.func.sum(column) for column in list(rows)[1:]]
    query = sa.select(rows.project_id, *sums)
    query = query.group_by(rows.project_id).order_by(rows.project_id)
    return [
        (project_id, (volumes, gigabytes, snapshots, snapshot_gigabytes))
        for project_id, volumes, gigabytes, snapshots, snapshot_gigabytes in (
            connection.execute(query)
        )
    ]


def by_status(connection: sa.Connection) -> StatusTotals:
    """Return the totals, 0 for a status that rows had once.

    It reads a row per backend and status, however many volumes there are.
    """
    return {
        (row.kind, row.place, row.status): row.count
        for row in named(connection.execute(sa.select(STATUS_TOTALS)))
    }


def summary(
    connection: sa.Connection, project_id: str | None, metadata: bool
) -> VolumeSummary:
    """Return the totals of a project, or of every one if that is None.

    ``metadata``: with up to a thousand pairs of key and value, of as many volumes as a
    page has, those that were created last.
    """
    totals = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_V.size), 0))
    count, size = connection.execute(_in_project(project_id, totals)).one()
    metadata_values: dict[str, list[str]] = {}
    for key, value in _pairs(connection, project_id) if metadata else ():
        metadata_values.setdefault(key, []).append(value)
    return VolumeSummary(int(count), int(size), metadata_values)


def _pairs(connection: sa.Connection, project_id: str | None) -> list[tuple[str, str]]:
    latest = _in_project(project_id, sa.select(_V.metadata))
    latest = latest.order_by(_V.created_at.desc(), _V.id.desc())
    rows = connection.execute(latest).scalars()
    page = fill(rows, _MOST, json_bytes)
    return sorted({pair for metadata in page for pair in metadata.items()})[:_MOST]


def _in_project(project_id: str | None, query: sa.Select[Any]) -> sa.Select[Any]:
    query = query.where(_HERE)
    return query if project_id is None else query.where(_V.project_id == project_id)
