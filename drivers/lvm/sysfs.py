# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of logical volumes without root, a process or LVM (sysfs)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK = Path("/sys/dev/block")
_MAPPED = Path("/sys/block")
#: What LVM calls the layer of a pool below its volumes.
POOL = "-tpool"


def pool_of(path: str, group: str) -> str:
    """The thin pool in which an active logical volume lies; empty if in none.

    :raises FileNotFoundError: there is no such device.
    """
    device = os.stat(path).st_rdev
    start = _BLOCK / f"{os.major(device)}:{os.minor(device)}"
    for name in _below(start):
        parts = names(name)
        if parts and parts[0] == group and parts[1].endswith(POOL):
            return parts[1].removesuffix(POOL)
    return ""


def suspended(group: str) -> tuple[str, ...]:
    """The logical volumes of a group, with LVM's own layers, that are suspended."""
    found = []
    for directory in _MAPPED.glob("dm-*/dm"):
        parts = names(_read(directory / "name"))
        if parts and parts[0] == group and _read(directory / "suspended") == "1":
            found.append(parts[1])
    return tuple(sorted(found))


def names(mapped: str) -> tuple[str, str] | None:
    """Group and logical volume of a name in the kernel; two hyphens stand for one."""
    parts = mapped.replace("--", "\0").split("-", 1)
    if len(parts) < 2:
        return None
    return parts[0].replace("\0", "-"), parts[1].replace("\0", "-")


def mapped(group: str, name: str) -> str:
    """What LVM calls it in the kernel: two hyphens for one, and one between."""
    return "-".join(each.replace("-", "--") for each in (group, name))


def _below(device: Path) -> Iterator[str]:
    """The names of the mapped devices on which it lies."""
    for lower in (device / "slaves").iterdir():
        if name := _read(lower / "dm" / "name"):
            yield name
            yield from _below(lower)


def _read(path: Path) -> str:
    """The text of an attribute; empty if it is not there."""
    try:
        return path.read_text("ascii").strip()
    except OSError:  # the device has gone meanwhile
        return ""
