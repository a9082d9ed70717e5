# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which attachments were created for a client that may not have got the answer.

When the daemon is killed before it answers a create, the client retries the same
request. It then gets the attachment of the first request, instead of a second one,
or of a 400 where a volume takes one host only.
"""

from __future__ import annotations

import threading

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.records import (
    Attachment,
    NewAttachment,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import AttachStatus
from lunshare.agent.service.attachments import wanted_state

#: Seconds between two calls of ``mark_answered``: time for an answer to arrive.
ANSWER_SECONDS = 1.0


class UnansweredRequests:
    """Remembers in the rows which creates were answered."""

    def __init__(self, db: Database) -> None:
        self._db, self._mutex = db, threading.Lock()
        self._created_here: set[str] = set()
        self._new: list[str] = []
        self._old: list[str] = []

    def add(self, row: Attachment) -> None:
        """Note that this process creates it, and will answer."""
        with self._mutex:
            self._created_here.add(row.id)

    def answer_sent(self, row: Attachment) -> None:
        """Note that its answer is sent."""
        with self._mutex:
            self._new.append(row.id)

    def forget(self, row: Attachment) -> None:
        """Note that the answer was an error, and there is no attachment."""
        with self._mutex:
            self._created_here.discard(row.id)

    def find_duplicate(
        self, connection: Connection, ctx: RequestContext, new: NewAttachment
    ) -> Attachment | None:
        """Return what an earlier process created for this user and did not answer."""
        rows = attachments.unanswered(connection, new.volume_id)
        with self._mutex:
            earlier = [row for row in rows if row.id not in self._created_here]
        if not earlier:
            return None
        volume = volumes.get_row(connection, new.volume_id)
        if volume is None:
            return None
        for row in earlier:
            if _is_duplicate(row, ctx.user_id, volume, new):
                return row
        return None

    def mark_answered(self) -> None:
        """Mark in their rows those whose answer was sent before the last call.

        One thread calls this. What cannot be written is marked by a later call.
        """
        due = self._old
        if due:
            with self._db.writing() as connection:
                attachments.mark_answered(connection, due)
        with self._mutex:
            self._created_here.difference_update(due)
            self._old, self._new = self._new, []


def _is_duplicate(
    row: Attachment, user_id: str, volume: Volume, new: NewAttachment
) -> bool:
    """Whether the row is what this request creates, and no client has changed it."""
    request = (user_id, new.instance_uuid, new.legacy)
    if (row.user_id, row.instance_uuid, row.legacy) != request:
        return False
    if new.connector is None:
        reserved = AttachStatus.ATTACHING if new.legacy else AttachStatus.RESERVED
        unused = row.status is reserved and row.initiator is None
        return unused and row.mode == wanted_state.choose_mode(volume, new.mode)
    return (
        row.status is AttachStatus.ATTACHING
        and row.connector == new.connector.sent
        and row.mode
        == wanted_state.choose_open_mode(volume, new.mode, new.connector.mode)
    )
