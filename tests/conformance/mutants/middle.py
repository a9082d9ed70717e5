# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that keep the ends of a disk, and lose what is between them."""

from __future__ import annotations

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.fake_storage import BLOCK, FakeDisk

_ENDS = 64 * 1024


def hollow(disk: FakeDisk) -> None:
    """Forget everything between the first and the last 64 KiB."""
    first, last = _ENDS // BLOCK, (disk.size - _ENDS) // BLOCK
    for number in [n for n in disk.blocks or {} if first <= n < last]:
        del (disk.blocks or {})[number]


class CloneLosesTheMiddle(FakeVolumes):
    def create_from(self, volume, snapshot):
        there = volume.id in self.storage.disks
        disk = super().create_from(volume, snapshot)
        if not there:
            hollow(self.storage.disks[volume.id])
        return disk


class RevertLosesTheMiddle(FakeVolumes):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        hollow(self.storage.disks[snapshot.volume_id])
        return disk


class FillLosesTheMiddle(FakeVolumes):
    def fill(self, volume, source):
        super().fill(volume, source)
        hollow(self.storage.disks[volume.id])


class TakeOverLosesTheMiddle(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        hollow(disk)
        return disk


class GivingAwayLosesTheMiddle(FakeVolumes):
    def unmanage(self, volume_id):
        if volume_id in self.storage.disks:
            hollow(self.storage.disks[volume_id])
        super().unmanage(volume_id)


class ExtendLosesTheMiddle(FakeVolumes):
    def extend(self, volume):
        disk = super().extend(volume)
        hollow(self.storage.disks[volume.id])
        return disk


class CopyFillsHoles(FakeVolumes):
    """A hole of the snapshot shows what the room had before."""

    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        self.storage.write(volume.id, disk.size // 2 + 100 * BLOCK, b"an earlier one's")
        return disk


MIDDLE = [
    (CloneLosesTheMiddle, "a_clone_goes_its_own_way"),
    (CloneLosesTheMiddle, "a_killed_copy_is_finished_by_the_next"),
    (RevertLosesTheMiddle, "revert_gives_the_bytes_back_and_keeps_the_snapshot"),
    (FillLosesTheMiddle, "a_disk_gets_all_bytes_of_another"),
    (TakeOverLosesTheMiddle, "a_strangers_disk_becomes_a_volume_with_its_bytes"),
    (GivingAwayLosesTheMiddle, "a_volume_given_away_can_be_taken_back"),
    (ExtendLosesTheMiddle, "extend_keeps_bytes_and_adds_zeros"),
    (CopyFillsHoles, "a_volume_of_a_snapshot_goes_its_own_way"),
]
