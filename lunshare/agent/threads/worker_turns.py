# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Threads that answer requests, of which few run at once.

Python runs one thread at a time. Where many are ready to run, each system call
hands the interpreter to another of them, on another processor: 2.0 ms of CPU for
a request instead of 0.7 (32 clients that show a volume, 2 cores, Linux 6.18,
Python 3.11). So a thread gets a turn before it works. It gives the turn back while
it waits (``waiting``): for storage, a lock, a disk. A thread that stops waiting gets
the next free turn, so that requests that have not started do not delay a thread that
has a lock or a transaction. A commit, and the reading of connections, serve many
requests at once: they wait until nothing else can run (``let_others_run``).

A turn is for speed only. One that is older than MAX_TURN does not count any more: a
thread that hangs does not stop the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Seconds after which a turn does not count any more.
MAX_TURN = 0.1
_PARKED = 1.0


class _Thread:
    """A thread of the pool, with the lock that wakes it.

    ``parked``: it waits for ``TurnQueue.unpark``; ``unparked``: that came before.
    """

    __slots__ = ("ident", "item", "parked", "unparked", "wake")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.item: object = None
        self.parked = self.unparked = False
        self.wake = threading.Lock()
        self.wake.acquire()


class TurnQueue(Generic[Item]):
    """A queue of work items, and the turns of the threads that work on them."""

    def __init__(self, at_once: int) -> None:
        """Threads that can run get free turns in this order.

        Those of ``_back`` have stopped waiting, those of ``_idle`` have no item, those
        of ``_last`` let others run. ``_running``: since when threads have their turn.
        """
        self._at_once = at_once
        self._mutex = threading.Lock()
        self._items: deque[Item | None] = deque()
        self._idle: list[_Thread] = []
        self._back: deque[_Thread] = deque()
        self._last: deque[_Thread] = deque()
        self._running: dict[int, float] = {}

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def put(self, item: Item | None) -> None:
        """Add an item for one of the threads. None ends the thread that gets it."""
        with self._mutex:
            self._items.append(item)
            self._start_items()

    def get(self) -> Item | None:
        """Return the next item for the calling thread, which is done with its last."""
        me = _current_thread(self)
        with self._mutex:
            self._running.pop(me.ident, None)
            self._resume_waiting()
            if self._items and self._free():
                self._running[me.ident] = time.monotonic()
                return self._items.popleft()
            self._idle.append(me)
            self._resume_last()
        me.wake.acquire()
        return me.item  # type: ignore[return-value]

    def give_back(self) -> None:
        """Give the calling thread's turn back: it waits, and another one may run."""
        with self._mutex:
            if self._running.pop(threading.get_ident(), None) is not None:
                self._give_turns()

    def let_others_run(self, seconds: float) -> None:
        """Return with a turn when no other thread and no item can run any more.

        Or after so many seconds, whatever runs.
        """
        me = _current_thread(self)
        with self._mutex:
            self._running.pop(me.ident, None)
            self._last.append(me)
            self._give_turns()
        if not me.wake.acquire(timeout=seconds):
            self._run_without_turn(me, self._last)

    def let_queued_run(self, seconds: float) -> bool:
        """Give the turn back. If others have to wait for one, let them run before.

        Return whether it was so: then the calling thread has a turn again.
        """
        self.give_back()
        with self._mutex:
            is_queue = bool(self._items or self._back) and not self._free()
        if is_queue:
            self.let_others_run(seconds)
        return is_queue

    def take_again(self) -> None:
        """Wait for a turn after ``give_back``, for up to MAX_TURN seconds."""
        me = _current_thread(self)
        with self._mutex:
            if self._free():
                self._running[me.ident] = time.monotonic()
                return
            self._back.append(me)
        if not me.wake.acquire(timeout=MAX_TURN):
            self._run_without_turn(me, self._back)

    def park(self, me: _Thread) -> None:
        """Wait for ``unpark`` without a turn; return with one.

        Where a thread that has a turn hangs, ``drop_late`` frees it. The listener calls
        that all the time, but ends before the last requests do.
        """
        with self._mutex:
            if me.unparked:
                me.unparked = False
                return
            me.parked = True
            self._running.pop(me.ident, None)
            self._give_turns()
        while not me.wake.acquire(timeout=_PARKED):
            self.drop_late()

    def unpark(self, thread: _Thread) -> None:
        """End the wait of a thread: it gets the next free turn."""
        with self._mutex:
            if not thread.parked:
                thread.unparked = True
                return
            thread.parked = False
            self._back.append(thread)
            self._resume_waiting()

    def drop_late(self) -> None:
        """Stop counting turns that are older than MAX_TURN."""
        late = time.monotonic() - MAX_TURN
        with self._mutex:
            for ident, since in list(self._running.items()):
                if since < late:
                    del self._running[ident]
            self._give_turns()

    def _run_without_turn(self, me: _Thread, queue: deque[_Thread]) -> None:
        """Run although no thread has given its turn back."""
        with self._mutex:
            if me in queue:
                queue.remove(me)
                self._running[me.ident] = time.monotonic()
                return
        me.wake.acquire()  # a turn was given just now

    def _free(self) -> bool:
        return len(self._running) < self._at_once

    def _give_turns(self) -> None:
        """Give free turns to whoever is next."""
        self._resume_waiting()
        self._start_items()
        self._resume_last()

    def _resume_waiting(self) -> None:
        """Give free turns to threads that have stopped waiting."""
        while self._back and self._free():
            thread = self._back.popleft()
            self._running[thread.ident] = time.monotonic()
            thread.wake.release()

    def _start_items(self) -> None:
        """Give waiting items to idle threads, the last idle one first."""
        while self._items and self._idle and self._free() and not self._back:
            thread = self._idle.pop()
            thread.item = self._items.popleft()
            self._running[thread.ident] = time.monotonic()
            thread.wake.release()

    def _resume_last(self) -> None:
        """Give free turns to threads that let others run, if there are no others."""
        while self._last and self._free() and not self._back:
            thread = self._last.popleft()
            self._running[thread.ident] = time.monotonic()
            thread.wake.release()


