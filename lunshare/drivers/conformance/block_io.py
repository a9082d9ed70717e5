# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Linux calls for block devices and files that Python does not offer."""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import struct

# linux/fs.h and linux/falloc.h
_BLKSSZGET, _BLKPBSZGET, _BLKDISCARD = 0x1268, 0x127B, 0x1277
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02


def discard(file: int, offset: int, length: int) -> None:
    """Discard a range of bytes.

    :raises OSError: the device or the file system does not support it.
    """
    if stat.S_ISBLK(os.fstat(file).st_mode):
        fcntl.ioctl(file, _BLKDISCARD, struct.pack("=QQ", offset, length))
        return
    call = ctypes.CDLL(None, use_errno=True).fallocate64
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if call(file, _KEEP_SIZE | _PUNCH_HOLE, offset, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def mount_small(path: str, size: int) -> None:
    """Mount a file system of that many bytes, in memory, over an empty directory.

    A pool without its own device gets real ENOSPC in it.

    :raises PermissionError: only root can mount. ``unshare -Urm`` makes a user the
        root of its own mounts.
    """
    call = ctypes.CDLL(None, use_errno=True).mount
    options = f"size={size},mode=0755".encode()
    if call(b"lunshare-kit", path.encode(), b"tmpfs", 0, options):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def unmount_small(path: str) -> None:
    """Unmount what ``mount_small`` mounted."""
    ctypes.CDLL(None, use_errno=True).umount2(path.encode(), 2)  # MNT_DETACH


def block_sizes(file: int) -> tuple[int, int]:
    """The logical and the physical block size, in bytes."""
    found = os.fstat(file)
    if not stat.S_ISBLK(found.st_mode):
        return 512, found.st_blksize
    return _asked(file, _BLKSSZGET), _asked(file, _BLKPBSZGET)


def _asked(file: int, question: int) -> int:
    (answer,) = struct.unpack("=i", fcntl.ioctl(file, question, bytes(4)))
    return int(answer)
