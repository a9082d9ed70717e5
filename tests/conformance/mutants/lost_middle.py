# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that preserve the ends of a disk, and lose its middle."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import BLOCK, FakeDisk
from tests.conformance.mutants.caught import caught_by

_ENDS = 64 * 1024


def hollow(disk: FakeDisk) -> None:
    """Erase everything between the first and the last 64 KiB."""
    first, last = _ENDS // BLOCK, (disk.size - _ENDS) // BLOCK
    for number in [n for n in disk.blocks or {} if first <= n < last]:
        del (disk.blocks or {})[number]


@caught_by(
    "a_clone_is_independent_of_its_source",
    "a_killed_create_from_is_finished_by_a_retry",
)
class CloneLosesTheMiddle(FakeVolumes):
    def create_from(self, volume, snapshot):
        there = volume.id in self.storage.disks
        disk = super().create_from(volume, snapshot)
        if not there:
            hollow(self.storage.disks[volume.id])
        return disk


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertLosesTheMiddle(FakeVolumes):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        hollow(self.storage.disks[snapshot.volume_id])
        return disk


@caught_by("fill_copies_all_bytes")
class FillLosesTheMiddle(FakeVolumes):
    def fill(self, volume, source):
        super().fill(volume, source)
        hollow(self.storage.disks[volume.id])


@caught_by("manage_preserves_the_bytes_of_a_disk")
class ManageLosesTheMiddle(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        hollow(disk)
        return disk


@caught_by("an_unmanaged_volume_can_be_managed_again")
class UnmanageLosesTheMiddle(FakeVolumes):
    def unmanage(self, volume_id):
        if volume_id in self.storage.disks:
            hollow(self.storage.disks[volume_id])
        super().unmanage(volume_id)


@caught_by("extend_preserves_bytes_and_adds_zeros")
class ExtendLosesTheMiddle(FakeVolumes):
    def extend(self, volume):
        disk = super().extend(volume)
        hollow(self.storage.disks[volume.id])
        return disk


@caught_by("a_volume_from_a_snapshot_is_independent")
class CopyHasOldBytesInHoles(FakeVolumes):
    """A hole of the snapshot shows old bytes of the pool."""

    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        self.storage.write(volume.id, disk.size // 2 + 100 * BLOCK, b"an earlier one's")
        return disk
