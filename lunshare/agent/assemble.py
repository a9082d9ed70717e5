# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon as one: its parts, connected, started and ended."""

from __future__ import annotations

import contextlib
import threading
import time

from oslo_config import cfg

from lunshare.agent.model.errors import DatabaseFailed
from lunshare.agent.parts import Parts
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.timers import Timer
from lunshare.drivers.base import Root
from lunshare.drivers.helper_client import Helper

#: Seconds for idle threads to end, even if requests used up all the time to stop.
IDLE_SECONDS = 0.5


class Assembly(Parts):
    """The daemon's parts, ready to start."""

    @property
    def loops(self) -> tuple[Timer | Wiper, ...]:
        """What runs until it is stopped."""
        return (*self.timers.values(), self.wiper)

    def start(self, reconcile_again: bool) -> None:
        """Start the timers that do not run. A backend that comes up is reconciled."""
        for loop in self.loops:
            if not loop.alive:
                loop.start()
        for backend in self.backends.values():
            backend.came_up = self.timers["reconcile"].wake
            backend.follow_storage()
        if reconcile_again:
            self.timers["reconcile"].wake()

    def close(self, seconds: float = 60.0, answered: bool = True) -> bool:
        """Stop timers, let work in progress end, close the database.

        ``answered``: whether every request was, so that no client repeats an attach.
        Return whether all of it ended within ``seconds``, or within
        IDLE_SECONDS if that is longer. If not, the caller ends the process.
        """
        until = time.monotonic() + max(seconds, IDLE_SECONDS)
        for loop in self.loops:
            loop.stop(0)
        for loop in self.loops:
            loop.stop(max(0.0, until - time.monotonic()))
        ended = self.jobs.stop(until) and not any(loop.alive for loop in self.loops)
        return ended and self._close_database(until, answered)

    def _close_database(self, until: float, answered: bool) -> bool:
        """Return whether it was closed in time: its disk may hang."""
        closing = threading.Thread(
            target=self._finish_database, args=(answered,), name="database", daemon=True
        )
        closing.start()
        closing.join(max(0.0, until - time.monotonic()))
        return not closing.is_alive()

    def _finish_database(self, answered: bool) -> None:
        if answered:
            self._mark_answers()
        self.database.close()

    def _mark_answers(self) -> None:
        """Note that every answer is sent, so no attach is reused after a restart."""
        with contextlib.suppress(DatabaseFailed):
            for _ in range(2):  # a call marks what was sent before the last call
                self.unanswered.mark_answered()


def assemble(conf: cfg.ConfigOpts, root: Root | None = None) -> Assembly:
    """Open and upgrade the database, and connect all parts.

    ``root``: the client of the root helper, by default of the configured socket.
    No request is sent to it before a driver needs it.

    :raises StartupError: names what is wrong, and what to do.
    """
    return Assembly(conf, root or Helper(conf.helper.socket))
