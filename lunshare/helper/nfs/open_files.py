# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One file of an NFS share: open it, create it, and check whether it is in use.

Others may change a share: its server, another client. So a file is opened by its name
in the share's own directory, without following links, and the opened file is checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable

from lunshare.drivers.errors import DiskBusy, DriverError, UnknownDisk, UnknownSnapshot
from lunshare.drivers.protocol import nfs_names

#: Whether this node exports the volume of that id.
IsExported = Callable[[str], bool]

_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

# struct flock of x86-64 and arm64 (fcntl(2)): type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO}

_UNKNOWN_USE = (
    "whether it is open elsewhere is unknown ({}): mount its share with NFS 4, and"
    " check that the lock service of its server runs"
)

# How disk images start. A managed one would be exported as its raw bytes, with the
# image's headers, which is not what its owner wants.
_IMAGES = {
    b"QFI\xfb": "qcow2",
    b"QED\0": "qed",
    b"KDMV": "vmdk",
    b"COWD": "vmdk",
    b"# Disk DescriptorFile": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vhd",
}


def not_found(name: str) -> DriverError:
    """Return the error for a file that does not exist."""
    kind = UnknownSnapshot if name.startswith("_") else UnknownDisk
    return kind(nfs_names.id_of(name))


def size(share: int, name: str) -> int | None:
    """Return the size of a regular file with one name; None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=share, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _need_plain(status, name)
    return status.st_size


def open_file(share: int, name: str) -> int:
    """Open a regular file with one name, for reading and writing.

    :raises UnknownDisk: or UnknownSnapshot: it does not exist.
    :raises DriverError: it is not a regular file.
    """
    if size(share, name) is None:
        raise not_found(name)
    return open_plain(share, name)


def open_plain(share: int, name: str) -> int:
    """Open it without following a link, and check the opened file as well."""
    file = os.open(name, os.O_RDWR | _OPEN, dir_fd=share)
    try:
        _need_plain(os.fstat(file), name)
    except BaseException:
        os.close(file)
        raise
    return file


def create_file(share: int, name: str, mode: int) -> int:
    """Create a new file of that name and mode."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN
    file = os.open(name, flags, 0o600, dir_fd=share)
    try:
        os.fchmod(file, mode)
    except BaseException:
        os.close(file)
        raise
    return file


def open_probe(share: int, name: str) -> int:
    """Open a file of that name to write to it, or create it.

    :raises DriverError: it is a link, a pipe or the like, or has a second name, such as
        a volume's.
    """
    size(share, name)
    file = os.open(name, os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=share)
    try:
        status = os.fstat(file)
        if status.st_nlink:  # else another node has removed it already
            _need_plain(status, name)
    except BaseException:
        os.close(file)
        raise
    return file


def need_unused(
    file: int, name: str, is_exported: IsExported, remedy: str = ""
) -> None:
    """:raises DiskBusy: it is in use, or that is unknown. ``remedy`` is added."""
    if problem := use_problem(file, name, is_exported):
        raise DiskBusy(nfs_names.id_of(name), problem + remedy)


def use_problem(file: int, name: str, is_exported: IsExported) -> str:
    """Return why a volume's file must not be changed, or "".

    The kernel does not show which hosts have a file of a share open. It is known
    whether this node exports it. QEMU locks its disks, and the server reports locks to
    every client (NFS 4). If locks cannot be read, the file counts as in use.
    """
    if is_exported(nfs_names.id_of(name)):
        return "it is exported; remove its export first"
    write_lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        lock = fcntl.fcntl(file, fcntl.F_OFD_GETLK, write_lock)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return _UNKNOWN_USE.format(error.strerror)
        raise
    if _LOCK.unpack(lock)[0] == fcntl.F_UNLCK:
        return ""
    return "its file is locked, as QEMU locks disks; stop that process first"


def image_format(file: int) -> str:
    """Return the image format that the first bytes indicate, or an empty text."""
    head = os.pread(file, 64, 0)
    return next((kind for magic, kind in _IMAGES.items() if head.startswith(magic)), "")


def is_plain(found: os.stat_result) -> bool:
    """Whether it is a regular file with one name."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _need_plain(found: os.stat_result, name: str) -> None:
    if not is_plain(found):
        raise DriverError(
            f"{name} is not a regular file with one name, and lunshare did not create"
            " it: inspect it and remove it"
        )
