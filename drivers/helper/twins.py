# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Locks by name that outlive the helper's process for as long as its work does.

A helper that is killed may leave a thread that waits in the kernel, or a command that
goes on (KillMode=process). The client asks the next helper for the same again, and the
two would work on one disk at once. So whoever works on something holds a lock on a byte
of one file, on a descriptor of its own: the kernel gives it back when the last process
that has the descriptor is gone, and not before.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import time

from lunshare.drivers.errors import DeadlineExceeded

# struct flock of x86-64 and arm64 (fcntl(2)): type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")
_TAKEN = {errno.EAGAIN, errno.EACCES}
_POLL_SECONDS = 0.02


class Twins:
    """The locks of all helpers of this node: one file, which only root can open."""

    def __init__(self, path: str) -> None:
        """``path``: a file in a directory that nobody else can change."""
        self._path = path

    def acquire(self, name: str, seconds: float) -> int:
        """Lock ``name``; the lock lasts until the descriptor is closed everywhere.

        A command that inherits the descriptor keeps it, too.

        :raises DeadlineExceeded: somebody else has it all the time.
        """
        until = time.monotonic() + seconds
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            while not _locked(file, name):
                if time.monotonic() >= until:
                    what = f"what an earlier helper began with {name}"
                    raise DeadlineExceeded(what, seconds)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            os.close(file)
            raise
        return file


def _locked(file: int, name: str) -> bool:
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _byte(name), 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _byte(name: str) -> int:
    """Two names on one byte would wait for each other, and no more."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2
