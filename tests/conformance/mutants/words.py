# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that do other than they say: abilities, paths, sizes, listings."""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers.errors import UnknownSnapshot
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.values import DiskKind, Manageable


class SaysItFillsAndRefuses(FakeVolumes):
    def fill(self, volume, source):
        raise self._unsupported("moving a volume")


class SaysItKeepsNoSnapshotsAndDoes(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, supports_snapshots=False)


class SaysNothingOfTakingOver(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, manages=False)


class SaysItWipes(FakeVolumes):
    @property
    def abilities(self):
        return replace(super().abilities, wipes_deleted=True)


class ThickIsNotAllocated(FakeVolumes):
    def _create_or_extend(self, volume):
        made = super()._create_or_extend(volume)
        made.allocated = 0
        return made


class ExtensionIsNotAllocated(FakeVolumes):
    def extend(self, volume):
        before = self._complete_disk(volume.id).allocated
        disk = super().extend(volume)
        self.storage.disks[volume.id].allocated = before
        return disk


class PathsAreRelative(FakeVolumes):
    def _as_disk(self, volume_id, disk):
        seen = super()._as_disk(volume_id, disk)
        return replace(seen, path=seen.path.removeprefix("/"))


class FilesHaveNamesOfTheirOwn(FakeVolumes):
    """What the root helper does not export, and only there it is refused."""

    def _as_disk(self, volume_id, disk):
        path = f"/srv/images/{volume_id}.img"
        return replace(super()._as_disk(volume_id, disk), path=path, kind=DiskKind.FILE)


class BlocksHaveNamesOfTheirOwn(FakeVolumes):
    def _as_disk(self, volume_id, disk):
        return replace(super()._as_disk(volume_id, disk), path="/dev/loop0")


class ManageTakesAnOpenDisk(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        held, self.storage.open = self.storage.open, set()
        try:
            return super()._rename_foreign(volume, reference)
        finally:
            self.storage.open = held


class FillTakesAForeignKind(FakeVolumes):
    """A kind that it cannot read, it does not read, and says that it has."""

    def fill(self, volume, source):
        if source.kind in self.abilities.fills:
            super().fill(volume, source)


class FillOfWhatIsNotThereIsEmpty(FakeVolumes):
    def fill(self, volume, source):
        if "nowhere" not in source.path:
            super().fill(volume, source)


class DisksHasHalfMadeOnes(FakeVolumes):
    def disks(self):
        made = self.storage.disks.items()
        return tuple(self._as_disk(key, disk) for key, disk in made)


class ManageableSizesAreDoubled(FakeVolumes):
    def manageable(self):
        found = super().manageable()
        return tuple(Manageable(each.reference, 2 * each.size) for each in found)


class LostSnapshotIsUnknown(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        if self.storage.snapshots[snapshot.id].lost:
            raise UnknownSnapshot(snapshot.id)
        return super()._intact_snapshot(snapshot)


class LostSnapshotIsGivenBack(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        kept = self.storage.snapshots.get(snapshot.id)
        if kept and kept.lost:
            kept.lost, kept.blocks = False, {}
        return super()._intact_snapshot(snapshot)


WORDS = [
    (SaysItFillsAndRefuses, "a_disk_gets_all_bytes_of_another"),
    (SaysItKeepsNoSnapshotsAndDoes, "a_snapshot_does_not_move"),
    (SaysNothingOfTakingOver, "a_volume_given_away_can_be_taken_back"),
    (SaysItWipes, "a_deleted_disk_is_wiped_in_steps"),
    (ThickIsNotAllocated, "a_volume_that_reserves_its_room_has_every_block"),
    (ExtensionIsNotAllocated, "a_volume_that_reserves_its_room_has_every_block"),
    (PathsAreRelative, "a_disk_is_shown_as_the_target_takes_it"),
    (FilesHaveNamesOfTheirOwn, "a_disk_is_shown_as_the_target_takes_it"),
    (BlocksHaveNamesOfTheirOwn, "a_disk_is_shown_as_the_target_takes_it"),
    (ManageTakesAnOpenDisk, "a_disk_that_somebody_has_open_is_not_taken_over"),
    (FillTakesAForeignKind, "a_disk_of_another_kind_than_its_own_fills_none"),
    (FillOfWhatIsNotThereIsEmpty, "a_disk_that_cannot_be_read_here_fills_none[block]"),
    (DisksHasHalfMadeOnes, "what_is_half_made_is_listed_as_disk_finds_it"),
    (ManageableSizesAreDoubled, "a_disk_that_is_listed_has_its_size"),
    (LostSnapshotIsUnknown, "a_snapshot_that_has_lost_its_bytes_is_no_source"),
    (LostSnapshotIsGivenBack, "a_snapshot_that_has_lost_its_bytes_is_no_source"),
]
