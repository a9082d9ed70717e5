# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lock for each target, with a deadline, that outlives a caller who gave up.

Closing an access waits in the kernel until writes under way have landed; with
a hung disk that is for ever. The step that waits runs in a thread of its own.
When the deadline passes first, the caller gets its answer, and the thread
keeps the target locked until the kernel lets it go: other targets go on.

Work on bytes moves its deadline with each step, and ends when its client has gone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from lunshare.drivers.errors import DeadlineExceeded, HelperBusy, Stalled
from lunshare.drivers.helper.data.progress import Clock, Report
from lunshare.drivers.helper.thread_limits import THREADS
from lunshare.drivers.helper.twins import Twins

LOG = logging.getLogger(__name__)

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)

# Between two looks at whether there is progress to report.
_REPORT_SECONDS = 0.5


class Locks:
    """The locks of all targets; one exists only while somebody wants it.

    With ``twins`` also against what an earlier helper still does.
    """

    def __init__(self, twins: Twins | None = None) -> None:
        self._twins = twins
        self._mutex = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}

    def hold(
        self,
        name: str,
        seconds: float,
        medium: str = "",
        report: Report | None = None,
    ) -> Hold:
        """A hold on one target, to be entered with ``with``.

        ``medium`` is what it waits for when that hangs, if it is known (bounds).
        With ``report`` the seconds count from the last progress.
        """
        return Hold(self, name, (seconds, report), medium)

    def take(self, name: str, seconds: float) -> int | None:
        """Lock ``name``, or raise DeadlineExceeded after so many seconds.

        Returns the descriptor of the lock that outlives the helper, if there is one.
        """
        until = time.monotonic() + seconds
        with self._mutex:
            lock, users = self._held.get(name) or (threading.Lock(), 0)
            self._held[name] = (lock, users + 1)
        if not lock.acquire(timeout=seconds):
            self._forget(name)
            raise DeadlineExceeded(f"an earlier change of {name}", seconds)
        if self._twins is None:
            return None
        try:
            return self._twins.take(name, max(0.0, until - time.monotonic()))
        except BaseException:
            self.give(name, None)
            raise

    def give(self, name: str, file: int | None) -> None:
        """Unlock ``name``; any thread may."""
        if file is not None:
            os.close(file)
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
        self,
        locks: Locks,
        name: str,
        time_: tuple[float, Report | None],
        medium: str = "",
    ) -> None:
        self._locks, self._name, self._medium = locks, name, medium
        self.seconds, self._report = time_
        self._done, self._steps, self._seen = 0, 0, 0
        self._deadline = time.monotonic() + self.seconds
        self._mutex = threading.Lock()
        self._handed_over = False
        #: The lock that outlives the helper: a command that inherits it keeps it.
        self.file: int | None = None

    def __enter__(self) -> Hold:
        self.file = self._locks.take(self._name, self.seconds)
        if self._report:
            self._step(0)  # it begins now, however long the lock took
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._handed_over:
            self._locks.give(self._name, self.file)

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
        while not waiting.done.wait(min(self.left(), _REPORT_SECONDS)):
            if self._hands_over(waiting, self._is_alone()):
                raise self._over(what)
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

    def clock(self, what: str) -> Clock:
        """To be called after each step, with the bytes that it has done.

        It raises DeadlineExceeded when the time is over, or nobody waits any longer.
        """

        def check(done: int) -> None:
            with self._mutex:
                if self._handed_over or not self.left():
                    raise self._over(what)
                self._step(done)

        return check

    def finished(self, waiting: _Waiting) -> None:
        """Called by the step's thread at its end."""
        THREADS.leave(self._medium)
        with self._mutex:
            waiting.done.set()
            if self._handed_over:
                self._locks.give(self._name, self.file)

    def _step(self, done: int) -> None:
        self._done, self._steps = self._done + done, self._steps + 1
        if self._report:
            self._deadline = time.monotonic() + self.seconds

    def _over(self, what: str) -> DeadlineExceeded:
        if self._report:
            return Stalled(what, self.seconds, self._done)
        return DeadlineExceeded(what, self.seconds)

    def _is_alone(self) -> bool:
        """Report what has been done since the last time; whether nobody listens."""
        if self._report and self._seen != self._steps:
            self._seen = self._steps
            try:
                self._report(self._done)
            except OSError:
                return True
        return False

    def _hands_over(self, waiting: _Waiting, alone: bool) -> bool:
        """Leave the lock to the step's thread, if it is time and that has not ended."""
        with self._mutex:
            over = alone or not self.left()
            self._handed_over = over and not waiting.done.is_set()
        return self._handed_over


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
