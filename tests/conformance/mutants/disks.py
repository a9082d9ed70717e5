# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about disks, their bytes and their room."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import NoSpace, UnknownDisk
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.fake_storage import FakeDisk
from lunshare.drivers.values import Capacity, Disk


class CreateWipesWhatIsThere(FakeVolumes):
    def create(self, volume):
        self.storage.drop(volume.id)
        return super().create(volume)


class CreateRoundsDown(FakeVolumes):
    def create(self, volume):
        return super().create(type(volume)(volume.id, volume.size & ~4095))


class CreateLeavesRubbishInAFullPool(FakeVolumes):
    def create(self, volume):
        try:
            return super().create(volume)
        except NoSpace:
            self.storage.create(volume.id, volume.size).complete = True
            raise


class CreateTakesHalfMadeForWhole(FakeVolumes):
    def create(self, volume):
        if volume.id in self.storage.disks:
            return self._as_disk(volume.id, self.storage.disks[volume.id])
        return super().create(volume)


class CreateAgainIsTooSmall(FakeVolumes):
    def create(self, volume):
        made = self.storage.disks.get(volume.id)
        if made is not None and made.complete:
            return self._as_disk(volume.id, made)
        return super().create(volume)


class DeleteKeepsTheBytes(FakeVolumes):
    attic: dict[str, Any] = {}

    def delete(self, volume_id):
        self.attic[volume_id] = self.storage.disks.get(volume_id)
        super().delete(volume_id)

    def create(self, volume):
        disk = super().create(volume)
        if old := self.attic.get(volume.id):
            self.storage.disks[volume.id].blocks = old.blocks
        return disk


class DeleteOfTheUnknownFails(FakeVolumes):
    def delete(self, volume_id):
        self.disk(volume_id)
        super().delete(volume_id)


class DeleteIgnoresWhoHasItOpen(FakeVolumes):
    def delete(self, volume_id):
        self.storage.drop(volume_id)


class ExtendLosesTheBytes(FakeVolumes):
    def extend(self, volume):
        self._complete_disk(volume.id).blocks = None
        return super().extend(volume)


class ExtendShrinks(FakeVolumes):
    def extend(self, volume):
        disk = self._complete_disk(volume.id)
        disk.size = min(disk.size, volume.size)
        return super().extend(volume)


class DiskOfTheUnknownIsMadeUp(FakeVolumes):
    def disk(self, volume_id):
        try:
            return super().disk(volume_id)
        except UnknownDisk:
            return Disk(volume_id, "/dev/fake-none/volume-none", 0)


class DisksAreRememberedNotLookedUp(FakeVolumes):
    mine: dict[str, Disk] | None = None

    def create(self, volume):
        disk = super().create(volume)
        self.mine = {**(self.mine or {}), volume.id: disk}
        return disk

    def disks(self):
        return tuple((self.mine or {}).values())


class DeleteTakesForeignDisksToo(FakeVolumes):
    def delete(self, volume_id):
        super().delete(volume_id)
        self.storage.foreign_disks.clear()


class CapacityCountsNothing(FakeVolumes):
    def capacity(self):
        return Capacity(self._total, self._total, 0, self._thin)


class CheckIsSilent(FakeVolumes):
    def check(self):
        pass


class CapacityKeepsWhatWasDeleted(FakeVolumes):
    def delete(self, volume_id):
        disk = self.storage.disks.get(volume_id)
        super().delete(volume_id)
        self.storage.provisioned += disk.size if disk else 0


class CapacityIsNeverClosed(FakeVolumes):
    bound = {
        "options": {"fake_thin": True, "fake_capacity_gb": 1},
    }

    def capacity(self):
        seen = super().capacity()
        return Capacity(seen.total, seen.free, seen.provisioned, seen.thin)


class ExtendShowsWhatWasThere(FakeVolumes):
    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        disk = super().extend(volume)
        self.storage.write(volume.id, old, b"an earlier owner's")
        return disk


class ExtendTakesRoomUnasked(FakeVolumes):
    def _require_space(self, size):
        pass


class SizesAreNotRounded(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].size = volume.size
        return Disk(volume.id, disk.path, volume.size)


class _WholeBlocks(FakeDisk):
    """Writes whole blocks only, and rounds the others out with zeros."""

    __slots__ = ()

    def write(self, offset, data):
        start, end = offset % 4096, -(offset + len(data)) % 4096
        return super().write(offset - start, bytes(start) + data + bytes(end))


class WritesRoundOut(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].__class__ = _WholeBlocks
        return disk


class _DiscardsMore(FakeDisk):
    __slots__ = ()

    def discard(self, offset, length):
        return super().discard(max(0, offset - 65536), length)


class DiscardsReachFurther(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        self.storage.disks[volume.id].__class__ = _DiscardsMore
        return disk


class DisksOfOneSizeShareBytes(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        shared: dict[int, bytearray] = {}
        for each in self.storage.disks.values():
            each.blocks = shared
        return disk


class AnyNameIsTaken(FakeVolumes):
    def delete(self, volume_id):
        self.storage.drop(volume_id)


class CheckActivatesNothing(FakeVolumes):
    """As a driver that forgets its disks at a restart."""

    def __init__(self, *given):
        super().__init__(*given)
        self.storage.disks.clear()


DISKS = [
    (CreateWipesWhatIsThere, "create_again_changes_nothing"),
    (CreateRoundsDown, "create_rounds_an_odd_size_up"),
    (CreateLeavesRubbishInAFullPool, "create_in_a_full_pool_leaves_nothing"),
    (CreateTakesHalfMadeForWhole, "create_finishes_what_was_half_made"),
    (CreateAgainIsTooSmall, "create_again_larger_grows_it"),
    (DeleteKeepsTheBytes, "a_later_volume_shows_nothing_of_a_deleted_one"),
    (DeleteOfTheUnknownFails, "delete_of_the_unknown_is_success"),
    (DeleteIgnoresWhoHasItOpen, "delete_refuses_a_disk_that_is_open"),
    (ExtendLosesTheBytes, "extend_keeps_bytes_and_adds_zeros"),
    (ExtendShrinks, "extend_never_shrinks"),
    (DiskOfTheUnknownIsMadeUp, "disk_of_the_unknown_is_refused"),
    (DisksAreRememberedNotLookedUp, "disks_are_those_made_and_no_others"),
    (DeleteTakesForeignDisksToo, "foreign_disks_are_neither_listed_nor_touched"),
    (CapacityCountsNothing, "capacity_counts_what_is_promised"),
    (CheckIsSilent, "check_names_a_missing_pool"),
    (CapacityKeepsWhatWasDeleted, "capacity_counts_what_is_promised"),
    (CapacityIsNeverClosed, "a_full_pool_says_so_before_anybody_asks"),
    (ExtendShowsWhatWasThere, "extend_onto_freed_room_shows_nothing_of_it"),
    (ExtendTakesRoomUnasked, "extend_in_a_full_pool_changes_nothing"),
    (SizesAreNotRounded, "a_disk_ends_with_a_whole_sector"),
    (WritesRoundOut, "a_write_of_odd_sectors_leaves_its_neighbours"),
    (DiscardsReachFurther, "a_discard_leaves_zeros_or_what_was_there_and_no_damage"),
    (DisksOfOneSizeShareBytes, "volumes_do_not_share_bytes"),
    (AnyNameIsTaken, "a_name_that_is_no_uuid_is_refused"),
    (CheckActivatesNothing, "check_makes_disks_ready_after_a_reboot"),
]
