# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Threads that answer requests, of which one has the turn: it runs.

Python runs one thread at a time. Where many can run, each system call hands the
interpreter to another one: 2.0 ms of CPU for a request instead of 0.7 (32 clients that
show a volume, 2 cores, Python 3.11). So a thread takes the turn before it works, and
gives it back while it waits. The turn is for speed only: one that is older than
MAX_TURN does not count, so a thread that hangs stops nobody.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Generic, TypeVar

Item = TypeVar("Item")
MAX_TURN = 0.1  # seconds after which a turn does not count any more


class Turn:
    """What one thread has at a time; who has waited longest is next."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._owner: int | None = None
        self._since = 0.0
        self._queue: deque[tuple[int, Lock]] = deque()

    def take(self, until: float = math.inf) -> None:
        """Return when the calling thread has the turn, or at ``until`` (monotonic)."""
        wakeup = Lock()
        wakeup.acquire()
        place = (get_ident(), wakeup)
        with self._mutex:
            self._queue.append(place)
            self._pass_on()
        while not wakeup.acquire(timeout=_wait_seconds(until)):
            with self._mutex:
                self._pass_on()
                if time.monotonic() >= until and place in self._queue:
                    self._queue.remove(place)
                    return

    def give_back(self) -> bool:
        """Return whether the calling thread had the turn until now."""
        with self._mutex:
            if is_owner := self._owner == get_ident():
                self._owner = None
                self._pass_on()
            return is_owner

    def _pass_on(self) -> None:
        is_late = time.monotonic() - self._since > MAX_TURN
        if self._queue and (self._owner is None or is_late):
            self._owner, wakeup = self._queue.popleft()
            self._since = time.monotonic()
            wakeup.release()


def _wait_seconds(until: float) -> float:
    return min(MAX_TURN, max(0.0, until - time.monotonic()))


_TURN = Turn()


@contextmanager
def waiting() -> Iterator[None]:
    """Wait for something in the block, while another thread has the turn."""
    is_owner = _TURN.give_back()
    try:
        yield
    finally:
        if is_owner:
            _TURN.take()


def let_others_run(until: float) -> None:
    """Let those run that wait for the turn; return when they have, or at ``until``."""
    if _TURN.give_back():
        _TURN.take(until)


class Workers(Generic[Item]):
    """Threads that work on the items of a queue, each with the turn."""

    def __init__(self, name: str, threads: int, work: Callable[[Item], None]) -> None:
        """Start them. ``work`` must not raise."""
        self._work, self._door = work, Lock()
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        names = [f"{name} {number}" for number in range(threads)]
        self._threads = [Thread(None, self._run, name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def put(self, item: Item | None) -> None:
        """Add an item; None ends the thread that gets it."""
        self._items.put(item)

    def stop(self, until: float) -> bool:
        """Finish all items; return whether that was done by ``until`` (monotonic)."""
        for _ in self._threads:
            self.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (item := self._next_item()) is not None:
            self._work(item)
            _TURN.give_back()

    def _next_item(self) -> Item | None:
        """Behind the door, one idle thread waits for an item and for its turn."""
        with self._door:
            if (item := self._items.get()) is not None:
                _TURN.take()
            return item
