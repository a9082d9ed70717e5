# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""User messages: why something failed, kept for whoever asked for it."""

from __future__ import annotations

import uuid
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db import messages
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import AgentError, NotFound
from lunshare.agent.records import Message, Page, RequestContext

LOG = log.getLogger(__name__)

#: Cinder's: scheduling a volume's place; no backend is available.
NO_BACKEND = "VOLUME_VOLUME_001_003"

_TEXT_MAX = 1024


class Messages:
    """The messages of this node."""

    def __init__(self, db: Database, ttl: int) -> None:
        """``ttl`` is for how many seconds a message is kept."""
        self._db, self._ttl = db, timedelta(seconds=ttl)

    def record(
        self,
        ctx: RequestContext,
        event_id: str,
        text: str,
        resource_uuid: str | None = None,
    ) -> None:
        """Keep a message; that it cannot be kept is logged, and no other error."""
        moment = now()
        message = Message(
            id=str(uuid.uuid4()),
            project_id=ctx.project_id,
            event_id=event_id,
            user_message=_cut(text),
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
            LOG.error("[%s] MESSAGE lost: %s", ctx.request_id, error)

    def list(self, ctx: RequestContext, page: Page) -> list[Message]:
        """A page of them."""
        with self._db.reading() as connection:
            return messages.page(connection, page)

    def get(self, ctx: RequestContext, message_id: str) -> Message:
        """One message; whoever administers sees those of every project.

        :raises NotFound: there is none, or it has expired.
        """
        project = None if ctx.is_admin else ctx.project_id
        with self._db.reading() as connection:
            found = messages.get(connection, message_id, project)
        if found is None:
            raise NotFound("message", message_id)
        return found

    def delete(self, ctx: RequestContext, message_id: str) -> None:
        """Remove one.

        :raises NotFound: there is none, or it has expired.
        """
        self.get(ctx, message_id)
        with self._db.writing() as connection:
            messages.delete(connection, message_id)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
