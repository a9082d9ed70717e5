# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""User messages: why an operation failed, stored for the project that asked."""

from __future__ import annotations

import uuid
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db import messages
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import AgentError, NotFound
from lunshare.agent.project_records import Message
from lunshare.agent.records import Page, RequestContext

LOG = log.getLogger(__name__)

#: Cinder's id of: schedule allocate volume, no backend is available.
NO_BACKEND = "VOLUME_VOLUME_001_003"

_TEXT_MAX = 1024


class Messages:
    """The messages of this node."""

    def __init__(self, db: Database, ttl: int) -> None:
        """``ttl``: seconds for which a message is stored."""
        self._db, self._ttl = db, timedelta(seconds=ttl)

    def record(
        self,
        ctx: RequestContext,
        event_id: str,
        text: str,
        resource_uuid: str | None = None,
    ) -> None:
        """Store a message. A failure to store it is only logged."""
        moment = now()
        message = Message(
            id=str(uuid.uuid4()),
            project_id=ctx.project_id,
            event_id=event_id,
            user_message=_shorten(text),
            message_level="ERROR",
            resource_type="VOLUME",
            resource_uuid=resource_uuid,
            request_id=ctx.request_id,
            created_at=moment,
            expires_at=moment + self._ttl,
        )
        try:
            with self._db.writing() as connection:
                messages.insert(connection, message)
        except AgentError as error:
            LOG.error("[%s] user message lost: %s", ctx.request_id, error)

    def list(self, ctx: RequestContext, page: Page) -> list[Message]:
        """Return a page of messages."""
        with self._db.reading() as connection:
            return messages.page(connection, page)

    def get(self, ctx: RequestContext, message_id: str) -> Message:
        """Return one message; an administrator sees those of every project.

        :raises NotFound: the message does not exist, or has expired.
        """
        project = None if ctx.is_admin else ctx.project_id
        with self._db.reading() as connection:
            found = messages.get(connection, message_id, project)
        if found is None:
            raise NotFound("message", message_id)
        return found

    def delete(self, ctx: RequestContext, message_id: str) -> None:
        """Delete one message.

        :raises NotFound: the message does not exist, or has expired.
        """
        self.get(ctx, message_id)
        with self._db.writing() as connection:
            messages.delete(connection, message_id)


def _shorten(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
