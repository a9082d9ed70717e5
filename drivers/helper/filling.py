# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a file holds: room taken beforehand, a clone, a copy. Bytes are bytes.

Nothing here looks at what the bytes say: a guest writes them. Loops ask between
their steps whether there is time left, for nobody waits when there is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator

#: Raises DeadlineExceeded when the time is over.
Clock = Callable[[], None]

_STEP = 8 * 1024**2
_ZEROS = bytes(1024**2)

# linux/fs.h: _IOW(0x94, 9, int). NFS 4.2 passes it on as CLONE.
_FICLONE = 0x40049409

# The filesystem, the server or its protocol cannot: nothing has been done.
_CANNOT = {
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EXDEV,
    errno.EINVAL,
    errno.EBADF,
}


def grow(file: int, old: int, new: int, preallocate: bool, clock: Clock) -> None:
    """Make the file ``new`` bytes long; the added ones read as zeros.

    When it raises, the file is as long as it was, if the share is still there.
    """
    try:
        if preallocate:
            _reserve(file, old, new, clock)
        os.ftruncate(file, new)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(file, old)
        raise


def hold_room(file: int, size: int) -> None:
    """Take room for what is a hole in a file of data, where the server offers that.

    A clone of a preallocated file is not one: unwritten extents are not shared.
    """
    _fallocate(file, 0, size)


def clone(source: int, file: int) -> bool:
    """Share the source's bytes with an empty file; False where that cannot be."""
    try:
        fcntl.ioctl(file, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


def copy(source: int, file: int, size: int, clock: Clock) -> None:
    """Copy ``size`` bytes into a file of zeros; holes of the source are passed over."""
    for start, end in data(source, size):
        at = start
        while at < end:
            clock()
            at += _copied(source, file, at, min(_STEP, end - at))


def _reserve(file: int, start: int, end: int, clock: Clock) -> None:
    """Take room for these bytes; by zeros where the server has no ALLOCATE (4.1)."""
    if _fallocate(file, start, end - start):
        return
    at = start
    while at < end:
        clock()
        at += os.pwrite(file, _ZEROS[: end - at], at)


def _fallocate(file: int, start: int, length: int) -> bool:
    """fallocate(2); False where it is not offered.

    os.posix_fallocate would hide that: glibc then writes a byte into each block.
    """
    import ctypes  # noqa: PLC0415 - a megabyte that a node without NFS has no use for

    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while length and call(file, 0, start, length):
        number = ctypes.get_errno()
        if number in _CANNOT:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def data(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the first ``size`` bytes are no hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        if start >= size:
            return
        end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        yield start, end


def _copied(source: int, file: int, at: int, length: int) -> int:
    """Copy a step; the server does it by itself where it can."""
    try:
        done = os.copy_file_range(source, file, length, at, at)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        done = 0
    if done:
        return done
    data = os.pread(source, min(length, len(_ZEROS)), at)
    if not data:
        raise OSError(errno.EIO, "the source became shorter")
    return os.pwrite(file, data, at)
