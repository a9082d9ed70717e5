# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file: reserve space, clone, copy.

A guest writes these bytes, so they are never interpreted. Loops report each step, and
end when the client has disconnected. Written bytes are flushed regularly, so that no
flush takes much longer than a step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from lunshare.helper import verification
from lunshare.helper.verbs import NoteProgress

_STEP = 8 * 1024**2
_RESERVED = 1024**3  # a server that writes zeros for it does so within seconds
_FLUSHED = 256 * 1024**2

# linux/fs.h: _IOW(0x94, 9, int). NFS 4.2 passes it on as CLONE.
_FICLONE = 0x40049409

# The filesystem, the server or its protocol does not support it; nothing was changed.
_CANNOT = {
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EXDEV,
    errno.EINVAL,
    errno.EBADF,
}


def grow(
    file: int, old: int, new: int, preallocate: bool, note_progress: NoteProgress
) -> None:
    """Extend the file to ``new`` bytes, on the medium; the new bytes are zeros.

    When it raises, the file has its old size again, if the share still answers.
    """
    try:
        if preallocate:
            _reserve(file, old, new, note_progress)
        os.ftruncate(file, new)
        os.fsync(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(file, old)
        raise


def reserve_space(file: int, size: int, note_progress: NoteProgress) -> None:
    """Reserve space for the holes of a file, if the server supports ALLOCATE.

    A clone of a preallocated file needs it: unwritten extents are not shared.
    """
    _allocate(file, 0, size, note_progress)


def clone(source: int, file: int) -> bool:
    """Share the source's bytes with an empty file; False if it is unsupported."""
    try:
        fcntl.ioctl(file, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


def copy(source: int, file: int, size: int, note_progress: NoteProgress) -> None:
    """Copy ``size`` bytes into a file of zeros, without the holes of the source.

    All bytes are on the medium when it returns.
    """
    flushed = 0
    for start, end in verification.data(source, size):
        at = start
        while at < end:
            length = _copied(source, file, at, min(_STEP, end - at))
            at, flushed = at + length, flushed + length
            if flushed >= _FLUSHED:
                os.fdatasync(file)
                flushed = 0
            note_progress(length)
    os.fsync(file)


def _reserve(file: int, start: int, end: int, note_progress: NoteProgress) -> None:
    """Reserve space; write zeros if the server does not support ALLOCATE (NFS 4.1)."""
    if _allocate(file, start, end, note_progress):
        return
    at = start
    while at < end:
        length = os.pwrite(file, verification.ZEROS[: end - at], at)
        at += length
        if at // _FLUSHED != (at - length) // _FLUSHED:
            os.fdatasync(file)
        note_progress(length)


def _allocate(file: int, start: int, end: int, note_progress: NoteProgress) -> bool:
    """Allocate step by step; False if it is unsupported, and then nothing is done."""
    for at in range(start, end, _RESERVED):
        length = min(_RESERVED, end - at)
        if not _fallocate(file, at, length):
            return False
        note_progress(length)
    return True


def _fallocate(file: int, start: int, length: int) -> bool:
    """Call fallocate(2); False if it is unsupported.

    os.posix_fallocate would hide that: glibc then writes a byte into each block.
    """
    import ctypes  # noqa: PLC0415 - a megabyte that a node without NFS does not need

    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(file, 0, start, length):
        number = ctypes.get_errno()
        if number in _CANNOT:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def _copied(source: int, file: int, at: int, length: int) -> int:
    """Copy one step; on the server, if it supports that."""
    try:
        copied = os.copy_file_range(source, file, length, at, at)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        copied = 0
    if copied:
        return copied
    data = os.pread(source, min(length, verification.STEP), at)
    if not data:
        raise OSError(errno.EIO, "the source became shorter")
    verification.write(file, memoryview(data), at)
    return len(data)
