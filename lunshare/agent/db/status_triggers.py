# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Triggers of SQLite that count volumes and attachments by status, for metrics.

They work as those of lunshare.agent.db.quota_triggers do: what a row counts for is a
function of the row, so no statement can forget it, and reading the totals costs the
same however many rows there are.
"""

from __future__ import annotations

import sqlalchemy as sa

#: Kind of a total: its table, the column of its group, the column of its status.
KINDS = {
    "volume": ("volumes", "backend", "status"),
    "attachment": ("volume_attachment", "attach_mode", "attach_status"),
}

_ADD = """\
  INSERT INTO status_totals (kind, place, status, count)
  SELECT '{kind}', coalesce({row}.{place}, ''), {row}.{status}, {sign}1
    WHERE {row}.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
"""


def statements() -> list[str]:
    """Return the statements that create the triggers."""
    return [text for kind in KINDS for text in _triggers(kind)]


def _triggers(kind: str) -> list[str]:
    table, place, status = KINDS[kind]
    columns = ("deleted", place, status)
    before, after = (
        "(" + ", ".join(f"{row}.{column}" for column in columns) + ")"
        for row in ("OLD", "NEW")
    )
    return [
        f"CREATE TRIGGER status_{kind}_added AFTER INSERT ON {table}\n"
        f"BEGIN\n{_count(kind, 'NEW', '')}END",
        f"CREATE TRIGGER status_{kind}_changed"
        f" AFTER UPDATE OF {', '.join(columns)} ON {table}\n"
        f"WHEN {before} IS NOT {after}\n"
        f"BEGIN\n{_count(kind, 'OLD', '-')}{_count(kind, 'NEW', '')}END",
    ]


def _count(kind: str, row: str, sign: str) -> str:
    _, place, status = KINDS[kind]
    return _ADD.format(kind=kind, row=row, place=place, status=status, sign=sign)


def attach(metadata: sa.MetaData) -> None:
    """Create the triggers together with the tables."""
    for text in statements():
        ddl = sa.DDL(text)  # type: ignore[no-untyped-call]
        sa.event.listen(metadata, "after_create", ddl)
