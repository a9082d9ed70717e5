# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Totals that triggers of the database keep, counted from the rows instead."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import totals
from lunshare.agent.db.schema import METADATA, QUOTA_USAGE, SNAPSHOTS, VOLUMES
from lunshare.agent.db.triggers import KINDS

_U = QUOTA_USAGE.c
_V = VOLUMES.c
_S = SNAPSHOTS.c


def usage(connection: sa.Connection, project: str) -> list[Any]:
    """Count what a project uses, in the form of quota_usage."""
    coming = _V.intent["type_id"].as_string()
    size = _V.intent["size"].as_integer()
    larger = sa.case((size > _V.size, size), else_=_V.size)
    zero = sa.literal(0)
    its_volumes = sa.select(
        sa.func.coalesce(coming, _V.volume_type_id, "").label("type"),
        sa.literal(1).label("volumes"),
        larger.label("gigabytes"),
        zero.label("snapshots"),
        zero.label("snapshot_gigabytes"),
    ).where(_V.project_id == project, _V.deleted == sa.false())
    its_snapshots = sa.select(
        sa.func.coalesce(_S.volume_type_id, ""),
        zero,
        zero,
        sa.literal(1),
        _S.volume_size,
    ).where(_S.project_id == project, _S.deleted == sa.false())
    every = sa.union_all(its_volumes, its_snapshots).subquery().c
    sums = [sa.func.sum(column) for column in list(every)[1:]]
    query = sa.select(every.type, *sums).group_by(every.type).order_by(every.type)
    return list(connection.execute(query).all())


def every_usage(connection: sa.Connection) -> dict[str, list[Any]]:
    """Return every row of quota_usage by project."""
    found: dict[str, list[Any]] = {}
    order = (_U.project_id, _U.volume_type_id)
    for row in connection.execute(sa.select(QUOTA_USAGE).order_by(*order)):
        found.setdefault(row[0], []).append(tuple(row[1:]))
    return found


def by_status(connection: sa.Connection) -> totals.StatusTotals:
    """Count volumes and attachments, in the form of status_totals."""
    counts: totals.StatusTotals = {}
    for kind, (table, place, status) in KINDS.items():
        of = METADATA.tables[table].c
        place_name = sa.func.coalesce(sa.type_coerce(of[place], sa.String), "")
        columns = (place_name, of[status])
        query = sa.select(*columns, sa.func.count()).where(of.deleted == sa.false())
        for row in connection.execute(query.group_by(*columns)):
            counts[kind, row[0], row[1]] = row[2]
    return counts


def totals_are_right(connection: sa.Connection) -> bool:
    """Whether status_totals has what the rows have."""
    kept = {k: n for k, n in totals.by_status(connection).items() if n}
    return kept == by_status(connection)
