# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about disks, their bytes and their space."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import NoSpace, UnknownDisk
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import FakeDisk
from lunshare.drivers.values import Capacity, Disk
from tests.conformance.mutants.caught import caught_by


@caught_by("a_retried_create_changes_nothing")
class RetriedCreateErasesTheDisk(FakeVolumes):
    def create(self, volume):
        self.storage.drop(volume.id)
        return super().create(volume)


@caught_by("create_rounds_an_odd_size_up")
class CreateRoundsDown(FakeVolumes):
    def create(self, volume):
        return super().create(type(volume)(volume.id, volume.size & ~4095))


@caught_by("create_in_a_full_pool_leaves_nothing")
class CreateLeavesADiskInAFullPool(FakeVolumes):
    def create(self, volume):
        try:
            return super().create(volume)
        except NoSpace:
            self.storage.create(volume.id, volume.size).complete = True
            raise


@caught_by("create_finishes_an_incomplete_disk")
class CreateReturnsAnIncompleteDisk(FakeVolumes):
    def create(self, volume):
        if volume.id in self.storage.disks:
            return self._as_disk(volume.id, self.storage.disks[volume.id])
        return super().create(volume)


@caught_by("create_with_a_larger_size_extends_the_disk")
class CreateDoesNotExtendADisk(FakeVolumes):
    def create(self, volume):
        made = self.storage.disks.get(volume.id)
        if made is not None and made.complete:
            return self._as_disk(volume.id, made)
        return super().create(volume)


@caught_by("a_new_volume_shows_no_bytes_of_a_deleted_one")
class DeletedBytesAreShownAgain(FakeVolumes):
    attic: dict[str, Any] = {}

    def delete(self, volume_id):
        self.attic[volume_id] = self.storage.disks.get(volume_id)
        super().delete(volume_id)

    def create(self, volume):
        disk = super().create(volume)
        if old := self.attic.get(volume.id):
            self.storage.disks[volume.id].blocks = old.blocks
        return disk


@caught_by("delete_of_an_unknown_volume_succeeds")
class DeleteOfAnUnknownVolumeFails(FakeVolumes):
    def delete(self, volume_id):
        self.disk(volume_id)
        super().delete(volume_id)


@caught_by("delete_refuses_an_open_disk")
class DeleteIgnoresOpenDisks(FakeVolumes):
    def delete(self, volume_id):
        self.storage.drop(volume_id)


@caught_by("extend_preserves_bytes_and_adds_zeros")
class ExtendLosesTheBytes(FakeVolumes):
    def extend(self, volume):
        self._complete_disk(volume.id).blocks = None
        return super().extend(volume)


@caught_by("extend_to_a_smaller_size_changes_nothing")
class ExtendShrinks(FakeVolumes):
    def extend(self, volume):
        disk = self._complete_disk(volume.id)
        disk.size = min(disk.size, volume.size)
        return super().extend(volume)


@caught_by("disk_of_an_unknown_volume_fails")
class DiskOfAnUnknownVolumeIsReturned(FakeVolumes):
    def disk(self, volume_id):
        try:
            return super().disk(volume_id)
        except UnknownDisk:
            return Disk(volume_id, "/dev/fake-none/volume-none", 0)


@caught_by("disks_lists_exactly_the_created_disks")
class DisksAreRememberedInMemory(FakeVolumes):
    mine: dict[str, Disk] | None = None

    def create(self, volume):
        disk = super().create(volume)
        self.mine = {**(self.mine or {}), volume.id: disk}
        return disk

    def disks(self):
        return tuple((self.mine or {}).values())


@caught_by("foreign_disks_are_not_listed_or_changed")
class DeleteDeletesForeignDisks(FakeVolumes):
    def delete(self, volume_id):
        super().delete(volume_id)
        self.storage.foreign_disks.clear()


@caught_by("capacity_counts_provisioned_space")
class CapacityCountsNothing(FakeVolumes):
    def capacity(self):
        return Capacity(self._total, self._total, 0, self._thin)


@caught_by("check_reports_a_missing_pool")
class CheckReportsNothing(FakeVolumes):
    def check(self):
        pass


@caught_by("capacity_counts_provisioned_space")
class CapacityCountsDeletedDisks(FakeVolumes):
    def delete(self, volume_id):
        disk = self.storage.disks.get(volume_id)
        super().delete(volume_id)
        self.storage.provisioned += disk.size if disk else 0


@caught_by("capacity_reports_a_full_pool")
class CapacityIsNeverClosed(FakeVolumes):
    bound = {"options": {"fake_thin": True, "fake_capacity_gb": 1}}

    def capacity(self):
        seen = super().capacity()
        return Capacity(seen.total, seen.free, seen.provisioned, seen.thin)


@caught_by("extend_into_freed_space_shows_no_old_bytes")
class ExtendShowsOldBytes(FakeVolumes):
    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        disk = super().extend(volume)
        self.storage.write(volume.id, old, b"an earlier owner's")
        return disk


@caught_by("extend_in_a_full_pool_changes_nothing")
class ExtendDoesNotCheckFreeSpace(FakeVolumes):
    def _require_space(self, size):
        pass


@caught_by("the_last_sector_of_a_disk_can_be_written")
class SizesAreNotRounded(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].size = volume.size
        return Disk(volume.id, disk.path, volume.size)


class _RoundsWritesToBlocks(FakeDisk):
    """Writes complete blocks only, and pads the others with zeros."""

    __slots__ = ()

    def write(self, offset, data):
        start, end = offset % 4096, -(offset + len(data)) % 4096
        return super().write(offset - start, bytes(start) + data + bytes(end))


@caught_by("a_write_changes_only_its_own_sectors")
class WritesAreRoundedToBlocks(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].__class__ = _RoundsWritesToBlocks
        return disk


class _DiscardsMore(FakeDisk):
    __slots__ = ()

    def discard(self, offset, length):
        return super().discard(max(0, offset - 65536), length)


@caught_by("a_discard_changes_only_the_discarded_range")
class DiscardsMoreThanRequested(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].__class__ = _DiscardsMore
        return disk


@caught_by("volumes_do_not_share_bytes")
class AllDisksShareBytes(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        shared: dict[int, bytearray] = {}
        for each in self.storage.disks.values():
            each.blocks = shared
        return disk


@caught_by("an_id_that_is_not_a_uuid_is_refused")
class AnyIdIsAccepted(FakeVolumes):
    def delete(self, volume_id):
        self.storage.drop(volume_id)


@caught_by("check_activates_disks_after_a_reboot")
class DisksAreLostAtRestart(FakeVolumes):
    """It does not activate its disks after a restart."""

    def __init__(self, *given):
        super().__init__(*given)
        self.storage.disks.clear()
