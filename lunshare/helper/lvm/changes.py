# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LVM commands that change a volume group always run to their end.

LVM suspends devices while it changes them, and a host that writes to a suspended
device hangs. A command that is killed leaves the device suspended. So at the deadline
the client gets DeadlineExceeded and the command continues. Until it has ended, no
other change of its volume group is started. Its output goes to files in memory: a pipe
whose reader dies would kill it (SIGPIPE).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lunshare.drivers import request_ids
from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DriverError,
    HelperBusy,
    NoSpace,
)
from lunshare.drivers.values import UUID
from lunshare.helper import processes
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.named_locks import Locks
from lunshare.helper.verbs import IsGone, never_gone

LOG = logging.getLogger(__name__)

_CHANGING = frozenset(
    f"lv{verb}" for verb in ("create", "remove", "rename", "extend", "reduce")
) | {"lvchange", "lvconvert", "vgchange"}
_ASKING = frozenset(("lvs", "vgs"))
_DISK = re.compile(
    rf"(?<![A-Za-z0-9_+.-])(deleted-{UUID}\.[0-9]+|(volume|_snapshot)-{UUID})"
)

# LVM exits with code 5 on every error, so its message must be matched: that of lvm2
# 2.03.16 in the C locale, which the helper sets.
_ALLOCATING = frozenset(("lvcreate", "lvextend"))
_NO_SPACE = re.compile(
    "insufficient free space|insufficient suitable|reached threshold"
    "|out of (data|metadata) space",
    re.IGNORECASE,
)
# What exists already needs no space: its command may warn of the pool, too. LVM says
# that space is missing also when the kernel has changed the pool without it.
_OTHER_CAUSE = re.compile(
    "already exists|existing size|unexpected transaction id", re.IGNORECASE
)


def is_change(argv: Sequence[str]) -> bool:
    """Whether the command changes a volume group, so that it must not be killed."""
    return bool(argv) and argv[0] in _CHANGING


def is_query(argv: Sequence[str]) -> bool:
    """Whether the command queries LVM, and a change in progress may affect it."""
    return argv[0] in _ASKING


def volume_group(argv: Sequence[str]) -> str:
    """Return the volume group that an LVM command is about."""
    if argv[0] == "lvrename":
        return argv[-3]
    named = (word for word in argv[1:] if "/" in word and _is_volume(word))
    return next(named, argv[-1]).partition("/")[0]


def locked_group(argv: Sequence[str]) -> str:
    """Return the volume group that LVM locks while the command runs.

    Empty for a merge: the kernel does that work, and LVM only polls its progress.
    """
    return "" if argv[0] == "lvconvert" else volume_group(argv)


def disk_of(argv: Sequence[str]) -> str:
    """Return the name of the disk lock that a command needs, or a query waits for.

    The incomplete parts of a volume share its lock. A command that is not on a single
    disk of lunshare has the lock of its volume group.
    """
    named = argv[argv.index("-n") + 1] if "-n" in argv else " ".join(argv)
    match = _DISK.search(named)
    return f"{volume_group(argv)}/{match[0]}" if match else volume_group(argv)


def _is_volume(word: str) -> bool:
    """Whether a word is ``GROUP/VOLUME``, not a path and not a --config setting."""
    return word[0] not in "/-" and "=" not in word


def failure(argv: Sequence[str], code: int, stderr: str) -> DriverError:
    """Return NoSpace if the group has too few free extents or the pool is full.

    Else CommandFailed.
    """
    full = argv[0] in _ALLOCATING and _NO_SPACE.search(stderr)
    if full and not _OTHER_CAUSE.search(stderr):
        return NoSpace(volume_group(argv), stderr.strip())
    return CommandFailed(tuple(argv), code, stderr)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


