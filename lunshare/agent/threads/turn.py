# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Threads that answer requests, of which one has the turn: it runs.

Where many Python threads can run, each system call hands the interpreter to another
one: 2.0 ms of CPU for a request instead of 0.7 (32 clients that show a volume). So a
thread takes the turn before it works, and gives it back while it waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread, get_ident
from time import monotonic
from typing import Generic

from lunshare.agent.threads.fair_queue import FairQueue, Item

MAX_TURN = 0.1  # seconds; an older turn does not count, so who hangs stops nobody


class Turn:
    """What one thread has at a time; who has waited longest is next."""

    def __init__(self) -> None:
        self._mutex, self._end = Lock(), 0.0
        self._owner: int | None = None
        self._queue: OrderedDict[Lock, int] = OrderedDict()

    def take(self, until: float = float("inf")) -> None:
        """Return when the calling thread has the turn, or at ``until`` (monotonic)."""
        (wakeup := Lock()).acquire()
        with self._mutex:
            self._queue[wakeup] = get_ident()
            self._pass_on()
        while not wakeup.acquire(timeout=min(MAX_TURN, max(0, until - monotonic()))):
            with self._mutex:
                self._pass_on()
                if monotonic() >= until and self._queue.pop(wakeup, 0):
                    return

    def give_back(self) -> bool:
        """Return whether the calling thread had the turn until now."""
        with self._mutex:
            if is_owner := self._owner == get_ident():
                self._owner = None
                self._pass_on()
            return is_owner

    def _pass_on(self) -> None:
        if self._queue and (self._owner is None or monotonic() > self._end):
            wakeup, self._owner = self._queue.popitem(last=False)
            self._end = monotonic() + MAX_TURN
            wakeup.release()


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
    """Threads that work on the items of a queue, each with the turn.

    An owner's items are done in their order, and those of several by turns.
    """

    def __init__(self, name: str, threads: int, work: Callable[[Item], None]) -> None:
        """Start them. ``work`` must not raise."""
        self._work, self._door = work, Lock()
        self._items: FairQueue[Item] = FairQueue()
        names = [f"{name} {number}" for number in range(threads)]
        self._threads = [Thread(None, self._run, name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def put(self, item: Item, owner: object = None) -> None:
        """Add an item of an owner."""
        self._items.put(owner, item)

    def stop(self, until: float) -> bool:
        """Finish all items; return whether that was done by ``until`` (monotonic)."""
        for _ in self._threads:
            self._items.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while True:
            with self._door:  # one idle thread waits for an item, then for its turn
                if (item := self._items.get()) is None:
                    return
                _TURN.take()
            self._work(item)
            _TURN.give_back()
