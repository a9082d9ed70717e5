# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The services that an administrator has disabled or frozen; others are enabled."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.db.sqlite.prepared import Prepared

_S = SERVICES.c
_FROZEN = Prepared(
    sa.select(_S.host).where(_S.host == sa.bindparam("host"), _S.frozen == sa.true())
)
_DISABLED = Prepared(
    sa.select(_S.host, _S.binary, _S.disabled_reason).where(_S.disabled == sa.true())
)


def disabled(connection: sa.Connection) -> dict[tuple[str, str], str | None]:
    """Return (host, binary) of each disabled service, with its reason."""
    rows = _DISABLED.rows(connection, {})
    return {(row.host, row.binary): row.disabled_reason for row in rows}


def frozen_hosts(connection: sa.Connection) -> set[str]:
    """Return the hosts of frozen backends."""
    query = sa.select(_S.host).where(_S.frozen == sa.true())
    return set(connection.execute(query).scalars())


def is_frozen(connection: sa.Connection, host: str) -> bool:
    """Return whether the backend of this host is frozen."""
    return _FROZEN.first(connection, {"host": host}) is not None


def put(
    connection: sa.Connection,
    host: str,
    binary: str,
    *,
    enabled: bool,
    reason: str | None,
    frozen: bool = False,
) -> None:
    """Enable or disable a service, with a reason; freeze it or not."""
    where = (_S.host == host, _S.binary == binary)
    connection.execute(sa.delete(SERVICES).where(*where))
    row = {
        "host": host,
        "binary": binary,
        "disabled": not enabled,
        "disabled_reason": None if enabled else reason,
        "updated_at": now(),
        "frozen": frozen,
    }
    connection.execute(sa.insert(SERVICES).values(row))
