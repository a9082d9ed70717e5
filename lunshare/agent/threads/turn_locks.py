# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An event and a lock for threads that take turns.

A lock of threading inside ``waiting()`` wakes a thread when it is free, and again when
there is a turn. These wake a thread once, with its turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from lunshare.agent.threads.worker_turns import Wakeup


class TurnEvent:
    """Something that happens once, for which threads wait without a turn.

    A threading.Event inside ``waiting()`` wakes a thread when it happens, and again
    when there is a turn. This one wakes it once, with its turn.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_set = False
        self._waiting: list[Wakeup] = []

    def wait(self) -> None:
        """Return when it has happened."""
        with self._mutex:
            if self._is_set:
                return
            mine = Wakeup()
            self._waiting.append(mine)
        mine.wait()

    def set(self) -> None:
        """It has happened: wake all threads."""
        with self._mutex:
            self._is_set = True
        for each in self._waiting:
            each.set()


class TurnLock:
    """A lock for which threads wait without a turn.

    Who waited longest is woken first, with a turn, and then takes the lock. Until then
    a thread that runs may take it: if the lock was passed on, that thread would have to
    wait for one that has no turn.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[Wakeup] = deque()

    def acquire(self) -> None:
        """Return when the calling thread has the lock."""
        queue = self._waiting.append
        while (mine := self._take_or(queue)) is not None:
            mine.wait()
            queue = self._waiting.appendleft

    def _take_or(self, queue: Callable[[Wakeup], None]) -> Wakeup | None:
        """Take the lock, or return the wait for it."""
        with self._mutex:
            if not self._held:
                self._held = True
                return None
            mine = Wakeup()
            queue(mine)
            return mine

    def release(self) -> None:
        """Free the lock, and wake the next thread."""
        with self._mutex:
            self._held = False
            following = self._waiting.popleft() if self._waiting else None
        if following is not None:
            following.set()
