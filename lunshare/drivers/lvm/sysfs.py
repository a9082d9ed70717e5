# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logical volumes in sysfs: read without root, without a process, without LVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK = Path("/sys/dev/block")
_MAPPED = Path("/sys/block")
#: LVM's suffix for the device of a pool below its volumes.
POOL_LAYER = "-tpool"


def thin_pool_of(path: str, group: str) -> str:
    """Return the thin pool of an active logical volume; empty if it is not thin.

    :raises FileNotFoundError: the device does not exist.
    """
    device = os.stat(path).st_rdev
    start = _BLOCK / f"{os.major(device)}:{os.minor(device)}"
    for name in _below(start):
        parts = split_name(name)
        if parts and parts[0] == group and parts[1].endswith(POOL_LAYER):
            return parts[1].removesuffix(POOL_LAYER)
    return ""


def suspended(group: str) -> tuple[str, ...]:
    """Return the suspended logical volumes of a group, LVM's own layers included."""
    found = []
    for directory in _MAPPED.glob("dm-*/dm"):
        parts = split_name(_read(directory / "name"))
        if parts and parts[0] == group and _read(directory / "suspended") == "1":
            found.append(parts[1])
    return tuple(sorted(found))


def split_name(mapped: str) -> tuple[str, str] | None:
    """Split a device-mapper name into group and logical volume; None if it has no two.

    Two hyphens stand for one.
    """
    parts = mapped.replace("--", "\0").split("-", 1)
    if len(parts) < 2:
        return None
    return parts[0].replace("\0", "-"), parts[1].replace("\0", "-")


def device_mapper_name(group: str, name: str) -> str:
    """Return the device-mapper name: hyphens are doubled, a single one separates."""
    return "-".join(each.replace("-", "--") for each in (group, name))


def _below(device: Path) -> Iterator[str]:
    """Yield the device-mapper names of the devices below this one."""
    for lower in (device / "slaves").iterdir():
        if name := _read(lower / "dm" / "name"):
            yield name
            yield from _below(lower)


def _read(path: Path) -> str:
    """Return the text of an attribute; empty if it does not exist."""
    try:
        return path.read_text("ascii").strip()
    except OSError:  # the device was removed meanwhile
        return ""
