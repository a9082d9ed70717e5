# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The logical volumes of a group, listed again only when LVM has changed it."""

from __future__ import annotations

from drivers.lvm.commands import Lvm
from drivers.lvm.report import LogicalVolume


class Listing:
    """What a periodic look needs, at a cost that stands still while nothing changes.

    LVM counts the commits of a group's metadata (vg_seqno, vgs(8)); every way to
    make, remove, rename or grow a logical volume is one. Threads may share it.
    """

    def __init__(self, lvm: Lvm) -> None:
        self._lvm = lvm
        self._seen: tuple[int, tuple[LogicalVolume, ...]] = (-1, ())

    def at(self, seqno: int) -> tuple[LogicalVolume, ...]:
        """The volumes at that commit, or at a later one.

        A commit that comes between the reading of ``seqno`` and the list is seen
        again at the next look, whose number is another one.
        """
        known, found = self._seen
        if known != seqno:
            found = self._lvm.volumes()
            self._seen = seqno, found
        return found