class _Mine(threading.local):
    """The state of the calling thread, if it is of a pool."""

    thread: _Thread | None = None
    turns: TurnQueue[object] | None = None


_MINE = _Mine()


def _current_thread(turns: TurnQueue[Item]) -> _Thread:
    if _MINE.thread is None:
        _MINE.thread, _MINE.turns = _Thread(), turns  # type: ignore[assignment]
    return _MINE.thread


class Wakeup:
    """One wait of the thread that creates it, which another thread ends with ``set``.

    Each of both is called once, in any order.
    """

    __slots__ = ("_thread", "_turns")

    def __init__(self) -> None:
        self._thread, self._turns = _MINE.thread or _Thread(), _MINE.turns

    def wait(self) -> None:
        """Wait without a turn; return with one, if the thread has turns."""
        if self._turns is None:
            self._thread.wake.acquire()
        else:
            self._turns.park(self._thread)

    def set(self) -> None:
        """End the wait."""
        if self._turns is None:
            self._thread.wake.release()
        else:
            self._turns.unpark(self._thread)


class _Waiting:
    """``with waiting():`` around a wait. Does nothing in a thread without turns."""

    def __enter__(self) -> None:
        if _MINE.turns is not None:
            _MINE.turns.give_back()

    def __exit__(self, *error: object) -> None:
        if _MINE.turns is not None:
            _MINE.turns.take_again()


_WAITING = _Waiting()


def let_others_run(seconds: float) -> None:
    """See TurnQueue.let_others_run. Does nothing in a thread without turns."""
    if _MINE.turns is not None:
        _MINE.turns.let_others_run(seconds)


def waiting() -> _Waiting:
    """Return a context in which the calling thread waits, and needs no turn."""
    return _WAITING


class Workers(Generic[Item]):
    """Threads that work on the items of a queue, each on one at a time."""

    def __init__(
        self, name: str, threads: int, at_once: int, work: Callable[[Item], None]
    ) -> None:
        """``work`` must not raise."""
        self.turns: TurnQueue[Item] = TurnQueue(at_once)
        self._work = work
        self._threads = [
            threading.Thread(target=self._run, name=f"{name} {number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, until: float) -> bool:
        """Finish waiting and running items; return whether all ended in time.

        ``until`` is a value of time.monotonic().
        """
        for _ in self._threads:
            self.turns.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (item := self.turns.get()) is not None:
            self._work(item)
        self.turns.give_back()
