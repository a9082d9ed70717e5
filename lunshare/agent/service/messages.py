# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""User messages: why an operation failed, stored for the project that asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta

from oslo_log import log

from lunshare.agent.db import messages, snapshots, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.project_records import Message
from lunshare.agent.model.records import Page, RequestContext, Snapshot, Volume

LOG = log.getLogger(__name__)

#: Cinder's id of: schedule allocate volume, no backend is available.
NO_BACKEND = "VOLUME_VOLUME_001_003"

_TEXT_MAX = 1024
_NO_REQUEST = ""  # a job outlives the request that started it
_VOLUME, _SNAPSHOT = "VOLUME", "VOLUME_SNAPSHOT"

#: What failed, by the step that did it: resource, Cinder's number of the action, words.
#: Cinder has no message for actions from 901 on.
FAULTS: Mapping[str, tuple[str, str, str]] = {
    "VolumeDisks.finish_create": (_VOLUME, "008", "its creation"),
    "VolumeDisks.finish_delete": (_VOLUME, "901", "its deletion"),
    "VolumeExtender.finish_extend": (_VOLUME, "007", "its extension"),
    "VolumeReverter.finish_revert": (_VOLUME, "902", "its revert"),
    "VolumeMigrator.finish_migration": (_VOLUME, "903", "its migration"),
    "ManagedDisks.finish_manage": (_VOLUME, "904", "its manage"),
    "ManagedDisks.finish_unmanage": (_VOLUME, "006", "its unmanage"),
    "ManagedSnapshots.finish_manage": (_SNAPSHOT, "905", "its manage"),
    "ManagedSnapshots.finish_unmanage": (_SNAPSHOT, "906", "its unmanage"),
    "Snapshots.finish_create": (_SNAPSHOT, "009", "its creation"),
    "Snapshots.finish_delete": (_SNAPSHOT, "010", "its deletion"),
}


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
        resource_type: str = _VOLUME,
    ) -> None:
        """Store a message. A failure to store it is only logged.

        A client without a project gets none: messages belong to projects.
        """
        if not ctx.project_id:
            return
        message = self._new(ctx, event_id, text, resource_uuid, resource_type)
        try:
            with self._db.writing() as connection:
                messages.insert(connection, message)
        except AgentError as error:
            LOG.error("[%s] user message lost: %s", ctx.request_id, error)

    def record_no_backend(
        self, connection: Connection, ctx: RequestContext, volume_id: str, text: str
    ) -> None:
        """Store in this transaction why no pool can hold a volume."""
        message = self._new(ctx, NO_BACKEND, text, volume_id, _VOLUME)
        messages.insert(connection, message)

    def _new(
        self,
        ctx: RequestContext,
        event_id: str,
        text: str,
        resource_uuid: str | None,
        resource_type: str,
    ) -> Message:
        moment = now()
        return Message(
            id=str(uuid.uuid4()),
            project_id=ctx.project_id,
            event_id=event_id,
            user_message=_shorten(text),
            message_level="ERROR",
            resource_type=resource_type,
            resource_uuid=resource_uuid,
            request_id=ctx.request_id,
            created_at=moment,
            expires_at=moment + self._ttl,
        )

    def record_fault(
        self, step: Callable[[str], None], ident: str, error: BaseException
    ) -> None:
        """Store why a step failed for which no request waited; see FAULTS."""
        fault = FAULTS.get(getattr(step, "__qualname__", ""))
        ctx = None if fault is None else self._owner(fault[0], ident)
        if fault is None or ctx is None:
            return
        kind, action, what = fault
        is_agent_error = isinstance(error, AgentError)
        why = str(error) if is_agent_error else "unexpected; the log has it"
        event = f"VOLUME_{kind}_{action}_001"
        self.record(ctx, event, f"{what} failed: {why}", ident, kind)

    def _owner(self, kind: str, ident: str) -> RequestContext | None:
        """Return the context of the owner of the volume or snapshot, if it exists."""
        row: Snapshot | Volume | None
        try:
            with self._db.reading() as connection:
                if kind == _SNAPSHOT:
                    row = snapshots.get(connection, ident)
                else:
                    row = volumes.get_row(connection, ident)
        except AgentError as error:
            LOG.error("[%s] user message lost: %s", ident, error)
            return None
        if row is None:
            return None
        return RequestContext(row.user_id, row.project_id, False, _NO_REQUEST)

    def list(self, ctx: RequestContext, page: Page) -> PageRows[Message]:
        """Return a page of messages.

        :raises NotFound: the marker of the page does not exist.
        """
        with self._db.reading() as connection:
            return messages.page(connection, page)

    def get(self, ctx: RequestContext, message_id: str) -> Message:
        """Return one message; an administrator sees those of every project.

        :raises NotFound: the message does not exist, or has expired.
        """
        with self._db.reading() as connection:
            return messages.require(connection, message_id, ctx)

    def delete(self, ctx: RequestContext, message_id: str) -> None:
        """Delete one message.

        :raises NotFound: the message does not exist, or has expired.
        """
        with self._db.writing() as connection:
            messages.require(connection, message_id, ctx)
            messages.delete(connection, message_id)


def _shorten(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
