# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume types: named extra specs that decide the pool and multiattach of a volume."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from lunshare.agent.db import quotas, type_access, types, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Busy, Invalid, NotFound
from lunshare.agent.model.records import (
    NO,
    RESERVATIONS,
    YES,
    RequestContext,
    VolumeType,
)
from lunshare.agent.service.types.type_access import require_type
from lunshare.drivers import writers
from lunshare.drivers.errors import InvalidValue


class Types:
    """The volume types of this node."""

    def __init__(self, db: Database, default_name: str | None) -> None:
        self._db, self._default_name = db, default_name

    def get(self, ctx: RequestContext, type_id: str) -> VolumeType:
        """Return one type by its id.

        :raises NotFound: the type; also for the name of a type, as clients expect.
        """
        return self._find(ctx, type_id, by_name=False)

    def resolve(self, ctx: RequestContext, ident: str | None) -> VolumeType | None:
        """Return the type of a new volume: by id or name, else the default, else None.

        The default is that of the project, or default_volume_type.

        :raises NotFound: the type does not exist, or the project may not use it.
        """
        name = ident or self._default(ctx)
        return None if name is None else self._find(ctx, name, by_name=True)

    def check_unchanged(self, connection: Connection, kind: VolumeType | None) -> None:
        """Check in the transaction of a new volume that its type is as it was read.

        :raises Invalid: it is encrypted; this node has no keys for its volumes.
        :raises Busy: it was changed or deleted since.
        """
        if kind and kind.encrypted:
            raise Invalid(
                f"volume_type {kind.name} is encrypted, and this node has no key"
                " manager: choose a type without encryption, and encrypt on the host"
            )
        if kind and types.find(connection, kind.id, by_name=False) != kind:
            raise Busy(f"volume_type {kind.name} has just changed: try again")

    def default(self, ctx: RequestContext, of_project: bool = True) -> VolumeType:
        """Return the type of a volume that names none.

        Without ``of_project`` the default type of the project is not considered.

        :raises NotFound: default_volume_type is not set or names no type.
        """
        name = self._default(ctx) if of_project else self._default_name
        return self._find(ctx, name or "default", by_name=True)

    def _default(self, ctx: RequestContext) -> str | None:
        with self._db.reading() as connection:
            own = type_access.default_of(connection, ctx.project_id)
        return own or self._default_name

    def list(
        self,
        ctx: RequestContext,
        is_public: bool | None = None,
        extra_specs: Mapping[str, str] | None = None,
    ) -> list[VolumeType]:
        """Return types by name, only those that have all of ``extra_specs``.

        ``is_public``: True selects public types, and private ones that the project
        may use; False private ones; None all. Only an administrator may choose.
        """
        with self._db.reading() as connection:
            kinds = types.every(connection)
            own = type_access.types_of(connection, ctx.project_id)
        if is_public or not ctx.is_admin:
            kinds = [kind for kind in kinds if kind.is_public or kind.id in own]
        elif is_public is not None:
            kinds = [kind for kind in kinds if not kind.is_public]
        specs = (extra_specs or {}).items()
        return [kind for kind in kinds if specs <= kind.extra_specs.items()]

    def create(
        self,
        ctx: RequestContext,
        name: str,
        description: str | None = None,
        is_public: bool = True,
        extra_specs: Mapping[str, str] | None = None,
    ) -> VolumeType:
        """Create a type.

        :raises Invalid: two of the extra specs exclude each other, or one of lunshare's
            own has no meaning.
        :raises Conflict: another type has the name.
        """
        kind = VolumeType(
            id=str(uuid.uuid4()),
            name=name,
            description=description,
            is_public=is_public,
            extra_specs=_check_specs(extra_specs or {}),
        )
        with self._db.writing() as connection:
            types.insert(connection, kind)
        return kind

    def update(
        self, ctx: RequestContext, type_id: str, changes: Mapping[str, Any]
    ) -> VolumeType:
        """Change name, description or is_public.

        :raises NotFound: the type.
        :raises Conflict: another type has the name.
        """
        with self._db.writing() as connection:
            require_type(connection, ctx, type_id)
            types.update(connection, type_id, changes)
        return self.get(ctx, type_id)

    def delete(self, ctx: RequestContext, type_id: str) -> None:
        """Delete a type that no volume has.

        :raises NotFound: the type.
        :raises Invalid: it is in use, or it is the default.
        """
        with self._db.writing() as connection:
            kind = require_type(connection, ctx, type_id)
            if kind.name == self._default_name:
                raise Invalid(
                    f"volume_type {kind.name} is default_volume_type: change that"
                    " option first"
                )
            if type_access.is_default(connection, type_id):
                raise Invalid(
                    f"volume_type {kind.name} is the default type of a project: change"
                    " that first (GET /default-types)"
                )
            check_unused(connection, kind)
            quotas.forget_type(connection, type_id)
            type_access.forget_type(connection, type_id)
            types.delete(connection, type_id)

    def set_specs(
        self, ctx: RequestContext, type_id: str, specs: Mapping[str, str]
    ) -> VolumeType:
        """Add or replace extra specs of a type that no volume has.

        :raises NotFound: the type.
        :raises Invalid: it is in use, and the specs would not be true for its
            volumes; or two of the specs exclude each other.
        """
        with self._db.writing() as connection:
            kind = require_type(connection, ctx, type_id)
            _check_specs({**kind.extra_specs, **specs})
            check_unused(connection, kind)
            types.set_specs(connection, type_id, specs)
        return self.get(ctx, type_id)

    def delete_spec(self, ctx: RequestContext, type_id: str, key: str) -> None:
        """Delete one extra spec of a type that no volume has.

        :raises NotFound: the type, or the spec.
        :raises Invalid: the type is in use.
        """
        with self._db.writing() as connection:
            kind = require_type(connection, ctx, type_id)
            check_unused(connection, kind)
            if not types.delete_spec(connection, type_id, key):
                raise NotFound(f"extra spec of volume_type {kind.name}:", key)

    def _find(self, ctx: RequestContext, ident: str, by_name: bool) -> VolumeType:
        with self._db.reading() as connection:
            return require_type(connection, ctx, ident, by_name)


def check_unused(connection: Connection, kind: VolumeType) -> None:
    """Check that no volume has a type, so that the type may be changed.

    :raises Invalid: a volume has it, or is being changed to it.
    """
    if volumes.uses_type(connection, kind.id):
        raise Invalid(
            f"volume_type {kind.name} is in use by volumes: delete them first, or"
            " create another type"
        )


def _check_specs(specs: Mapping[str, str]) -> Mapping[str, str]:
    try:
        writers.check(specs, "extra_specs", (RESERVATIONS,))
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    if specs.get(RESERVATIONS, YES) not in (YES, NO):
        raise Invalid(f"extra_specs {RESERVATIONS}: give '{YES}' or '{NO}'")
    if specs.get("multiattach") == YES and specs.get("cacheable"):
        raise Invalid(
            "extra_specs may not hold both multiattach and cacheable: a host's cache"
            " would hide the other hosts' writes"
        )
    return specs
