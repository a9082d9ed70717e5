# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many threads a thing may have at once, and when its work counts as hanging.

One rule for whatever a request waits for: a backend, a volume, Keystone, Nova, policy
servers, the computing of passwords. A request waits until the oldest running work is
HANGING_SECONDS old. Then it counts as hanging, and waiting would hold threads that
other requests need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lunshare.agent import request_scope
from lunshare.agent.threads.turn import waiting

#: Seconds after which running work counts as hanging.
HANGING_SECONDS = 3.0


def share_of(threads: int) -> int:
    """Return how many of the threads one thing that hangs may hold."""
    return int(max(2, threads // 3))


def patience() -> float:
    """Return how many seconds this thread's request may still wait.

    Else requests that wait for one thing would hold all threads: 60 clients with wrong
    passwords delayed others for 6 s.
    """
    return HANGING_SECONDS - request_scope.age()


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """Work that runs: what it is, and since when, of time.monotonic()."""

    purpose: str
    since: float


class Limit:
    """At most so many holders at once."""

    def __init__(self, most: int, hanging_after: float = HANGING_SECONDS) -> None:
        """``hanging_after``: seconds after which a holder counts as hanging."""
        self._most, self._hanging_after = most, hanging_after
        self._holders: list[Holder] = []
        self._changed = threading.Condition()

    @contextmanager
    def place(self, seconds: float, purpose: str = "") -> Iterator[Holder | None]:
        """Be a holder in the block; None if there was no place, see ``acquire``."""
        holder = self.acquire(seconds, purpose)
        try:
            yield holder
        finally:
            if holder is not None:
                self.release(holder)

    def acquire(
        self, seconds: float, purpose: str = "", *, although_hanging: bool = False
    ) -> Holder | None:
        """Wait for a place for up to so many seconds, and while no holder hangs.

        ``although_hanging``: wait for holders that hang too.
        """
        until = time.monotonic() + seconds
        with self._changed:
            if len(self._holders) < self._most:
                return self._added(purpose)
        with waiting(), self._changed:
            while len(self._holders) >= self._most:
                end = until if although_hanging else min(until, self._hanging_at())
                if end <= time.monotonic():
                    return None
                self._changed.wait(end - time.monotonic())
            return self._added(purpose)

    def release(self, holder: Holder) -> None:
        """Let another thread begin. Any thread may call it."""
        with self._changed:
            self._holders.remove(holder)
            self._changed.notify()

    @property
    def holders(self) -> list[Holder]:
        """Return the work that runs now, the oldest first."""
        with self._changed:
            return list(self._holders)

    @property
    def oldest_seconds(self) -> float:
        """Return for how long the oldest work has been running, 0 without any."""
        holders = self.holders
        return time.monotonic() - holders[0].since if holders else 0.0

    def _added(self, purpose: str) -> Holder:
        holder = Holder(purpose, time.monotonic())
        self._holders.append(holder)
        return holder

    def _hanging_at(self) -> float:
        return self._holders[0].since + self._hanging_after
