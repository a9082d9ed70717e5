# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What LVM's failures mean.

LVM answers exit code 5 to everything, so its sentences must do. They are those
of lvm2 2.03.16 in the C locale, which the root helper sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lunshare.drivers.errors import (
    CommandFailed,
    DiskBusy,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)


def missing(error: CommandFailed) -> bool:
    """There is no such logical volume."""
    return _says(
        error,
        "Failed to find logical volume|Logical volume .* not found"
        "|Existing logical volume .* not found|origin LV .* not found"
        "|Origin volume .* not found|find origin volume",
    )


def group_missing(error: CommandFailed) -> bool:
    """There is no such volume group."""
    return _says(error, 'Volume group "[^"]*" not found')


def exists(error: CommandFailed) -> bool:
    """The name is taken."""
    return _says(error, "already exists in volume group")


def in_use(error: CommandFailed) -> bool:
    """It is open, mounted, or below another device."""
    return _says(error, " in use|is used by another device")


def full(error: CommandFailed) -> bool:
    """No extents are left, or the thin pool must take no more."""
    return _says(
        error,
        "insufficient free space|insufficient suitable|reached threshold"
        "|out of (data|metadata) space",
    )


def large_enough(error: CommandFailed) -> bool:
    """It has that size or more already."""
    return _says(error, "matches existing size|not larger than existing size")


def no_group(group: str) -> Misconfigured:
    """The volume group is not there, or no more."""
    return Misconfigured(
        f"volume_group {group}: there is no such volume group",
        f"see whether its disks are there (pvs); a new one is made with: vgcreate"
        f" {group} /dev/DISK",
    )


@contextmanager
def told_of_group(group: str) -> Iterator[None]:
    """A volume group that is not there is told as such; anything else passes.

    :raises Misconfigured: there is no such volume group.
    """
    try:
        yield
    except CommandFailed as error:
        if group_missing(error):
            raise no_group(group) from error
        raise


@contextmanager
def told(group: str, room: str, volume_id: str) -> Iterator[None]:
    """Turn what LVM said of a volume into what the contract says.

    ``room`` is what runs out of room. Other failures pass.
    """
    try:
        with told_of_group(group):
            yield
    except CommandFailed as error:
        if missing(error):
            raise UnknownDisk(volume_id) from error
        if in_use(error):
            why = "its logical volume is open; remove its export first"
            raise DiskBusy(volume_id, why) from error
        if full(error):
            raise NoSpace(room, error.stderr.strip()) from error
        raise


def _says(error: CommandFailed, sentence: str) -> bool:
    return re.search(sentence, error.stderr, re.IGNORECASE) is not None
