# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of quotas: the limits that were set, and what projects use."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import (
    QUOTA_USAGE,
    QUOTAS,
    SNAPSHOTS,
    VOLUME_TYPES,
    VOLUMES,
)
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.quota_table import Usage

_Q = QUOTAS.c
_U = QUOTA_USAGE.c
_V = VOLUMES.c
_S = SNAPSHOTS.c

PROJECT, CLASS = "project", "class"
#: The class of every project.
DEFAULT_CLASS = "default"

#: Limit by resource and volume type ("" is all types).
Limits = dict[tuple[str, str], int]

_LIMITS = Prepared(
    sa.select(_Q.scope, _Q.resource, _Q.volume_type_id, _Q.hard_limit).where(
        sa.or_(
            sa.and_(_Q.scope == CLASS, _Q.name == DEFAULT_CLASS),
            sa.and_(_Q.scope == PROJECT, _Q.name == sa.bindparam("project")),
        )
    )
)
_USAGE = Prepared(
    sa.select(
        _U.volume_type_id, _U.volumes, _U.gigabytes, _U.snapshots, _U.snapshot_gigabytes
    ).where(_U.project_id == sa.bindparam("project"))
)


def limits(connection: sa.Connection, project: str) -> Limits:
    """Return the limits of a project that were set: its own, then its class's."""
    rows = _LIMITS.rows(connection, {"project": project})
    ordered = sorted(rows, key=lambda row: row.scope == PROJECT)
    return {(row.resource, row.volume_type_id): row.hard_limit for row in ordered}


def of_class(connection: sa.Connection, name: str) -> Limits:
    """Return the limits of a class that were set."""
    query = sa.select(_Q.resource, _Q.volume_type_id, _Q.hard_limit)
    rows = connection.execute(query.where(_Q.scope == CLASS, _Q.name == name))
    return {(row.resource, row.volume_type_id): row.hard_limit for row in rows}


def put(connection: sa.Connection, scope: str, name: str, new: Limits) -> None:
    """Set these limits; others stay."""
    for (resource, type_id), limit in new.items():
        row = {
            "scope": scope,
            "name": name,
            "resource": resource,
            "volume_type_id": type_id,
        }
        same = [_Q[column] == value for column, value in row.items()]
        connection.execute(sa.delete(QUOTAS).where(*same))
        connection.execute(sa.insert(QUOTAS).values(**row, hard_limit=limit))


def forget(connection: sa.Connection, project: str) -> None:
    """Delete the limits of a project; those of the class hold again."""
    connection.execute(sa.delete(QUOTAS).where(_Q.scope == PROJECT, _Q.name == project))


def forget_type(connection: sa.Connection, type_id: str) -> None:
    """Delete every limit of a volume type."""
    connection.execute(sa.delete(QUOTAS).where(_Q.volume_type_id == type_id))


def type_names(connection: sa.Connection) -> dict[str, str]:
    """Return the id of each volume type by its name."""
    query = sa.select(VOLUME_TYPES.c.name, VOLUME_TYPES.c.id)
    ordered = query.order_by(VOLUME_TYPES.c.name)
    return {row.name: row.id for row in connection.execute(ordered)}


def usage(
    connection: sa.Connection, project: str, count_snapshots: bool
) -> dict[str, Usage]:
    """Return what a project uses by volume type; "" is a volume without a type.

    It reads one row per type of the project, however many volumes it has.
    ``count_snapshots``: the GiB of snapshots are part of ``gigabytes``.
    """
    usage = {}
    for row in _USAGE.rows(connection, {"project": project}):
        more = row.snapshot_gigabytes if count_snapshots else 0
        usage[row.volume_type_id] = Usage(
            row.volumes, row.gigabytes + more, row.snapshots
        )
    return usage
