# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of who may use a private volume type, and of the default type of a project."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import DEFAULT_VOLUME_TYPES, VOLUME_TYPE_PROJECTS
from lunshare.agent.db.sqlite.prepared import Prepared

_P = VOLUME_TYPE_PROJECTS.c
_D = DEFAULT_VOLUME_TYPES.c

_DEFAULT = Prepared(
    sa.select(_D.volume_type_id).where(_D.project_id == sa.bindparam("project"))
)


def may_use(connection: sa.Connection, type_id: str, project_id: str) -> bool:
    """Return whether a project was given access to this type."""
    query = sa.select(_P.project_id).where(
        _P.volume_type_id == type_id, _P.project_id == project_id
    )
    return connection.execute(query).first() is not None


def types_of(connection: sa.Connection, project_id: str) -> set[str]:
    """Return the ids of the types that a project was given access to."""
    query = sa.select(_P.volume_type_id).where(_P.project_id == project_id)
    return set(connection.execute(query).scalars())


def projects(connection: sa.Connection, type_id: str) -> list[str]:
    """Return the projects that were given access to this type."""
    query = sa.select(_P.project_id).where(_P.volume_type_id == type_id)
    return list(connection.execute(query.order_by(_P.project_id)).scalars())


def add(connection: sa.Connection, type_id: str, project_id: str) -> None:
    """Give a project access to a type."""
    row = {"volume_type_id": type_id, "project_id": project_id}
    connection.execute(sa.insert(VOLUME_TYPE_PROJECTS).values(row))


def remove(connection: sa.Connection, type_id: str, project_id: str) -> bool:
    """Remove the access; return whether there was one."""
    where = (_P.volume_type_id == type_id, _P.project_id == project_id)
    result = connection.execute(sa.delete(VOLUME_TYPE_PROJECTS).where(*where))
    return result.rowcount == 1


def forget_type(connection: sa.Connection, type_id: str) -> None:
    """Delete every access to a type."""
    connection.execute(
        sa.delete(VOLUME_TYPE_PROJECTS).where(_P.volume_type_id == type_id)
    )


def default_of(connection: sa.Connection, project_id: str) -> str | None:
    """Return the id of the default type of a project, or None."""
    row = _DEFAULT.first(connection, {"project": project_id})
    return None if row is None else row.volume_type_id


def defaults(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return project and type of every default type that was set."""
    query = sa.select(_D.project_id, _D.volume_type_id).order_by(_D.project_id)
    return [(project, type_id) for project, type_id in connection.execute(query)]


def set_default(connection: sa.Connection, project_id: str, type_id: str) -> None:
    """Set the default type of a project."""
    unset_default(connection, project_id)
    row = {"project_id": project_id, "volume_type_id": type_id}
    connection.execute(sa.insert(DEFAULT_VOLUME_TYPES).values(row))


def unset_default(connection: sa.Connection, project_id: str) -> None:
    """Delete the default type of a project."""
    connection.execute(
        sa.delete(DEFAULT_VOLUME_TYPES).where(_D.project_id == project_id)
    )


def is_default(connection: sa.Connection, type_id: str) -> bool:
    """Return whether a project has this type as its default."""
    query = sa.select(_D.project_id).where(_D.volume_type_id == type_id).limit(1)
    return connection.execute(query).first() is not None
