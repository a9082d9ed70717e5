# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Totals over the volumes of a project, or of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.schema import VOLUMES
from lunshare.agent.model.project_records import VolumeSummary

_V = VOLUMES.c
_HERE = _V.deleted == sa.false()
_MOST = 1000  # values of metadata keys


def read(
    connection: sa.Connection, project_id: str | None, metadata: bool
) -> VolumeSummary:
    """Return the totals of a project, or of every one if that is None.

    ``metadata``: with up to a thousand pairs of key and value.
    """
    totals = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_V.size), 0))
    count, size = connection.execute(_of(project_id, totals)).one()
    found: dict[str, list[str]] = {}
    for key, value in connection.execute(_pairs(project_id)) if metadata else ():
        found.setdefault(key, []).append(value)
    return VolumeSummary(int(count), int(size), found)


def _pairs(project_id: str | None) -> sa.Select[Any]:
    items = sa.func.json_each(_V.metadata).table_valued("key", "value")
    key, value = items.c.key, items.c.value
    joined = VOLUMES.join(items, sa.true())
    pairs = _of(project_id, sa.select(key, value).select_from(joined).distinct())
    return pairs.order_by(key, value).limit(_MOST)


def _of(project_id: str | None, query: sa.Select[Any]) -> sa.Select[Any]:
    query = query.where(_HERE)
    return query if project_id is None else query.where(_V.project_id == project_id)
