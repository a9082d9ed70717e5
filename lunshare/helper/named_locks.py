# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Locks by name, with a deadline. A lock stays held while a step hangs in the kernel.

Closing an access waits in the kernel until the writes in progress have landed. On a
hung disk this never ends. So a step that may hang runs in a thread of its own. When
the deadline passes first, the caller gets DeadlineExceeded, and the thread holds the
lock until the kernel returns. Other names are not delayed.

For work on bytes the deadline is extended with each step. It ends when its client has
disconnected. No other work starts when its client has disconnected while it waited for
the lock: locks are not given in the order of the requests, and a later one, of the next
daemon, may be done already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from lunshare.drivers import request_ids
from lunshare.drivers.errors import DeadlineExceeded, HelperBusy, Stalled
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.thread_limits import THREADS
from lunshare.helper.verbs import IsGone, NoteProgress, Report, never_gone

LOG = logging.getLogger(__name__)

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)

# How often progress is reported.
_REPORT_SECONDS = 0.5


class Locks:
    """The locks of one kind of name; a lock exists only while it is wanted.

    With ``disk_locks`` a lock also excludes what an earlier helper process still does.
    """

    def __init__(self, disk_locks: DiskLocks | None = None) -> None:
        self._disk_locks = disk_locks
        self._mutex = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}

    def hold(
        self,
        name: str,
        seconds: float,
        medium: str = "",
        report: Report | None = None,
        what: str = "",
        *,
        is_gone: IsGone = never_gone,
    ) -> TimedLock:
        """Return a TimedLock of ``name``; ``with`` acquires and releases it.

        ``medium`` is the share or volume group that a step may wait for, if it is
        known (thread_limits). With ``report`` the seconds count from the last progress.
        ``what`` is the work, for the log of the next helper process. ``with`` raises
        DeadlineExceeded when the client is gone, after it has acquired the lock.
        """
        return TimedLock(
            self,
            name,
            what=what,
            seconds=seconds,
            medium=medium,
            report=report,
            is_gone=is_gone,
        )

    def wait(self, name: str, seconds: float) -> None:
        """Return once ``name`` is not locked.

        :raises DeadlineExceeded: it still is after so many seconds.
        """
        with self.hold(name, seconds):
            pass

    def acquire(self, name: str, seconds: float, what: str = "") -> int | None:
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
        if self._disk_locks is None:
            return None
        try:
            seconds_left = max(0.0, until - time.monotonic())
            return self._disk_locks.acquire(name, seconds_left, what)
        except BaseException:
            self.release(name, None)
            raise

    def release(self, name: str, file: int | None) -> None:
        """Unlock ``name``; any thread may."""
        try:
            if self._disk_locks and file is not None:
                self._disk_locks.release(name, file)
        finally:
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


