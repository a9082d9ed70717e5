# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths of disks a target exports: those that name their volume.

This checks the form of a path only, without I/O. The root helper also checks what is
at the path. The conformance kit tests the paths that drivers return against this.
"""

from __future__ import annotations

import os
import re

from lunshare.drivers.values import Disk, DiskKind

_GROUP = r"[A-Za-z0-9_+][A-Za-z0-9_+.-]*"


def rejection(disk: Disk) -> str:
    """Return why no target exports a disk with this path, or an empty text."""
    name = f"volume-{disk.volume_id}"
    if not disk.path.startswith("/") or os.path.normpath(disk.path) != disk.path:
        return "a disk's path is absolute, and has no . or .. or doubled / in it"
    if disk.kind is DiskKind.BLOCK:
        return (
            "" if device_mapper_name(disk) else f"a block device is /dev/GROUP/{name}"
        )
    if re.fullmatch(rf"{name}(\.[A-Za-z0-9_.-]+)?", os.path.basename(disk.path)):
        return ""
    return f"a file's name is {name}"


def device_mapper_name(disk: Disk) -> str | None:
    """Return the device-mapper name of a block device; None if its path has no form."""
    name = f"volume-{disk.volume_id}"
    if plain := re.fullmatch(f"/dev/({_GROUP})/{name}", disk.path):
        return f"{double_hyphens(plain[1])}-{double_hyphens(name)}"
    mapped = re.fullmatch(rf"/dev/mapper/({_GROUP}-{double_hyphens(name)})", disk.path)
    return mapped[1] if mapped else None


def double_hyphens(name: str) -> str:
    """Double the hyphens, as device-mapper does: one hyphen separates its names."""
    return name.replace("-", "--")
