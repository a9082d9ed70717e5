# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lock for each target, with a deadline, that outlives a caller who gave up.

Closing an access waits in the kernel until writes under way have landed; with
a hung disk that is for ever. The step that waits runs in a thread of its own.
When the deadline passes first, the caller gets its answer, and the thread
keeps the target locked until the kernel lets it go: other targets go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from drivers.errors import DeadlineExceeded, HelperBusy
from drivers.helper.bounds import THREADS

LOG = logging.getLogger(__name__)

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


class Locks:
    """The locks of all targets; one exists only while somebody wants it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}

    def hold(self, name: str, seconds: float, medium: str = "") -> Hold:
        """A hold on one target, to be entered with ``with``.

        ``medium`` is what it waits for when that hangs, if it is known (bounds).
        """
        return Hold(self, name, seconds, medium)

    def take(self, name: str, seconds: float) -> None:
        """Lock ``name``, or raise DeadlineExceeded after so many seconds."""
        with self._mutex:
            lock, users = self._held.get(name) or (threading.Lock(), 0)
            self._held[name] = (lock, users + 1)
        if not lock.acquire(timeout=seconds):
            self._forget(name)
            raise DeadlineExceeded(f"an earlier change of {name}", seconds)

    def give(self, name: str) -> None:
        """Unlock ``name``; any thread may."""
        lock, _ = self._held[name]
        self._forget(name)
        lock.release()

    def _forget(self, name: str) -> None:
        with self._mutex:
            lock, users = self._held[name]
            if users == 1:
                del self._held[name]
            else:
                self._held[name] = (lock, users - 1)


class Hold:
    """One target, locked, and the time that is left for it."""

    def __init__(
        self, locks: Locks, name: str, seconds: float, medium: str = ""
    ) -> None:
        self._locks, self._name, self.seconds = locks, name, seconds
        self._medium = medium
        self._deadline = time.monotonic() + seconds
        self._mutex = threading.Lock()
        self._handed_over = False

    def __enter__(self) -> Hold:
        self._locks.take(self._name, self.seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._handed_over:
            self._locks.give(self._name)

    def left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self._deadline - time.monotonic())

    def patiently(self, what: str, step: Callable[..., object], *given: Any) -> None:
        """Run a step that may wait in the kernel for as long as the disk hangs.

        :raises DeadlineExceeded: it still waits, and keeps the target locked.
        :raises HelperBusy: too many wait already; nothing was begun.
        """
        waiting = _Waiting(self, step, given)
        self._start(what, waiting)
        if not waiting.done.wait(self.left()):
            with self._mutex:
                self._handed_over = not waiting.done.is_set()
            if self._handed_over:
                raise DeadlineExceeded(what, self.seconds)
        if waiting.error:
            raise waiting.error

    def _start(self, what: str, waiting: _Waiting) -> None:
        THREADS.enter(self._medium, self.left())
        try:
            threading.Thread(target=waiting.run, name=what, daemon=True).start()
        except RuntimeError:  # "can't start new thread": pids or memory are used up
            THREADS.leave(self._medium)
            raise HelperBusy("the system lets it have no further thread") from None

    def until(self, what: str, ready: Callable[[], bool]) -> None:
        """Ask the kernel again and again; it has no event for what we wait for.

        :raises DeadlineExceeded: it is not so in time.
        """
        tries = 0
        while not ready():
            if not self.left():
                raise DeadlineExceeded(what, self.seconds)
            time.sleep(_POLL_SECONDS[min(tries, len(_POLL_SECONDS) - 1)])
            tries += 1

    def clock(self, what: str) -> Callable[[], None]:
        """To be called between steps: it raises DeadlineExceeded when time is over."""

        def check() -> None:
            if not self.left():
                raise DeadlineExceeded(what, self.seconds)

        return check

    def finished(self, waiting: _Waiting) -> None:
        """Called by the step's thread at its end."""
        THREADS.leave(self._medium)
        with self._mutex:
            waiting.done.set()
            if self._handed_over:
                self._locks.give(self._name)


class _Waiting:
    """One step in its own thread."""

    def __init__(
        self, hold: Hold, step: Callable[..., object], given: tuple[Any, ...]
    ) -> None:
        self._hold, self._step, self._given = hold, step, given
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._step(*self._given)
        except Exception as error:
            self.error = error
            LOG.info("%s failed: %s", threading.current_thread().name, error)
        finally:
            self._hold.finished(self)
