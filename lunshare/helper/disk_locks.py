# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Locks on disks and files that last as long as the work, also after the helper ended.

A helper that is killed may leave a thread that hangs in the kernel, or a command that
continues (KillMode=process). The client sends the request again to the next helper,
and the two would work on one disk at once. So each name has a lock of the kernel
(flock(2) on a file of its own). The worker has the file open: a thread of the helper,
or a command, which gets it as its standard input (LVM closes every other descriptor
that it inherits). The kernel releases the lock when the last of them has ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lunshare.drivers.errors import DeadlineExceeded, Misconfigured

_POLL_SECONDS = 0.05
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_MAX_NAME = 200  # of 255 bytes that a file's name may have


class DiskLocks:
    """The locks of all helper processes of this node: files in one directory.

    Only root may enter the directory.

    :raises Misconfigured: it cannot be created.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"directory {directory}: {error.strerror}",
                "it is created beside the helper's socket",
            ) from None

    def acquire(self, name: str, seconds: float, what: str = "") -> int:
        """Lock ``name`` for the work ``what``; return the descriptor of the lock.

        A command that inherits the descriptor holds the lock as well.

        :raises DeadlineExceeded: it is still locked after so many seconds.
        """
        deadline, path = time.monotonic() + seconds, self._path(name)
        while True:
            fd = os.open(path, _FLAGS | os.O_CREAT, 0o600)
            try:
                while not _lock(fd):
                    if time.monotonic() > deadline:
                        raise DeadlineExceeded(f"an earlier change of {name}", seconds)
                    time.sleep(_POLL_SECONDS)
                if _is_at(path, fd):
                    # A command that inherits it reads only an end of file: all share
                    # one position.
                    os.ftruncate(fd, 0)
                    os.write(fd, what.encode())
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the holder before has removed the file

    def release(self, name: str, fd: int) -> None:
        """Close the descriptor. A command that inherited it still holds the lock."""
        os.close(fd)
        fd = os.open(self._path(name), _FLAGS | os.O_CREAT, 0o600)
        self._remove_if_free(self._path(name), fd)
        os.close(fd)

    def still_held(self, ended: Callable[[str], None]) -> tuple[str, ...]:
        """Return the work that an earlier helper process has left running.

        ``ended`` is called with each of them when it has ended, in a thread.
        """
        works = []
        for path in self._directory.iterdir():
            fd = os.open(path, _FLAGS)
            if self._remove_if_free(path, fd):
                os.close(fd)
                continue
            works.append(os.pread(fd, os.fstat(fd).st_size, 0).decode())
            arguments = (fd, works[-1], ended)
            threading.Thread(target=_await, args=arguments, daemon=True).start()
        return tuple(works)

    def _remove_if_free(self, path: Path, fd: int) -> bool:
        if not _lock(fd):
            return False
        if _is_at(path, fd):
            path.unlink()
        return True

    def _path(self, name: str) -> Path:
        file = name.replace("/", ",")
        if len(file) > _MAX_NAME:
            file = hashlib.blake2b(name.encode(), digest_size=32).hexdigest()
        return self._directory / file


def _await(fd: int, what: str, ended: Callable[[str], None]) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
    ended(what)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
