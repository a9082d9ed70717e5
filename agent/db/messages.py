# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of user messages: what went wrong, for whoever asked for it.

There are never more than ``MOST`` of them, so nothing here needs an index.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.engine import now
from lunshare.agent.db.schema import MESSAGES
from lunshare.agent.records import Message, Page

#: Whoever fails again and again does not fill the disk: the oldest go.
MOST = 1000

_M = MESSAGES.c

#: What a page may be filtered and sorted by.
COLUMNS: paging.Columns = {
    name: _M[name]
    for name in (
        "id",
        "event_id",
        "message_level",
        "resource_type",
        "resource_uuid",
        "request_id",
        "created_at",
    )
}


def insert(connection: sa.Connection, message: Message) -> None:
    """Write a message; what has expired, and the oldest beyond MOST, go."""
    row = {column.name: getattr(message, column.name) for column in MESSAGES.columns}
    connection.execute(sa.insert(MESSAGES).values(row))
    connection.execute(sa.delete(MESSAGES).where(_M.expires_at <= now()))
    newest = sa.select(_M.id).order_by(_M.created_at.desc(), _M.id).limit(MOST)
    connection.execute(sa.delete(MESSAGES).where(_M.id.not_in(newest)))


def get(
    connection: sa.Connection, message_id: str, project_id: str | None
) -> Message | None:
    """One message that has not expired; of any project when that is None."""
    row = connection.execute(_here(project_id).where(_M.id == message_id)).first()
    return None if row is None else _record(row)


def page(connection: sa.Connection, page: Page) -> list[Message]:
    """A page of the messages that have not expired."""
    query = paging.filtered(_here(page.project_id), page.filters, COLUMNS)
    query = paging.behind_marker(connection, query, page, COLUMNS, "message")
    query = paging.ordered(query, page.sort, COLUMNS)
    return [_record(row) for row in connection.execute(query, paging.values(page))]


def delete(connection: sa.Connection, message_id: str) -> None:
    """Remove one."""
    connection.execute(sa.delete(MESSAGES).where(_M.id == message_id))


def _here(project_id: str | None) -> sa.Select[Any]:
    query = sa.select(MESSAGES).where(_M.expires_at > now())
    return query if project_id is None else query.where(_M.project_id == project_id)


def _record(row: Any) -> Message:
    return Message(**row._mapping)
