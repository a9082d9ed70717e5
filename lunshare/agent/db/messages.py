# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of user messages: why a request failed, for its client.

There are at most ``MAX_MESSAGES`` of them, so no index is needed. A project has at most
``MAX_OF_PROJECT``, so one whose creates fail does not push out those of the others.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import MESSAGES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.errors import existing
from lunshare.agent.model.page_rows import PageRows, fill, json_bytes
from lunshare.agent.model.project_records import Message
from lunshare.agent.model.records import Page, RequestContext

#: Of more messages the oldest are deleted, so that they cannot fill the disk.
MAX_MESSAGES, MAX_OF_PROJECT = 1000, 200

_M = MESSAGES.c
_FIELDS = RecordColumns(Message, MESSAGES)
_INSERT = _FIELDS.insertion()

#: Columns by which a page may be filtered and sorted.
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
    """Insert a message; delete expired ones, and the oldest beyond the two limits."""
    _INSERT.write(connection, _FIELDS.values(message))
    connection.execute(sa.delete(MESSAGES).where(_M.expires_at <= now()))
    own = _M.project_id == message.project_id
    for most, *where in ((MAX_OF_PROJECT, own), (MAX_MESSAGES,)):
        newest = sa.select(_M.id).where(*where).order_by(_M.created_at.desc(), _M.id)
        old = _M.id.not_in(newest.limit(most))
        connection.execute(sa.delete(MESSAGES).where(*where, old))


def require(connection: sa.Connection, message_id: str, ctx: RequestContext) -> Message:
    """Return a message for a client.

    :raises NotFound: it does not exist, has expired, or is another project's.
    """
    query = _here(ctx.only_project).where(_M.id == message_id)
    row = connection.execute(query).first()
    return _FIELDS.record(existing(row, "message", message_id))


def page(connection: sa.Connection, page: Page) -> PageRows[Message]:
    """Return a page of messages that have not expired.

    :raises NotFound: the marker does not exist.
    """
    query = paging.filtered(_here(page.project_id), page.filters, COLUMNS)
    own = _M.project_id == paging.PROJECT
    query = paging.after_marker(connection, query, page, COLUMNS, "message", own)
    query = paging.ordered(query, page.sort, COLUMNS)
    rows = _FIELDS.iterate(connection.execute(query, paging.values(page)))
    return fill(rows, page.limit, lambda row: json_bytes(row.user_message))


def delete(connection: sa.Connection, message_id: str) -> None:
    """Delete a message."""
    connection.execute(sa.delete(MESSAGES).where(_M.id == message_id))


def _here(project_id: str | None) -> sa.Select[Any]:
    query = sa.select(*_FIELDS.labels).where(_M.expires_at > now())
    return query if project_id is None else query.where(_M.project_id == project_id)
