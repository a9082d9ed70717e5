# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Reports for a scheduler, sent until they arrive.

Only the newest report of a backend is sent, since the scheduler drops older ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from oslo_log import log

LOG = log.getLogger(__name__)

Report = dict[str, Any]

#: Seconds between two attempts to send.
RETRY_SECONDS = 5.0


class Outbox:
    """The newest report of each host, and which of them are not sent yet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[str, Report] = {}
        self._waiting: dict[str, Report] = {}

    def put(self, report: Report) -> None:
        """Add a report. It replaces an older one that is not sent yet."""
        with self._changed:
            self._newest[report["host"]] = report
            self._waiting[report["host"]] = report
            self._changed.notify()

    def resend(self) -> None:
        """Send the newest report of each host again."""
        with self._changed:
            self._waiting |= self._newest
            self._changed.notify()

    def wait(self) -> Report:
        """Wait for a report to send, and return it."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            return next(iter(self._waiting.values()))

    def remove(self, report: Report) -> None:
        """Remove a report that has arrived, unless a newer one replaced it."""
        with self._changed:
            if self._waiting.get(report["host"]) is report:
                del self._waiting[report["host"]]


class Sender:
    """Sends the reports of the outbox, each until it arrives."""

    def __init__(self, outbox: Outbox, cast: Callable[[Report], None]) -> None:
        self._outbox, self._cast = outbox, cast
        self._lost = False
        self._stopped = threading.Event()

    def run(self) -> None:
        """Send reports until the process ends."""
        while not self._stopped.is_set():
            report = self._outbox.wait()
            try:
                self._cast(report)
            except Exception as error:
                self._failed(error)
                self._stopped.wait(RETRY_SECONDS)
            else:
                self._arrived(report)

    def _failed(self, error: Exception) -> None:
        if not self._lost:
            LOG.error("[reports] LOST the message bus; retrying: %s", error)
        self._lost = True

    def _arrived(self, report: Report) -> None:
        self._outbox.remove(report)
        if self._lost:
            LOG.info("[reports] BACK on the message bus")
        self._lost = False
        LOG.debug("[reports] SENT host=%s", report["host"])
