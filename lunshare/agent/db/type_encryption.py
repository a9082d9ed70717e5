# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the encryption of volume types; a type has at most one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import TYPE_ENCRYPTION
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.operator_records import Encryption

_E = TYPE_ENCRYPTION.c
_FIELDS = RecordColumns(Encryption, TYPE_ENCRYPTION)
_INSERT = _FIELDS.insertion()


def insert(connection: sa.Connection, new: Encryption) -> None:
    """Insert the encryption of a type that has none."""
    _INSERT.write(connection, _FIELDS.values(new))


def get(connection: sa.Connection, type_id: str) -> Encryption | None:
    """Return the encryption of a type, or None."""
    query = sa.select(*_FIELDS.labels).where(_E.volume_type_id == type_id)
    row = connection.execute(query).first()
    return None if row is None else _FIELDS.record(row)


def update(connection: sa.Connection, type_id: str, changes: Mapping[str, Any]) -> None:
    """Write these fields."""
    query = sa.update(TYPE_ENCRYPTION).where(_E.volume_type_id == type_id)
    connection.execute(query.values(**changes, updated_at=now()))


def remove(connection: sa.Connection, type_id: str) -> bool:
    """Delete it; return whether it existed."""
    query = sa.delete(TYPE_ENCRYPTION).where(_E.volume_type_id == type_id)
    return connection.execute(query).rowcount == 1
