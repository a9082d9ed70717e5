# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The encryption of volume types: how hosts would encrypt their volumes.

It is stored and shown. No volume of such a type can be created, because its key would
have to come from a key manager; lunshare.agent.service.types.types refuses that.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from lunshare.agent.db import type_encryption
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.operator_records import Encryption
from lunshare.agent.model.records import RequestContext
from lunshare.agent.service.types.type_access import require_type
from lunshare.agent.service.types.types import check_unused


class TypeEncryption:
    """The encryption of the types of this node. A type has at most one."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, ctx: RequestContext, type_id: str) -> Encryption | None:
        """Return the encryption of a type, or None if it has none.

        :raises NotFound: the type.
        """
        with self._db.reading() as connection:
            require_type(connection, ctx, type_id)
            return type_encryption.get(connection, type_id)

    def create(
        self,
        ctx: RequestContext,
        type_id: str,
        *,
        provider: str,
        control_location: str,
        cipher: str | None,
        key_size: int | None,
    ) -> Encryption:
        """Encrypt the volumes that will be of this type. ``key_size`` is in bits.

        :raises NotFound: the type.
        :raises Invalid: it has an encryption already, or volumes use it.
        """
        new = Encryption(
            type_id,
            str(uuid.uuid4()),
            provider,
            control_location,
            cipher,
            key_size,
            now(),
        )
        with self._db.writing() as connection:
            kind = require_type(connection, ctx, type_id)
            check_unused(connection, kind)
            if kind.encrypted:
                raise Invalid(
                    f"volume_type {kind.name} has an encryption already: change that,"
                    " or delete it first"
                )
            type_encryption.insert(connection, new)
        return new

    def update(
        self, ctx: RequestContext, type_id: str, changes: Mapping[str, Any]
    ) -> None:
        """Change some fields.

        :raises NotFound: the type, or it has no encryption.
        :raises Invalid: volumes use the type.
        """
        with self._db.writing() as connection:
            kind = require_type(connection, ctx, type_id)
            check_unused(connection, kind)
            if not kind.encrypted:
                raise _not_found(type_id)
            type_encryption.update(connection, type_id, changes)

    def delete(self, ctx: RequestContext, type_id: str) -> None:
        """Delete the encryption of a type.

        :raises NotFound: the type, or it has no encryption.
        :raises Invalid: volumes use the type.
        """
        with self._db.writing() as connection:
            check_unused(connection, require_type(connection, ctx, type_id))
            if not type_encryption.remove(connection, type_id):
                raise _not_found(type_id)


def _not_found(type_id: str) -> NotFound:
    return NotFound("encryption of volume_type", type_id)
