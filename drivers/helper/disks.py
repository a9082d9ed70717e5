# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths may be exported: the volume's own disk, and nothing else of the node.

The daemon names the path, and the daemon may have been taken over. So a path
must carry the volume's own id, and must be what it says it is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from drivers.errors import TargetFailed
from drivers.values import Disk, DiskKind

_GROUP = r"[A-Za-z0-9_+][A-Za-z0-9_+.-]*"


def checked(disk: Disk) -> os.stat_result:
    """Return what is at ``disk.path``, if the volume's export may open it.

    :raises TargetFailed: it is of another form, another volume's, missing, or
        not the block device or regular file that it should be.
    """
    if disk.kind is DiskKind.BLOCK:
        return _block(disk)
    return _file(disk)


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
    plain = re.fullmatch(f"/dev/({_GROUP})/{name}", disk.path)
    mapped = re.fullmatch(rf"/dev/mapper/({_GROUP}-{_doubled(name)})", disk.path)
    if plain is None and mapped is None:
        raise _refused(disk, f"a block device is /dev/GROUP/{name}")
    found = _stat(disk)
    if not stat.S_ISBLK(found.st_mode):
        raise _refused(disk, "it is no block device")
    kernel = _kernel_name(found)
    wanted = mapped[1] if mapped else f"{_doubled(plain[1])}-{_doubled(name)}"  # type: ignore[index]
    if kernel != wanted:
        raise _refused(disk, f"device-mapper calls it {kernel!r}, not {wanted!r}")
    return found


def _file(disk: Disk) -> os.stat_result:
    form = rf"volume-{disk.volume_id}(\.[A-Za-z0-9_.-]+)?"
    if not re.fullmatch(form, os.path.basename(disk.path)):
        raise _refused(disk, f"a file's name is volume-{disk.volume_id}")
    if "," in disk.path or os.path.realpath(disk.path) != disk.path:
        raise _refused(disk, "the path must be absolute, without links or commas")
    found = _stat(disk)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise _refused(disk, "it is no regular file with one name")
    if movable := next(filter(_movable, _upwards(disk.path)), None):
        # The kernel opens the path once more, and follows whatever is there then.
        raise _refused(disk, f"someone other than root could move {movable}")
    return found


def _upwards(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)


def _movable(path: str) -> bool:
    """Whether anyone but root could put something else in its place.

    In a directory that is shared and sticky, only its owner could (unlink(2)).
    """
    above, root = os.lstat(os.path.dirname(path)), (0, os.geteuid())
    shared = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    kept = above.st_mode & stat.S_ISVTX and os.lstat(path).st_uid in root
    return above.st_uid not in root or bool(shared and not kept)


def _kernel_name(found: os.stat_result) -> str:
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


def _doubled(name: str) -> str:
    """device-mapper joins group and volume with one hyphen and doubles their own."""
    return name.replace("-", "--")


def _refused(disk: Disk, why: str) -> TargetFailed:
    return TargetFailed(disk.volume_id, f"disk {disk.path!r}: {why}")
