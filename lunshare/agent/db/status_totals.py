# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many volumes each backend has by status, and how many attachments each mode."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import STATUS_TOTALS
from lunshare.agent.db.sqlite.prepared import named

#: Kind (volume or attachment), backend or mode, status.
Totals = dict[tuple[str, str, str], int]

_ALL = sa.select(STATUS_TOTALS)


def read(connection: sa.Connection) -> Totals:
    """Return the totals, 0 for a status that rows had once.

    It reads a row per backend and status, however many volumes there are.
    """
    return {
        (row.kind, row.place, row.status): row.count
        for row in named(connection.execute(_ALL))
    }
