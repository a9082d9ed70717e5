# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which paths of disks a target exports: those that show whose they are.

A rule of forms only, without I/O: the root helper adds to it what is really at the
path, and the kit holds what drivers show against it.
"""

from __future__ import annotations

import os
import re

from lunshare.drivers.values import Disk, DiskKind

_GROUP = r"[A-Za-z0-9_+][A-Za-z0-9_+.-]*"


def refused(disk: Disk) -> str:
    """Why a disk's path is of no form that is exported, or an empty text."""
    name = f"volume-{disk.volume_id}"
    if not disk.path.startswith("/") or os.path.normpath(disk.path) != disk.path:
        return "a disk's path is absolute, and has no . or .. or doubled / in it"
    if disk.kind is DiskKind.BLOCK:
        return "" if mapped_name(disk) else f"a block device is /dev/GROUP/{name}"
    if re.fullmatch(rf"{name}(\.[A-Za-z0-9_.-]+)?", os.path.basename(disk.path)):
        return ""
    return f"a file's name is {name}"


def mapped_name(disk: Disk) -> str | None:
    """What device-mapper must call a block device of that path; None: of no form."""
    name = f"volume-{disk.volume_id}"
    if plain := re.fullmatch(f"/dev/({_GROUP})/{name}", disk.path):
        return f"{doubled(plain[1])}-{doubled(name)}"
    mapped = re.fullmatch(rf"/dev/mapper/({_GROUP}-{doubled(name)})", disk.path)
    return mapped[1] if mapped else None


def doubled(name: str) -> str:
    """device-mapper joins group and volume with one hyphen and doubles their own."""
    return name.replace("-", "--")
