# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many threads may wait in the kernel at once: in total, and for one medium.

A step that hangs occupies its thread until the kernel returns. A share or a volume
group that hangs occupies only its part of the threads, so that the others continue.

It is no ``lunshare.agent.threads.limit``: root imports nothing of the daemon, and one
thread counts twice here, in total and for its medium. Nothing here counts as hanging: a
caller's deadline says how long it waits.
"""

from __future__ import annotations

import threading
from collections import Counter

from lunshare.drivers.errors import HelperBusy

#: In total, which is twice the number of connections; and for one medium, which is a
#: share or a volume group.
MAX_WAITING, MAX_EACH = 256, 64


class ThreadLimit:
    """Counts threads. A caller waits until one is free."""

    def __init__(self, most: int = MAX_WAITING, each: int = MAX_EACH) -> None:
        self._most, self._each = most, each
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()

    def enter(self, medium: str, seconds: float) -> None:
        """Count one more thread for ``medium``; empty when the medium is unknown.

        :raises HelperBusy: the limit is still reached after so many seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(medium), seconds):
                raise HelperBusy(self._why(medium))
            self._waiting[medium] += 1

    def leave(self, medium: str) -> None:
        """Count one thread less."""
        with self._changed:
            self._waiting[medium] -= 1
            if not self._waiting[medium]:
                del self._waiting[medium]
            self._changed.notify_all()

    def _has_room(self, medium: str) -> bool:
        fits = self._waiting[medium] < self._each or not medium
        return fits and self._waiting.total() < self._most

    def _why(self, medium: str) -> str:
        if self._waiting.total() >= self._most:
            return f"{self._most} requests wait in the kernel"
        return f"{self._each} requests wait for {medium}"


#: The limit of this process. named_locks.TimedLock.run_step counts the threads.
THREADS = ThreadLimit()
