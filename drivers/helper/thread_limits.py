# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many threads may wait in the kernel at once: in all, and for one thing.

What hangs keeps its thread until the kernel lets it go. One share, or one volume group,
that hangs takes no more of them than its part, so that the others go on.
"""

from __future__ import annotations

import threading
from collections import Counter

from lunshare.drivers.errors import HelperBusy

#: In all, and for one medium: a share, a volume group. Twice what has a connection.
MAX_WAITING, MAX_EACH = 256, 64


class Bound:
    """Counts them. A free one is waited for."""

    def __init__(self, most: int = MAX_WAITING, each: int = MAX_EACH) -> None:
        self._most, self._each = most, each
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()

    def enter(self, medium: str, seconds: float) -> None:
        """Count one more for ``medium``; an empty name is none in particular.

        :raises HelperBusy: so many are still there after so many seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._free(medium), seconds):
                raise HelperBusy(self._why(medium))
            self._waiting[medium] += 1

    def leave(self, medium: str) -> None:
        """One has come back."""
        with self._changed:
            self._waiting[medium] -= 1
            if not self._waiting[medium]:
                del self._waiting[medium]
            self._changed.notify_all()

    def _free(self, medium: str) -> bool:
        each = self._waiting[medium] < self._each or not medium
        return each and self._waiting.total() < self._most

    def _why(self, medium: str) -> str:
        if self._waiting.total() >= self._most:
            return f"{self._most} requests wait in the kernel"
        return f"{self._each} requests wait for {medium}"


#: This process's: threads are counted where they are made (locks.Hold.patiently).
THREADS = Bound()
