# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the error messages of LVM's commands mean.

LVM exits with code 5 on every error, so the message must be matched. The messages
are those of lvm2 2.03.16 in the C locale, which the root helper sets.
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


def not_found(error: CommandFailed) -> bool:
    """The logical volume does not exist."""
    return _matches(
        error,
        "Failed to find logical volume|Logical volume .* not found"
        "|Existing logical volume .* not found|origin LV .* not found"
        "|Origin volume .* not found|find origin volume",
    )


def group_not_found(error: CommandFailed) -> bool:
    """The volume group does not exist."""
    return _matches(error, 'Volume group "[^"]*" not found')


def exists(error: CommandFailed) -> bool:
    """A logical volume of that name exists."""
    return _matches(error, "already exists in volume group")


def in_use(error: CommandFailed) -> bool:
    """It is open, mounted, or used by another device."""
    return _matches(error, " in use|is used by another device")


def large_enough(error: CommandFailed) -> bool:
    """It already has that size or more."""
    return _matches(error, "matches existing size|not larger than existing size")


def unknown_group(group: str) -> Misconfigured:
    """Return the error for a volume group that does not exist, or vanished.

    LVM says the same of a group whose disk answers every read with an I/O error.
    """
    return Misconfigured(
        f"volume_group {group}: there is no such volume group",
        "check whether its disks are present and can be read (pvs, dmesg); on a new"
        f" node, create it with: vgcreate {group} /dev/DISK",
    )


@contextmanager
def translate_group_errors(group: str) -> Iterator[None]:
    """Raise Misconfigured for a volume group that does not exist.

    All other errors pass unchanged.
    """
    try:
        yield
    except CommandFailed as error:
        if group_not_found(error):
            raise unknown_group(group) from error
        raise


@contextmanager
def translate_errors(group: str, pool: str, volume_id: str) -> Iterator[None]:
    """Raise the contract's error instead of LVM's failure on one volume.

    ``pool`` is the name for NoSpace: that of a thin pool, or of the group. Failures
    whose message is not known pass unchanged.

    :raises UnknownDisk: the logical volume does not exist.
    :raises DiskBusy: it is open.
    :raises NoSpace: the pool is full.
    :raises Misconfigured: the volume group does not exist.
    """
    try:
        with translate_group_errors(group):
            yield
    except CommandFailed as error:
        if not_found(error):
            raise UnknownDisk(volume_id) from error
        if in_use(error):
            why = "its logical volume is open; remove its export first"
            raise DiskBusy(volume_id, why) from error
        raise
    except NoSpace as error:  # the helper's names the group
        raise NoSpace(pool, error.why) from error


def _matches(error: CommandFailed, pattern: str) -> bool:
    return re.search(pattern, error.stderr, re.IGNORECASE) is not None
