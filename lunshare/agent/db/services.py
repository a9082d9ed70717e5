# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The services that an administrator has disabled or frozen; others are enabled."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared

_S = SERVICES.c
# A row's host is what the node was called when it was written: host, or host@backend.
# The database has one node, so the backend alone names the service.
_AT = sa.func.instr(_S.host, "@")
_BACKEND = sa.case((_AT == 0, ""), else_=sa.func.substr(_S.host, _AT + 1))
_FROZEN = Prepared(
    sa.select(_S.frozen)
    .where(sa.bindparam("backend") == _BACKEND, _S.frozen == sa.true())
    .limit(1)
)
_ROWS = Prepared(
    sa.select(
        _BACKEND.label("backend"), _S.binary, _S.disabled, _S.disabled_reason
    ).order_by(_S.updated_at)
)


def disabled(connection: sa.Connection) -> dict[tuple[str, str], str | None]:
    """Return (backend, binary) of each disabled service, with its reason.

    The scheduler has no backend: "". Of several rows, which nodes that had been
    renamed left in an earlier version, the newest counts.
    """
    rows = _ROWS.rows(connection, {})
    newest = {(row.backend, row.binary): row for row in rows}
    return {key: row.disabled_reason for key, row in newest.items() if row.disabled}


def frozen_backends(connection: sa.Connection) -> set[str]:
    """Return the frozen backends."""
    query = sa.select(_BACKEND).where(_S.frozen == sa.true())
    return set(connection.execute(query).scalars())


def is_frozen(connection: sa.Connection, backend: str) -> bool:
    """Return whether the backend is frozen."""
    return _FROZEN.first(connection, {"backend": backend}) is not None


def put(
    connection: sa.Connection,
    host: str,
    binary: str,
    *,
    enabled: bool,
    reason: str | None,
    frozen: bool = False,
) -> None:
    """Enable or disable a service, with a reason; freeze it or not.

    ``host`` is host@backend, or the node's name.
    """
    is_row = sa.and_(
        sa.literal(host.partition("@")[2]) == _BACKEND, _S.binary == binary
    )
    connection.execute(sa.delete(SERVICES).where(is_row))
    row = {
        "host": host,
        "binary": binary,
        "disabled": not enabled,
        "disabled_reason": None if enabled else reason,
        "updated_at": now(),
        "frozen": frozen,
    }
    connection.execute(sa.insert(SERVICES).values(row))
