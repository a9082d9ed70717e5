# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every command the LVM driver runs as root, and what their failures mean.

Each shape has its line in rootwrap.d/lvm.filters, in the same order; a test
holds the two together. Sizes are bytes; LVM rounds them up to whole extents.
"""

from __future__ import annotations

import re

from drivers.base import Root
from drivers.errors import CommandFailed
from drivers.lvm import report

_JSON = ("--reportformat", "json", "--units", "b", "--nosuffix")

# LVM keeps the metadata before each change in /etc/lvm/archive, for 30 days, and looks
# at each of those files before it adds one (lvm2 2.03.16): with 1,700 of them
# lvremove took 1.1 s instead of 0.6 in the lab. What it keeps after each change, in
# /etc/lvm/backup, is what a lost group is restored from.
_NO_ARCHIVE = ("--config", "backup/archive=0")

# What we name "volume-<uuid>". LVM's own expressions have no {n}, so this is
# as near as they come; replies are read with the exact form.
_HEX = "[0-9a-f]+"
_OURS = f'lv_name=~"^volume-{_HEX}-{_HEX}-{_HEX}-{_HEX}-{_HEX}$"'

# A wipe slower than this is taken for hung. A worn disk does five times more.
_WIPE_FLOOR = 10 * 1024**2


class Lvm:
    """The commands on one volume group. All raise what ``Root.run`` raises."""

    def __init__(self, root: Root, group: str, timeout: float) -> None:
        self._root, self._group, self._timeout = root, group, timeout

    # Questions

    def group(self) -> report.VolumeGroup:
        """How large the volume group is and what is free."""
        text = self._run("vgs", *_JSON, "-o", "vg_size,vg_free", self._group)
        return report.volume_groups(text)[0]

    def pool(self, name: str) -> report.Pool | None:
        """The thin pool of that name; None if the name is something else."""
        fields = "lv_size,segtype,zero,data_percent,metadata_percent"
        text = self._run("lvs", *_JSON, "-o", fields, f"{self._group}/{name}")
        found = report.pools(text)
        return found[0] if found else None

    def volumes(self) -> tuple[report.LogicalVolume, ...]:
        """Every logical volume of the group. These fields need no ioctl per row."""
        fields = "lv_name,lv_size,pool_lv"
        text = self._run("lvs", *_JSON, "-o", fields, self._group)
        return report.logical_volumes(text)

    def parts(self, name: str) -> dict[str, int]:
        """The sizes of those that exist of a volume and its half-made parts."""
        fields, select = "lv_name,lv_size,pool_lv", f'lv_name=~"^{name}"'
        text = self._run("lvs", *_JSON, "-o", fields, "--select", select, self._group)
        return {lv.name: lv.size for lv in report.logical_volumes(text)}

    def segments(self, name: str) -> tuple[report.Segment, ...]:
        """On which extents of which physical volumes it lies."""
        fields = "seg_size,seg_pe_ranges"
        text = self._run(
            "lvs", *_JSON, "--segments", "-o", fields, f"{self._group}/{name}"
        )
        return report.segments(text)

    # Changes

    def create_thick(self, name: str, size: int) -> None:
        """Make a linear volume; its bytes are whatever the extents held."""
        self._change("lvcreate", "--yes", "-n", name, "-L", _sectors(size), self._group)

    def create_thin(self, name: str, size: int, pool: str) -> None:
        """Make a thin volume; it reads as zeros."""
        where = f"{self._group}/{pool}"
        virtual = ("--thin", "--virtualsize", _sectors(size))
        self._change("lvcreate", "--yes", *virtual, "-n", name, where)

    def remove(self, name: str) -> None:
        """Remove one that is not open."""
        self._change("lvremove", "--yes", f"{self._group}/{name}")

    def rename(self, old: str, new: str) -> None:
        """Give it another name, in one commit of LVM's metadata."""
        self._change("lvrename", self._group, old, new)

    def extend(self, name: str, size: int, *extents: str) -> None:
        """Grow it to ``size``, onto these ``extents`` alone if given."""
        where = f"{self._group}/{name}"
        self._change("lvextend", "-L", _sectors(size), where, *extents)

    def activate(self, name: str) -> None:
        """Make its node appear; ``-K`` also those marked to be skipped."""
        self._change("lvchange", "-ay", "-K", f"{self._group}/{name}")

    def activate_all(self) -> None:
        """Make the nodes of all our volumes appear, in one command."""
        self._change("lvchange", "-ay", "-K", "--select", _OURS, self._group)

    def wipe(self, name: str, size: int) -> None:
        """Overwrite every byte with zeros, down to the medium.

        BLKZEROOUT lets the device do it where it can and writes pages of
        zeros where it cannot, so it always reads back as zeros. It orders no
        cache flush; the sync does, so that zeros outlive a power cut.
        """
        path, seconds = self.path(name), self._timeout + wipe_seconds(size)
        self._root.run("blkdiscard", "--zeroout", path, timeout=seconds)
        self._root.run("sync", path, timeout=seconds)

    def path(self, name: str) -> str:
        """Where udev puts its node."""
        return f"/dev/{self._group}/{name}"

    def _run(self, *argv: str) -> str:
        return self._root.run(*argv, timeout=self._timeout)

    def _change(self, program: str, *argv: str) -> None:
        self._run(program, *_NO_ARCHIVE, *argv)


def wipe_seconds(size: int) -> float:
    """How long the wipe of so many bytes may take."""
    return size / _WIPE_FLOOR


def _sectors(size: int) -> str:
    """A size as LVM takes it: it refuses what is no multiple of 512 bytes."""
    return f"{-(-size // 512) * 512}b"


# LVM answers exit code 5 to everything, so its sentences must do. They are those
# of lvm2 2.03.16 in the C locale, which the root helper sets.


def missing(error: CommandFailed) -> bool:
    """There is no such logical volume."""
    return _says(error, "Failed to find logical volume|Logical volume .* not found")


def group_missing(error: CommandFailed) -> bool:
    """There is no such volume group."""
    return _says(error, "Volume group .* not found")


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


def _says(error: CommandFailed, sentence: str) -> bool:
    return re.search(sentence, error.stderr, re.IGNORECASE) is not None
