# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One file of an NFS share: opened, created, and checked for who uses it.

Others may write to a share: its server, another client. So a file is opened by
its name in the share's own directory, no link is followed, and what counts is
what was opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from lunshare.drivers.errors import DriverError, UnknownDisk, UnknownSnapshot
from lunshare.drivers.helper.lio import backstores
from lunshare.drivers.protocol import nfs_names

_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

# struct flock of x86-64 and arm64 (fcntl(2)): type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO}

_CANNOT_TELL = (
    "whether somebody has it open cannot be told ({}): mount its share with NFS 4, and"
    " see that the lock service of its server runs"
)

# How images of disks begin. Taken over, one would be read as the raw bytes it
# is made of, which is not what its owner wants.
_IMAGES = {
    b"QFI\xfb": "qcow2",
    b"QED\0": "qed",
    b"KDMV": "vmdk",
    b"COWD": "vmdk",
    b"# Disk DescriptorFile": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vhd",
}


def missing(name: str) -> DriverError:
    """The error that tells of a file that is not there."""
    kind = UnknownSnapshot if name.startswith("_") else UnknownDisk
    return kind(nfs_names.identity(name))


def size(share: int, name: str) -> int | None:
    """The size of a regular file with one name; None when it is not there."""
    try:
        found = os.stat(name, dir_fd=share, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _need_plain(found, name)
    return found.st_size


def opened(share: int, name: str) -> int:
    """Open a regular file with one name, to read and to write.

    :raises UnknownDisk: or UnknownSnapshot: it is not there.
    :raises DriverError: something else has its name.
    """
    if size(share, name) is None:
        raise missing(name)
    return open_plain(share, name)


def open_plain(share: int, name: str) -> int:
    """Open it without following a link; what was opened is looked at as well."""
    file = os.open(name, os.O_RDWR | _OPEN, dir_fd=share)
    try:
        _need_plain(os.fstat(file), name)
    except BaseException:
        os.close(file)
        raise
    return file


def created(share: int, name: str, mode: int) -> int:
    """Make a file of that name and mode, and nothing else of that name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN
    file = os.open(name, flags, 0o600, dir_fd=share)
    os.fchmod(file, mode)
    return file


def in_use(file: int, name: str) -> str:
    """Why a volume's file must be left alone, or an empty text.

    The kernel tells nobody who has a file of a share open. It is known whether
    this node exports it, and QEMU locks its disks, which the server tells to
    every client (NFS 4). Where it cannot be told, somebody may have it open.
    """
    if next(backstores.existing(nfs_names.identity(name)), None):
        return "it is exported; remove its export first"
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return _CANNOT_TELL.format(error.strerror)
        raise
    if _LOCK.unpack(found)[0] == fcntl.F_UNLCK:
        return ""
    return "somebody holds a lock on its file, as QEMU does; end that first"


def image(file: int) -> str:
    """The format that the first bytes claim, or an empty text."""
    head = os.pread(file, 64, 0)
    return next((kind for magic, kind in _IMAGES.items() if head.startswith(magic)), "")


def plain(found: os.stat_result) -> bool:
    """Whether it is a regular file with one name."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _need_plain(found: os.stat_result, name: str) -> None:
    if not plain(found):
        raise DriverError(
            f"{name} is no regular file with one name: somebody else put it on the"
            " share; look at it and remove it"
        )
