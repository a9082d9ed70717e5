# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths may be exported: the volume's own disk, and nothing else of the node.

The daemon names the path, and the daemon may have been taken over. So a path
must carry the volume's own id, and must be what it says it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.helper.nfs import mounts
from lunshare.drivers.helper.nfs.mounts import KERNEL, Mount, Mounts
from lunshare.drivers.helper.served import POINT, doubled, group_of
from lunshare.drivers.values import Disk, DiskKind


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a disk's path. ``path`` leads the kernel to this very thing."""

    path: str
    stat: os.stat_result


@contextlib.contextmanager
def opened(disk: Disk, mounts: Mounts = KERNEL) -> Iterator[Found]:
    """Find what is at ``disk.path``, if the volume's export may open it.

    Whether its group or directory is served at all, ``served`` has seen before.

    The kernel opens a path once more. A file's directories may be others' to
    change, its server's for one, so the kernel gets the descriptor that was
    looked at, as a path of this process; it holds while the block lasts.

    :raises TargetFailed: it is of another form, another volume's, missing, or
        not the block device or regular file that it should be.
    """
    if disk.kind is DiskKind.BLOCK:
        yield Found(disk.path, _block(disk))
        return
    file = _file(disk, mounts)
    try:
        yield Found(f"/proc/self/fd/{file}", os.fstat(file))
    finally:
        os.close(file)


def checked(disk: Disk) -> os.stat_result:
    """Return what is at ``disk.path``; raises as ``opened`` does."""
    with opened(disk) as found:
        return found.stat


def discards(found: os.stat_result) -> bool:
    """Whether the block device can forget blocks, as UNMAP needs it to."""
    device = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    path = f"/sys/dev/block/{device}/queue/discard_max_bytes"
    try:
        with open(path, encoding="ascii") as limit:
            return int(limit.read()) > 0
    except (OSError, ValueError):
        return False


def _block(disk: Disk) -> os.stat_result:
    name = f"volume-{disk.volume_id}"
    group = group_of(disk.path, name)
    if group is None:
        raise _refused(disk, f"a block device is /dev/GROUP/{name}")
    found = _stat(disk)
    if not stat.S_ISBLK(found.st_mode):
        raise _refused(disk, "it is no block device")
    kernel = kernel_name(found)
    wanted = f"{doubled(group)}-{doubled(name)}"
    if kernel != wanted:
        raise _refused(disk, f"device-mapper calls it {kernel!r}, not {wanted!r}")
    return found


def _file(disk: Disk, kernel: Mounts) -> int:
    """Open a file by its name in its directory; no link is followed on the way."""
    form = rf"volume-{disk.volume_id}(\.[A-Za-z0-9_.-]+)?"
    above, name = os.path.split(disk.path)
    if not re.fullmatch(form, name):
        raise _refused(disk, f"a file's name is volume-{disk.volume_id}")
    try:
        directory = mounts.directory(above)
        try:
            _need_share(disk, directory, kernel.find(above))
            return _regular(disk, directory, name)
        finally:
            os.close(directory)
    except OSError as error:
        raise _refused(disk, error.strerror or str(error)) from None


def _need_share(disk: Disk, directory: int, mount: Mount | None) -> None:
    """A share's directory is one only while the share is mounted on it."""
    if not re.fullmatch(f".*/{POINT}", os.path.dirname(disk.path)):
        return
    if mount is None or os.fstat(directory).st_dev != mount.device:
        raise _refused(disk, "no NFS share is mounted there")


def _regular(disk: Disk, directory: int, name: str) -> int:
    # Looked at first, for opening some devices does something.
    _need_regular(disk, os.stat(name, dir_fd=directory, follow_symlinks=False))
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=directory)
    try:
        _need_regular(disk, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def _need_regular(disk: Disk, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise _refused(disk, "it is no regular file with one name")


def kernel_name(found: os.stat_result) -> str:
    """What device-mapper calls a block device; a stale link in /dev cannot lie."""
    device = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    try:
        with open(f"/sys/dev/block/{device}/dm/name", encoding="utf-8") as name:
            return name.read().rstrip("\n")
    except OSError:
        return ""


def _stat(disk: Disk) -> os.stat_result:
    try:
        return os.stat(disk.path)
    except OSError as error:
        raise _refused(disk, error.strerror or str(error)) from None


def _refused(disk: Disk, why: str) -> TargetFailed:
    return TargetFailed(disk.volume_id, f"disk {disk.path!r}: {why}")