class TimedLock:
    """One name, locked, and the time that is left for the work on it."""

    _done = _steps = _seen = 0
    #: The step that holds the lock after the deadline.
    _heir: _StepThread | None = None
    #: The lock that outlives the helper: a command that inherits it keeps it.
    file: int | None = None

    def __init__(
        self,
        locks: Locks,
        name: str,
        *,
        what: str,
        seconds: float,
        medium: str,
        report: Report | None,
        is_gone: IsGone,
    ) -> None:
        self._locks, self._medium, self._is_gone = locks, medium, is_gone
        self._name, self._what = name, what
        self.seconds, self._report = seconds, report
        self._deadline = time.monotonic() + self.seconds
        self._mutex = threading.Lock()

    def __enter__(self) -> TimedLock:
        self.file = self._locks.acquire(self._name, self.seconds, self._what)
        if self._report:
            self._step(0)  # the deadline counts from now, not from before the lock
        self._need_client()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._heir is None:
            self._locks.release(self._name, self.file)

    def left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self._deadline - time.monotonic())

    def run_step(self, what: str, step: Callable[..., object], *given: Any) -> None:
        """Run a step that may wait in the kernel for as long as the disk hangs.

        :raises DeadlineExceeded: it still waits, and its thread holds the lock.
        :raises HelperBusy: too many steps wait already; this one was not started.
        """
        waiting = _StepThread(self, step, given)
        self._start(what, waiting)
        while not waiting.done.wait(min(self.left(), _REPORT_SECONDS)):
            if self._hand_over(waiting, self._client_is_gone()):
                raise self._over(what)
        if waiting.error:
            raise waiting.error

    def try_step(
        self, what: str, seconds: float, step: Callable[..., object], *given: Any
    ) -> bool:
        """Run a step that may never end, and for which no later change waits.

        Return whether it has ended in so many seconds. If not, its thread waits on; it
        does not hold the lock, and does not count any more.

        :raises HelperBusy: too many steps wait already; this one was not started.
        """
        waiting = _StepThread(self, step, given)
        self._start(what, waiting)
        waiting.done.wait(seconds)
        with self._mutex:
            waiting.given_up = not waiting.done.is_set()
        if waiting.given_up:
            THREADS.leave(self._medium)
        elif waiting.error:
            raise waiting.error
        return not waiting.given_up

    def _start(self, what: str, waiting: _StepThread) -> None:
        THREADS.enter(self._medium, self.left())
        try:
            work = request_ids.inherited(waiting.run)
            threading.Thread(target=work, name=what, daemon=True).start()
        except RuntimeError:  # "can't start new thread": pids or memory are used up
            THREADS.leave(self._medium)
            raise HelperBusy("the system refuses it a further thread") from None

    def wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        """Poll ``ready`` until it is true: the kernel has no event for this.

        :raises DeadlineExceeded: it is not true in time.
        """
        tries = 0
        while not ready():
            if not self.left():
                raise DeadlineExceeded(what, self.seconds)
            time.sleep(_POLL_SECONDS[min(tries, len(_POLL_SECONDS) - 1)])
            tries += 1

    def progress(self, what: str) -> NoteProgress:
        """Return a function to call after each step, with the bytes that it has done.

        It raises DeadlineExceeded when the time is over or the client has disconnected.
        """

        def check(done: int) -> None:
            with self._mutex:
                if self._heir or not self.left():
                    raise self._over(what)
                self._step(done)

        return check

    def finished(self, waiting: _StepThread) -> None:
        """Count the step's thread as ended; this thread calls it."""
        with self._mutex:
            if not waiting.given_up:
                THREADS.leave(self._medium)
            waiting.done.set()
            if waiting is self._heir:
                self._locks.release(self._name, self.file)

    def _step(self, done: int) -> None:
        self._done, self._steps = self._done + done, self._steps + 1
        if self._report:
            self._deadline = time.monotonic() + self.seconds

    def _over(self, what: str) -> DeadlineExceeded:
        if self._report:
            return Stalled(what, self.seconds, self._done)
        return DeadlineExceeded(what, self.seconds)

    def _need_client(self) -> None:
        """Start nothing for a client that ended while it waited for the lock.

        The next daemon may have repeated the request and got its answer. Since then a
        host may have written to the disk, or may have been detached from it.
        """
        if self._is_gone() or (self._report and not self._reported(self._report)):
            self._locks.release(self._name, self.file)
            raise self._over(self._what or self._name)

    def _client_is_gone(self) -> bool:
        """Report the progress since the last report; True if the client is gone."""
        if self._report and self._seen != self._steps:
            self._seen = self._steps
            return not self._reported(self._report)
        return False

    def _reported(self, report: Report) -> bool:
        try:
            report(self._done)
        except OSError:
            return False
        return True

    def _hand_over(self, waiting: _StepThread, alone: bool) -> bool:
        """Pass the lock to the step's thread at the deadline, if it still runs."""
        with self._mutex:
            if (alone or not self.left()) and not waiting.done.is_set():
                self._heir = waiting
        return self._heir is waiting


class _StepThread:
    """One step in its own thread."""

    def __init__(
        self, lock: TimedLock, step: Callable[..., object], given: tuple[Any, ...]
    ) -> None:
        self._lock, self._step, self._given = lock, step, given
        self.done, self.given_up = threading.Event(), False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._step(*self._given)
        except Exception as error:
            self.error = error
            LOG.info("%s failed: %s", threading.current_thread().name, error)
        finally:
            self._lock.finished(self)
