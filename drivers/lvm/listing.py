# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A group and its logical volumes, read again only when LVM has changed them."""

from __future__ import annotations

from dataclasses import dataclass

from drivers.errors import CommandFailed
from drivers.lvm.commands import Lvm
from drivers.lvm.report import Commit, LogicalVolume, VolumeGroup


@dataclass(frozen=True, slots=True)
class Listed:
    """The volumes are those of the group's commit, or of a later one.

    ``commit`` is None while no disk tells of the group's.
    """

    group: VolumeGroup
    volumes: tuple[LogicalVolume, ...]
    commit: Commit | None


class Listing:
    """What a periodic look needs, at a cost that stands still while nothing changes.

    LVM counts the commits of a group's metadata (vg_seqno, vgs(8)); every way to
    make, remove, rename or grow a logical volume is one. The number is read off one
    disk of the group, with the metadata's checksum, for vgcfgrestore(8) gives
    numbers a second time. vgs and lvs build every volume of the group before they
    answer anything (5,000: 5 s in the lab). Threads may share it.
    """

    def __init__(self, lvm: Lvm) -> None:
        self._lvm = lvm
        self._seen: Listed | None = None

    def now(self) -> Listed:
        """As LVM has it now.

        A commit that comes between the reading of the group and of its volumes is
        seen again by the next call, whose number is another one.
        """
        seen = self._seen
        if (
            seen is None
            or seen.commit is None
            or self._commit(seen.group) != seen.commit
        ):
            group = self._lvm.group()
            commit = self._commit(group)
            seen = self._seen = Listed(group, self._lvm.volumes(), commit)
        return seen

    def _commit(self, group: VolumeGroup) -> Commit | None:
        """That of the group, if a disk tells of it."""
        try:
            found = self._lvm.commit(group.device) if group.device else None
        except CommandFailed:  # the disk may be gone: LVM itself says so better
            return None
        told = found and (found.group, found.seqno) == (self._lvm.name, group.seqno)
        return found if told else None
