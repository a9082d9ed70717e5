# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of QoS specs. A volume type names at most one of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import QOS_SPECS, VOLUME_TYPES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.errors import Conflict, existing
from lunshare.agent.model.qos_table import QosSpecs

_Q = QOS_SPECS.c
_T = VOLUME_TYPES.c
_FIELDS = RecordColumns(QosSpecs, QOS_SPECS)
_INSERT = _FIELDS.insertion(created_at=sa.bindparam("created_at"))
_ROWS = sa.select(*_FIELDS.labels)
_OF_TYPE = _FIELDS.prepared(
    _ROWS.join(VOLUME_TYPES, _T.qos_specs_id == _Q.id).where(
        _T.id == sa.bindparam("type_id")
    )
)


def insert(connection: sa.Connection, qos: QosSpecs) -> None:
    """Insert QoS specs.

    :raises Conflict: the name is in use.
    """
    try:
        _INSERT.write(connection, {**_FIELDS.values(qos), "created_at": now()})
    except sqlite3.IntegrityError:
        raise Conflict(
            f"qos_specs.name {qos.name!r} is in use: choose another name"
        ) from None


def require(connection: sa.Connection, qos_id: str) -> QosSpecs:
    """Return QoS specs by their id.

    :raises NotFound: they do not exist.
    """
    row = connection.execute(_ROWS.where(_Q.id == qos_id)).first()
    return _FIELDS.record(existing(row, "qos_specs", qos_id))


def of_type(connection: sa.Connection, type_id: str) -> QosSpecs | None:
    """Return the QoS specs of a volume type, or None."""
    return _OF_TYPE.first(connection, {"type_id": type_id})


def every(connection: sa.Connection) -> list[QosSpecs]:
    """Return all QoS specs, the newest first."""
    query = _ROWS.order_by(_Q.created_at.desc(), _Q.id.desc())
    return _FIELDS.records(connection.execute(query))


def update(
    connection: sa.Connection, qos_id: str, consumer: str, specs: Mapping[str, str]
) -> None:
    """Write consumer and specs."""
    values: dict[str, Any] = {"consumer": consumer, "specs": dict(specs)}
    connection.execute(sa.update(QOS_SPECS).where(_Q.id == qos_id).values(values))


def delete(connection: sa.Connection, qos_id: str) -> None:
    """Delete QoS specs; no type names them afterwards."""
    set_types(connection, qos_id, None)
    connection.execute(sa.delete(QOS_SPECS).where(_Q.id == qos_id))


def types(connection: sa.Connection, qos_id: str) -> list[tuple[str, str]]:
    """Return id and name of the volume types that name these specs."""
    query = sa.select(_T.id, _T.name).where(_T.qos_specs_id == qos_id)
    return [(row.id, row.name) for row in connection.execute(query.order_by(_T.name))]


def set_type(connection: sa.Connection, type_id: str, qos_id: str | None) -> None:
    """Write which specs a volume type names."""
    query = sa.update(VOLUME_TYPES).where(_T.id == type_id)
    connection.execute(query.values(qos_specs_id=qos_id))


def set_types(connection: sa.Connection, old: str, new: str | None) -> None:
    """Write it for every type that names the specs ``old``."""
    query = sa.update(VOLUME_TYPES).where(_T.qos_specs_id == old)
    connection.execute(query.values(qos_specs_id=new))
