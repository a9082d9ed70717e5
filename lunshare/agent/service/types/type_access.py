# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which projects may use a private volume type, and the default type of a project."""

from __future__ import annotations

from lunshare.agent.db import type_access, types
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Conflict, Invalid, NotFound, existing
from lunshare.agent.model.records import RequestContext, VolumeType

Defaults = list[tuple[str, str]]


class TypeAccess:
    """Access to the volume types of this node."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def projects(self, ctx: RequestContext, type_id: str) -> list[str]:
        """Return the projects that may use a private type.

        :raises NotFound: the type, or it is public.
        """
        with self._db.reading() as connection:
            kind = require_type(connection, ctx, type_id)
            if kind.is_public:
                raise NotFound("access list of public volume_type", type_id)
            return type_access.projects(connection, type_id)

    def add(self, ctx: RequestContext, type_id: str, project: str) -> None:
        """Let a project use a private type.

        :raises NotFound: the type.
        :raises Conflict: it is public, or the project may use it already.
        """
        with self._db.writing() as connection:
            _require_private(connection, ctx, type_id)
            if type_access.may_use(connection, type_id, project):
                raise Conflict(
                    f"project {project} may use volume_type {type_id} already"
                )
            type_access.add(connection, type_id, project)

    def remove(self, ctx: RequestContext, type_id: str, project: str) -> None:
        """Remove the access of a project; its volumes stay as they are.

        :raises NotFound: the type, or the project had no access.
        :raises Conflict: the type is public.
        """
        with self._db.writing() as connection:
            _require_private(connection, ctx, type_id)
            if not type_access.remove(connection, type_id, project):
                raise NotFound(f"access to volume_type {type_id} of project", project)

    def defaults(self, ctx: RequestContext) -> Defaults:
        """Return project and type of each default type that was set."""
        with self._db.reading() as connection:
            return type_access.defaults(connection)

    def default_of(self, ctx: RequestContext, project: str) -> str:
        """Return the id of the default type that was set for a project.

        :raises NotFound: none was set.
        """
        with self._db.reading() as connection:
            type_id = type_access.default_of(connection, project)
        return existing(type_id, "default volume_type of project", project)

    def set_default(self, ctx: RequestContext, project: str, ident: str) -> str:
        """Set the default type of a project, by id or name; return its id.

        :raises Invalid: the type does not exist, or the project may not use it.
        """
        with self._db.writing() as connection:
            kind = types.find(connection, ident, by_name=True)
            if kind is None or not (
                kind.is_public or type_access.may_use(connection, kind.id, project)
            ):
                raise Invalid(
                    f"default_type.volume_type: {ident!r} is not a type that project"
                    f" {project} may use."
                )
            type_access.set_default(connection, project, kind.id)
        return kind.id

    def unset_default(self, ctx: RequestContext, project: str) -> None:
        """Delete the default type of a project; without one nothing changes."""
        with self._db.writing() as connection:
            type_access.unset_default(connection, project)


def require_type(
    connection: Connection, ctx: RequestContext, ident: str, by_name: bool = False
) -> VolumeType:
    """Return a volume type by its id, or ``by_name`` also by that.

    :raises NotFound: it does not exist, or the project may not use it.
    """
    kind = types.find(connection, ident, by_name)
    if kind is None or not (
        kind.is_public
        or ctx.is_admin
        or type_access.may_use(connection, kind.id, ctx.project_id)
    ):
        raise NotFound("volume_type", ident)
    return kind


def _require_private(connection: Connection, ctx: RequestContext, type_id: str) -> None:
    if require_type(connection, ctx, type_id).is_public:
        raise Conflict(
            f"volume_type {type_id} is public, so every project may use it: set"
            " is_public to false first"
        )
