# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many volumes each backend has by status, and how many attachments each mode."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import METADATA, STATUS_TOTALS
from lunshare.agent.db.status_triggers import KINDS

#: Kind (volume or attachment), backend or mode, status.
Totals = dict[tuple[str, str, str], int]

_ALL = sa.select(STATUS_TOTALS)


def read(connection: sa.Connection) -> Totals:
    """Return the totals, 0 for a status that rows had once.

    It reads a row per backend and status, however many volumes there are.
    """
    if connection.dialect.name != "sqlite":
        return counted(connection)
    return {(row[0], row[1], row[2]): row[3] for row in connection.execute(_ALL)}


def counted(connection: sa.Connection) -> Totals:
    """Count the rows. Its cost grows with them; tests compare it with ``read``."""
    found: Totals = {}
    for kind, (table, place, status) in KINDS.items():
        of = METADATA.tables[table].c
        columns = (sa.func.coalesce(of[place], ""), of[status])
        query = sa.select(*columns, sa.func.count()).where(of.deleted == sa.false())
        for row in connection.execute(query.group_by(*columns)):
            found[kind, row[0], row[1]] = row[2]
    return found
