# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths of disks a target exports: those that name their volume.

This checks the form of a path only, without I/O. The root helper uses it, and also
checks what is at the path. The conformance kit tests the paths of drivers with it.
"""

from __future__ import annotations

import os
import re

from lunshare.drivers.values import Disk, DiskKind

_GROUP = re.compile("[A-Za-z0-9_+][A-Za-z0-9_+.-]*")
_MAPPED = re.compile("(?:[A-Za-z0-9_+.]|--)+")  # a group's name in device-mapper


def path_problem(disk: Disk) -> str:
    """Return why no target exports a disk with this path, or ""."""
    name = f"volume-{disk.volume_id}"
    if not disk.path.startswith("/") or os.path.normpath(disk.path) != disk.path:
        return "a disk's path is absolute, and has no . or .. or doubled / in it"
    if disk.kind is DiskKind.BLOCK:
        return "" if group_of(disk) else f"a volume's disk is /dev/GROUP/{name}"
    if re.fullmatch(rf"{name}(\.[A-Za-z0-9_.-]+)?", os.path.basename(disk.path)):
        return ""
    return f"a file's name is {name}"


def group_of(disk: Disk) -> str | None:
    """Return the volume group in the path of a block device; None if it has no form.

    In ``/dev/mapper`` the group's own hyphens are doubled, and a single hyphen
    separates it from the volume. So no name of another volume can end in this one.
    """
    above, _, name = disk.path.rpartition("/")
    volume = f"volume-{disk.volume_id}"
    if name == volume and above.startswith("/dev/"):
        group = above.removeprefix("/dev/")
        return group if _GROUP.fullmatch(group) else None
    ending = f"-{double_hyphens(volume)}"
    if above != "/dev/mapper" or not name.endswith(ending):
        return None
    mapped = name.removesuffix(ending)
    return mapped.replace("--", "-") if _MAPPED.fullmatch(mapped) else None


def device_mapper_name(disk: Disk) -> str | None:
    """Return the device-mapper name of a block device; None if its path has no form."""
    group = group_of(disk)
    return group and f"{double_hyphens(group)}-volume--{double_hyphens(disk.volume_id)}"


def double_hyphens(name: str) -> str:
    """Double hyphens as device-mapper does; a single one joins group and volume."""
    return name.replace("-", "--")
