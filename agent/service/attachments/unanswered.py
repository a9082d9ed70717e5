# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which attachments somebody has asked for and may not have learned of.

A client whose request was cut off by the daemon's death asks again, in the same
words. What the life before had made for it is then given to it, instead of a
second one, or of a 400 where a volume takes one host only.
"""

from __future__ import annotations

import threading
from typing import Any

from lunshare.agent.db import attachments
from lunshare.agent.db.engine import Database
from lunshare.agent.records import Attachment, NewAttachment
from lunshare.agent.service.attachments import connectors
from lunshare.agent.states import AttachStatus

#: Seconds between two calls of ``mark_answered``: time for an answer to arrive.
MOMENT = 1.0


class UnansweredRequests:
    """Remembers in the rows which creations have been answered."""

    def __init__(self, db: Database) -> None:
        self._db, self._mutex = db, threading.Lock()
        self._ours: set[str] = set()
        self._new: list[str] = []
        self._old: list[str] = []

    def add(self, row: Attachment) -> None:
        """This life is about to make it, and will answer."""
        with self._mutex:
            self._ours.add(row.id)

    def answer_sent(self, row: Attachment) -> None:
        """Its answer is on its way."""
        with self._mutex:
            self._new.append(row.id)

    def discard(self, row: Attachment) -> None:
        """There was another answer, and no attachment."""
        with self._mutex:
            self._ours.discard(row.id)

    def find_duplicate(self, connection: Any, new: NewAttachment) -> Attachment | None:
        """What an earlier life made of the same request and did not answer."""
        found = attachments.unanswered(connection, new.volume_id)
        with self._mutex:
            theirs = [row for row in found if row.id not in self._ours]
        return next((row for row in theirs if _is_of(row, new)), None)

    def mark_answered(self) -> None:
        """Note what was sent a moment ago."""
        with self._mutex:
            due, self._old, self._new = self._old, self._new, []
        if not due:
            return
        with self._db.writing() as connection:
            attachments.note_answered(connection, due)
        with self._mutex:
            self._ours.difference_update(due)


def _is_of(row: Attachment, new: NewAttachment) -> bool:
    """Whether the row is what this request makes, and nobody has gone on with it."""
    if row.instance_uuid != new.instance_uuid:
        return False
    if new.connector is None:
        return row.status is AttachStatus.RESERVED and row.mode == new.mode
    host = connectors.checked(new.connector)
    asked = connectors.resolved_mode(Attachment("", "", row.status, new.mode), host)
    return (
        row.status is AttachStatus.ATTACHING
        and row.connector == dict(host.connector)
        and row.mode == asked
    )
