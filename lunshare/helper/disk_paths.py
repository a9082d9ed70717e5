# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths may be exported: the volume's own disk, and nothing else of the node.

The daemon sends the path, and an attacker may have the daemon's user. So a path must
have the volume's own id in it, and what is at the path must be of the stated kind.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.protocol import export_paths
from lunshare.drivers.values import Disk, DiskKind
from lunshare.helper import mounts
from lunshare.helper.mounts import KERNEL, Mount, Mounts
from lunshare.helper.served import POINT


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a disk's path. The kernel opens exactly this one by ``path``."""

    path: str
    stat: os.stat_result


@contextlib.contextmanager
def open_disk(disk: Disk, mounts: Mounts = KERNEL) -> Iterator[Found]:
    """Open what is at ``disk.path``, if the volume's export may use it.

    The caller has checked already that its group or directory is served (``served``).

    The kernel opens a path a second time. The directories of a file may be changed by
    others, such as an NFS server. So the kernel gets the checked descriptor, as a
    path of this process, which is valid until the ``with`` block ends.

    :raises TargetFailed: the path has another form, or is another volume's, or is
        missing, or is not the expected block device or regular file.
    """
    if problem := export_paths.path_problem(disk):
        raise _refused(disk, problem)
    if disk.kind is DiskKind.BLOCK:
        yield Found(disk.path, _block(disk))
        return
    file = _file(disk, mounts)
    try:
        yield Found(f"/proc/self/fd/{file}", os.fstat(file))
    finally:
        os.close(file)


def check(disk: Disk) -> os.stat_result:
    """Return the stat of what is at ``disk.path``; raises as ``open_disk``."""
    with open_disk(disk) as opened:
        return opened.stat


def supports_discard(found: os.stat_result) -> bool:
    """Whether the block device supports discard, which UNMAP needs."""
    device = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    path = f"/sys/dev/block/{device}/queue/discard_max_bytes"
    try:
        with open(path, encoding="ascii") as limit:
            return int(limit.read()) > 0
    except (OSError, ValueError):
        return False


def _block(disk: Disk) -> os.stat_result:
    status = _stat(disk)
    need_its_device(disk, status)
    return status


def need_its_device(disk: Disk, found: os.stat_result) -> None:
    """Check that this is the disk's block device, by its name in device-mapper.

    A number may be another device's when a path is opened after a check: a removed
    volume leaves its link in /dev for a moment. That of an open device stays. So check
    what is open.

    :raises TargetFailed: it is not.
    """
    if not stat.S_ISBLK(found.st_mode):
        raise _refused(disk, "it is not a block device")
    kernel = device_mapper_name(found)
    expected = export_paths.device_mapper_name(disk)
    if kernel != expected:
        raise _refused(disk, f"device-mapper calls it {kernel!r}, not {expected!r}")


def _file(disk: Disk, kernel: Mounts) -> int:
    """Open a file by its name in its directory, without following links."""
    above, name = os.path.split(disk.path)
    try:
        directory = mounts.open_directory(above)
        try:
            _need_share(disk, directory, kernel.find(above))
            return _regular(disk, directory, name)
        finally:
            os.close(directory)
    except OSError as error:
        raise _refused(disk, error.strerror or str(error)) from None


def _need_share(disk: Disk, directory: int, mount: Mount | None) -> None:
    """Check that a share is mounted, if the directory is a share's mount point."""
    if not re.fullmatch(f".*/{POINT}", os.path.dirname(disk.path)):
        return
    if mount is None or os.fstat(directory).st_dev != mount.device:
        raise _refused(disk, "an NFS share is not mounted there")


def _regular(disk: Disk, directory: int, name: str) -> int:
    # Checked before the open, because opening some devices has an effect.
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
        raise _refused(disk, "it is not a regular file with one name")


def device_mapper_name(found: os.stat_result) -> str:
    """Return a device's name in device-mapper: a link in /dev may be stale."""
    return mapped_name(f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}")


def mapped_name(device: str) -> str:
    """Return the name in device-mapper of a device by its numbers; else empty."""
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
