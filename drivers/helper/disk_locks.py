# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One unit of work for each disk, held by the kernel for as long as it is worked on.

A unit is a lock (flock(2)) on a file in a directory of the helper. Who does the work
has the file open: a thread of the helper, or a program, which gets it as its standard
input (LVM closes every other descriptor that it finds at its start). The last of them
that goes away unlocks it. So a program that outlives the helper keeps its unit, and
what is asked of the next helper waits for it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lunshare.drivers.errors import DeadlineExceeded, Misconfigured
from lunshare.drivers.helper.named_locks import Locks

_POLL_SECONDS = 0.05


class Held:
    """A unit that is held; ``fd`` is what a program gets as its standard input."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lives_on = False

    def lives_on(self) -> None:
        """A program that has it goes on without us: the unit ends when that does."""
        self._lives_on = True

    @property
    def ended(self) -> bool:
        """Whether nobody but us has it."""
        return not self._lives_on


@dataclass(frozen=True, slots=True)
class Left:
    """What a program does that has outlived the helper: the unit, and the words."""

    unit: str
    what: str


class Units:
    """The units below one directory, which only root may enter.

    Without a directory they are those of this object alone, as tests want them.

    :raises Misconfigured: it cannot be made.
    """

    def __init__(self, directory: str | None = None) -> None:
        # Threads of this helper wait here for each other, and need not poll.
        self._turns = Locks()
        if directory is not None:
            self._directory = Path(directory)
            self._make()

    @functools.cached_property
    def _directory(self) -> Path:
        made = tempfile.mkdtemp(prefix="lunshare-work-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return Path(made)

    def _make(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"directory {self._directory}: {error.strerror}",
                "it is made beside the helper's socket",
            ) from None

    @contextlib.contextmanager
    def hold(self, name: str, seconds: float, what: str = "") -> Iterator[Held]:
        """Hold the unit of that name, which may have slashes, to do ``what``.

        :raises DeadlineExceeded: it is still held by another.
        """
        deadline = time.monotonic() + seconds
        with self._turns.hold(name, seconds):
            held = Held(self._locked(name, deadline, seconds))
            try:
                # Its reader finds the end: the position is that of all who have it.
                os.ftruncate(held.fd, 0)
                os.write(held.fd, what.encode())
                yield held
            finally:
                if held.ended:
                    self._path(name).unlink(missing_ok=True)
                os.close(held.fd)

    def wait(self, name: str, seconds: float) -> None:
        """Return once nobody holds the unit.

        :raises DeadlineExceeded: somebody still does.
        """
        if self._path(name).exists():
            with self.hold(name, seconds):
                pass

    def left(self, ended: Callable[[Left], None]) -> tuple[Left, ...]:
        """What an earlier life's programs still do.

        ``ended`` is called, in a thread, with each when it has ended.
        """
        if "_directory" not in vars(self):
            return ()
        found = [self._left(path, ended) for path in self._directory.iterdir()]
        return tuple(left for left in found if left)

    def _left(self, path: Path, ended: Callable[[Left], None]) -> Left | None:
        fd = os.open(path, _HOW)
        if _lock(fd):
            path.unlink()
            os.close(fd)
            return None
        what = os.pread(fd, os.fstat(fd).st_size, 0).decode()
        left = Left(path.name.replace(",", "/"), what)
        waits = (left, fd, ended)
        threading.Thread(target=self._await, args=waits, daemon=True).start()
        return left

    def _await(self, left: Left, fd: int, ended: Callable[[Left], None]) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.close(fd)
        ended(left)

    def _locked(self, name: str, deadline: float, seconds: float) -> int:
        path = self._path(name)
        while True:
            fd = os.open(path, _HOW | os.O_CREAT, 0o600)
            try:
                while not _lock(fd):
                    if time.monotonic() > deadline:
                        raise DeadlineExceeded(f"an earlier change of {name}", seconds)
                    time.sleep(_POLL_SECONDS)
                if _is(path, fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # who held it has removed it

    def _path(self, name: str) -> Path:
        return self._directory / name.replace("/", ",")


_HOW = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
