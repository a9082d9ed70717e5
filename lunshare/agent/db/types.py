# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of volume types and their extra specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import type_encryption
from lunshare.agent.db.schema import (
    TYPE_ENCRYPTION,
    VOLUME_TYPE_EXTRA_SPECS,
    VOLUME_TYPES,
)
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import VolumeType

_T = VOLUME_TYPES.c
_S = VOLUME_TYPE_EXTRA_SPECS.c
_ENCRYPTED = (
    sa.select(sa.literal(1))
    .select_from(TYPE_ENCRYPTION)
    .where(TYPE_ENCRYPTION.c.volume_type_id == _T.id)
    .correlate(VOLUME_TYPES)
    .exists()
)
_SPECS = Prepared(
    sa.select(_S.key, _S.value).where(_S.volume_type_id == sa.bindparam("type_id"))
)
_ROWS = sa.select(VOLUME_TYPES, _ENCRYPTED.label("encrypted"))


def insert(connection: sa.Connection, volume_type: VolumeType) -> None:
    """Insert a type with its extra specs.

    :raises Conflict: the name is in use.
    """
    values = {
        "id": volume_type.id,
        "name": volume_type.name,
        "description": volume_type.description,
        "is_public": volume_type.is_public,
        "created_at": now(),
    }
    _guarded(connection, sa.insert(VOLUME_TYPES).values(values), volume_type.name)
    set_specs(connection, volume_type.id, volume_type.extra_specs)


def find(connection: sa.Connection, ident: str, by_name: bool) -> VolumeType | None:
    """Return a type by its id or, with ``by_name``, by id or name; or None."""
    where = sa.or_(_T.id == ident, _T.name == ident) if by_name else _T.id == ident
    kinds = _filled(connection, _ROWS.where(where))
    return kinds[0] if kinds else None


def every(connection: sa.Connection) -> list[VolumeType]:
    """Return the types by name."""
    return _filled(connection, _ROWS.order_by(_T.name))


def update(connection: sa.Connection, type_id: str, changes: Mapping[str, Any]) -> None:
    """Write name, description or is_public.

    :raises Conflict: the name is in use.
    """
    query = sa.update(VOLUME_TYPES).where(_T.id == type_id)
    values = {**changes, "updated_at": now()}
    _guarded(connection, query.values(values), str(changes.get("name")))


def delete(connection: sa.Connection, type_id: str) -> None:
    """Delete a type, its extra specs and its encryption."""
    type_encryption.remove(connection, type_id)
    connection.execute(
        sa.delete(VOLUME_TYPE_EXTRA_SPECS).where(_S.volume_type_id == type_id)
    )
    connection.execute(sa.delete(VOLUME_TYPES).where(_T.id == type_id))


def set_specs(
    connection: sa.Connection, type_id: str, specs: Mapping[str, str]
) -> None:
    """Add or replace these extra specs; others stay."""
    for key, value in specs.items():
        delete_spec(connection, type_id, key)
        row = {"volume_type_id": type_id, "key": key, "value": value}
        connection.execute(sa.insert(VOLUME_TYPE_EXTRA_SPECS).values(row))


def get_spec(connection: sa.Connection, type_id: str, key: str) -> str | None:
    """Return the value of one extra spec; None if the type does not have it."""
    query = sa.select(_S.value).where(_S.volume_type_id == type_id, _S.key == key)
    value: str | None = connection.execute(query).scalar()
    return value


def get_specs(connection: sa.Connection, type_id: str) -> dict[str, str]:
    """Return the extra specs of a type."""
    rows = _SPECS.rows(connection, {"type_id": type_id})
    return {row.key: row.value for row in rows}


def delete_spec(connection: sa.Connection, type_id: str, key: str) -> bool:
    """Delete one extra spec; return whether it existed."""
    where = (_S.volume_type_id == type_id, _S.key == key)
    result = connection.execute(sa.delete(VOLUME_TYPE_EXTRA_SPECS).where(*where))
    return result.rowcount == 1


def _guarded(connection: sa.Connection, query: Any, name: str) -> None:
    try:
        connection.execute(query)
    except sa.exc.IntegrityError:
        raise Conflict(
            f"volume_type name {name!r} is in use: choose another name"
        ) from None


def _filled(connection: sa.Connection, query: sa.Select[Any]) -> list[VolumeType]:
    rows = connection.execute(query).all()
    specs: dict[str, dict[str, str]] = {}
    for spec in connection.execute(sa.select(VOLUME_TYPE_EXTRA_SPECS)):
        specs.setdefault(spec.volume_type_id, {})[spec.key] = spec.value
    return [
        VolumeType(
            id=row.id,
            name=row.name,
            description=row.description,
            is_public=row.is_public,
            extra_specs=specs.get(row.id, {}),
            qos_specs_id=row.qos_specs_id,
            encrypted=bool(row.encrypted),
        )
        for row in rows
    ]
