# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""LVM's changing commands run to their end, whoever waits for them.

LVM suspends devices while it changes them, and a host that writes to a suspended
device hangs: killed in between, a command leaves it so. When the time of whoever asked
is over, he gets DeadlineExceeded, the command goes on, and until it has ended no other
change of its volume group is begun. What it prints goes to files in memory: a pipe
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

from lunshare.drivers.errors import CommandFailed, DeadlineExceeded
from lunshare.drivers.helper.disk_locks import Left, Units

LOG = logging.getLogger(__name__)

_CHANGING = frozenset(
    f"lv{verb}" for verb in ("create", "remove", "rename", "extend", "reduce")
) | {"lvchange", "lvconvert", "vgchange"}
_ASKING = frozenset(("lvs", "vgs"))
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DISK = re.compile(
    rf"(?<![A-Za-z0-9_+.-])(deleted-{_UUID}\.[0-9]+|(volume|_snapshot)-{_UUID})"
)


def changes(argv: Sequence[str]) -> bool:
    """Whether it changes a volume group, so that it must not be killed."""
    return bool(argv) and argv[0] in _CHANGING


def asks(argv: Sequence[str]) -> bool:
    """Whether it asks LVM, whose answer may be about what is under way."""
    return argv[0] in _ASKING


def group(argv: Sequence[str]) -> str:
    """The volume group that a command of LVM's is about."""
    if argv[0] == "lvrename":
        return argv[-3]
    named = (word for word in argv[1:] if "/" in word and _is_volume(word))
    return next(named, argv[-1]).partition("/")[0]


def locks(argv: Sequence[str]) -> str:
    """The volume group that LVM locks for as long as the command runs.

    Empty for a merge, which is the kernel's work: LVM looks how far that is.
    """
    return "" if argv[0] == "lvconvert" else group(argv)


def unit(argv: Sequence[str]) -> str:
    """The unit of work that a command is, or that a question is about.

    A volume's half-made parts share its unit. A command on no single disk of ours is
    one with its volume group.
    """
    named = argv[argv.index("-n") + 1] if "-n" in argv else " ".join(argv)
    found = _DISK.search(named)
    return f"{group(argv)}/{found[0]}" if found else group(argv)


def _is_volume(word: str) -> bool:
    """``GROUP/VOLUME``, but neither a path nor a word of --config."""
    return word[0] not in "/-" and "=" not in word


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


class Changes:
    """Every change that is under way.

    What programs of an earlier life of the helper still do counts as overdue.
    """

    def __init__(self, units: Units, environment: Mapping[str, str]) -> None:
        self._units, self._environment = units, environment
        self._overdue: dict[str, list[str]] = {}
        self._fewer = threading.Condition()
        for left in units.left(self._ended):
            LOG.warning("left by an earlier life, and not ended: %s", left.what)
            if changes(left.what.split()):
                self._add(locks(left.what.split()), left.what)

    def run(self, command: list[str], argv: Sequence[str], seconds: float) -> Outcome:
        """Run it to its end, and return how it ended.

        :raises DeadlineExceeded: it goes on, or an earlier one does and it was not
            begun.
        """
        change = _Change(self, command, argv, seconds)
        threading.Thread(target=change.run, daemon=True).start()
        if not change.done.wait(seconds) and not change.give_up():
            self._hand_over(change)
        change.done.wait()
        if change.error:
            raise change.error
        if change.outcome is None:
            raise AssertionError("a change that is done has an outcome or an error")
        return change.outcome

    def wait(self, argv: Sequence[str], seconds: float) -> None:
        """Return when LVM can answer this question, as things are when all has ended.

        :raises DeadlineExceeded: what it is about is being changed still.
        """
        deadline = time.monotonic() + seconds
        self.await_turn(group(argv), deadline, seconds)
        self._units.wait(unit(argv), max(0.0, deadline - time.monotonic()))

    def await_turn(self, group: str, deadline: float, seconds: float) -> None:
        """Return when no change of the group is overdue.

        :raises DeadlineExceeded: one still is.
        """
        with self._fewer:
            while late := self._overdue.get(group):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineExceeded(f"an earlier change: {late[0]}", seconds)
                self._fewer.wait(left)

    def _hand_over(self, change: _Change) -> None:
        self._add(change.locks, change.shown)
        if change.hand_over():
            LOG.error("%s is overdue; it is left to end", change.shown)
            raise DeadlineExceeded(change.shown, change.seconds)
        self.remove(change.locks, change.shown)

    def _add(self, group: str, what: str) -> None:
        with self._fewer:
            self._overdue.setdefault(group, []).append(what)

    def remove(self, group: str, what: str) -> None:
        """An overdue change has ended."""
        with self._fewer:
            self._overdue[group].remove(what)
            if not self._overdue[group]:
                del self._overdue[group]
            self._fewer.notify_all()

    def _ended(self, left: Left) -> None:
        LOG.info("left by an earlier life, and ended: %s", left.what)
        if changes(left.what.split()):
            self.remove(locks(left.what.split()), left.what)

    def process(self, command: list[str], deadline: float, change: _Change) -> Outcome:
        """Do the work, holding its unit."""
        self.await_turn(change.group, deadline, change.seconds)
        left = max(0.0, deadline - time.monotonic())
        with self._units.hold(change.unit, left, change.shown) as held:
            change.begin()
            return _run(command, held.fd, self._environment)


class _Change:
    """One changing command, in a thread of its own."""

    def __init__(
        self, all_: Changes, command: list[str], argv: Sequence[str], seconds: float
    ) -> None:
        self._all, self._command = all_, command
        self._deadline = time.monotonic() + seconds
        self.group, self.unit, self.locks = group(argv), unit(argv), locks(argv)
        self.shown, self.seconds = shlex.join(argv), seconds
        self.done = threading.Event()
        self._begun = self._given_up = self._handed_over = False
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._mutex = threading.Lock()

    def begin(self) -> None:
        """The next step starts it.

        :raises DeadlineExceeded: nobody waits for it any more.
        """
        with self._mutex:
            if self._given_up:
                raise DeadlineExceeded(
                    f"an earlier change of {self.unit}", self.seconds
                )
            self._begun = True

    def give_up(self) -> bool:
        """Do not begin it; False if it has begun."""
        with self._mutex:
            self._given_up = not self._begun
            return self._given_up

    def hand_over(self) -> bool:
        """Leave it to itself; False if it has ended meanwhile."""
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


def _run(command: list[str], unit_fd: int, environment: Mapping[str, str]) -> Outcome:
    with _memory("out") as out, _memory("err") as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=unit_fd,
                stdout=out,
                stderr=err,
                env=environment,
                cwd="/",
                process_group=0,
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise CommandFailed(tuple(command), 126, why) from None
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
