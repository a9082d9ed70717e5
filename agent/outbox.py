# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is still to be told to a scheduler, and telling it until it has arrived.

Only the newest report of a backend is ever sent: the scheduler drops older ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from oslo_log import log

LOG = log.getLogger(__name__)

Report = dict[str, Any]

#: Seconds until what could not be sent is tried again.
AGAIN = 5.0


class Outbox:
    """The newest report of each host, and which of them are still to be sent."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[str, Report] = {}
        self._waiting: dict[str, Report] = {}

    def put(self, report: Report) -> None:
        """A newer report takes the place of one that is not sent yet."""
        with self._changed:
            self._newest[report["host"]] = report
            self._waiting[report["host"]] = report
            self._changed.notify()

    def again(self) -> None:
        """Send the newest of each host once more."""
        with self._changed:
            self._waiting |= self._newest
            self._changed.notify()

    def first(self) -> Report:
        """One that is to be sent, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            return next(iter(self._waiting.values()))

    def sent(self, report: Report) -> None:
        """It has arrived, unless a newer one came meanwhile."""
        with self._changed:
            if self._waiting.get(report["host"]) is report:
                del self._waiting[report["host"]]


class Sender:
    """Sends what is in the outbox, again and again until it has arrived."""

    def __init__(self, outbox: Outbox, cast: Callable[[Report], None]) -> None:
        self._outbox, self._cast = outbox, cast
        self._lost = False
        self._stopped = threading.Event()

    def run(self) -> None:
        """Never returns."""
        while not self._stopped.is_set():
            report = self._outbox.first()
            try:
                self._cast(report)
            except Exception as error:
                self._failed(error)
                self._stopped.wait(AGAIN)
            else:
                self._arrived(report)

    def _failed(self, error: Exception) -> None:
        if not self._lost:
            LOG.error("[reports] LOST the message bus; trying on: %s", error)
        self._lost = True

    def _arrived(self, report: Report) -> None:
        self._outbox.sent(report)
        if self._lost:
            LOG.info("[reports] BACK on the message bus")
        self._lost = False
        LOG.debug("[reports] SENT host=%s", report["host"])