class ChangeRunner:
    """Runs changes, and knows those that are overdue: still running after a deadline.

    Commands that an earlier helper process started, and that still run, are overdue.
    """

    def __init__(
        self, disk_locks: DiskLocks | None, environment: Mapping[str, str]
    ) -> None:
        self._locks, self._environment = Locks(disk_locks), environment
        self._overdue: dict[str, list[str]] = {}
        self._fewer = threading.Condition()
        for what in disk_locks.still_held(self._ended) if disk_locks else ():
            LOG.warning("still running, from an earlier helper: %s", what)
            if is_change(what.split()):
                self._add(locked_group(what.split()), what)

    def run(
        self,
        command: list[str],
        argv: Sequence[str],
        seconds: float,
        is_gone: IsGone = never_gone,
    ) -> Outcome:
        """Run it to its end, and return its outcome.

        :raises DeadlineExceeded: it still runs; or it was not started, because an
            earlier one still runs or the client is gone.
        :raises HelperBusy: the system refuses it a thread; it was not started.
        """
        change = _Change(self, command, argv, seconds, is_gone)
        try:
            work = request_ids.inherited(change.run)
            threading.Thread(target=work, daemon=True).start()
        except RuntimeError:  # "can't start new thread": pids or memory are used up
            raise HelperBusy("the system refuses it a further thread") from None
        if not change.done.wait(seconds) and not change.give_up():
            self._hand_over(change)
        change.done.wait()
        if change.error:
            raise change.error
        if change.outcome is None:
            raise AssertionError("an ended change has an outcome or an error")
        return change.outcome

    def wait(self, argv: Sequence[str], seconds: float) -> None:
        """Wait until no change affects the answer to this query.

        :raises DeadlineExceeded: a change is still in progress.
        """
        deadline = time.monotonic() + seconds
        self.await_turn(volume_group(argv), deadline, seconds)
        self._locks.wait(disk_of(argv), max(0.0, deadline - time.monotonic()))

    def await_turn(self, group: str, deadline: float, seconds: float) -> None:
        """Wait until no change of the group is overdue.

        :raises DeadlineExceeded: one still is.
        """
        with self._fewer:
            while overdue := self._overdue.get(group):
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0:
                    raise DeadlineExceeded(f"an earlier change: {overdue[0]}", seconds)
                self._fewer.wait(seconds_left)

    def _hand_over(self, change: _Change) -> None:
        self._add(change.locks, change.shown)
        if change.hand_over():
            LOG.error("%s is overdue; it continues until it ends", change.shown)
            raise DeadlineExceeded(change.shown, change.seconds)
        self.remove(change.locks, change.shown)

    def _add(self, group: str, what: str) -> None:
        with self._fewer:
            self._overdue.setdefault(group, []).append(what)

    def remove(self, group: str, what: str) -> None:
        """Record that an overdue change has ended."""
        with self._fewer:
            self._overdue[group].remove(what)
            if not self._overdue[group]:
                del self._overdue[group]
            self._fewer.notify_all()

    def _ended(self, what: str) -> None:
        LOG.info("ended, from an earlier helper: %s", what)
        if is_change(what.split()):
            self.remove(locked_group(what.split()), what)

    def process(self, command: list[str], deadline: float, change: _Change) -> Outcome:
        """Run the command while holding the lock of its disk."""
        self.await_turn(change.group, deadline, change.seconds)
        seconds_left = max(0.0, deadline - time.monotonic())
        with self._locks.hold(change.disk, seconds_left, what=change.shown) as lock:
            change.mark_started()
            return _run(command, lock.file, self._environment)


class _Change:
    """One command that changes a group, in a thread of its own."""

    def __init__(
        self,
        all_: ChangeRunner,
        command: list[str],
        argv: Sequence[str],
        seconds: float,
        is_gone: IsGone,
    ) -> None:
        self._all, self._command, self._is_gone = all_, command, is_gone
        self._deadline = time.monotonic() + seconds
        self.group, self.disk, self.locks = (
            volume_group(argv),
            disk_of(argv),
            locked_group(argv),
        )
        self.shown, self.seconds = shlex.join(argv), seconds
        self.done = threading.Event()
        self._started = self._given_up = self._handed_over = False
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._mutex = threading.Lock()

    def mark_started(self) -> None:
        """Mark it as started.

        :raises DeadlineExceeded: its client has given up or disconnected.
        """
        with self._mutex:
            if self._given_up or self._is_gone():
                raise DeadlineExceeded(
                    f"an earlier change of {self.disk}", self.seconds
                )
            self._started = True

    def give_up(self) -> bool:
        """Do not start it; False if it has started."""
        with self._mutex:
            self._given_up = not self._started
            return self._given_up

    def hand_over(self) -> bool:
        """Let it continue without its client; False if it has ended meanwhile."""
        with self._mutex:
            self._handed_over = not self.done.is_set()
            return self._handed_over

    def run(self) -> None:
        try:
            self.outcome = self._all.process(self._command, self._deadline, self)
        except BaseException as error:
            self.error = error
        with self._mutex:
            self.done.set()
        if self._handed_over:
            LOG.warning("overdue %s has ended: %s", self.shown, self._how())
            self._all.remove(self.locks, self.shown)

    def _how(self) -> str:
        return f"exit={self.outcome.code}" if self.outcome else str(self.error)


def _run(
    command: list[str], lock: int | None, environment: Mapping[str, str]
) -> Outcome:
    with _memory("out") as out, _memory("err") as err:
        stdin = subprocess.DEVNULL if lock is None else lock
        process = processes.start(
            command, environment, stdin=stdin, stdout=out, stderr=err
        )
        code = process.wait()
        return Outcome(code, _text(out), _text(err))


@contextlib.contextmanager
def _memory(name: str) -> Iterator[int]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _text(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")
