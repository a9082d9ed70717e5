# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that report wrong abilities, paths, sizes or disks."""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers.errors import UnknownSnapshot
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import DiskKind, Manageable
from tests.conformance.mutants.caught import caught_by


@caught_by("fill_copies_all_bytes")
class ClaimsFillAndRefuses(FakeVolumes):
    def fill(self, volume, source):
        raise self._unsupported("migrating a volume")


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class DeniesSnapshotsAndCreatesThem(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, supports_snapshots=False)


@caught_by("an_unmanaged_volume_can_be_managed_again")
class DeniesManageAndManages(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, manages=False)


@caught_by("a_deleted_disk_is_wiped_in_steps")
class ClaimsWipesAndHasNone(FakeVolumes):
    @property
    def abilities(self):
        return replace(super().abilities, wipes_deleted=True)


@caught_by("a_volume_that_reserves_space_has_every_block_allocated")
class ThickIsNotAllocated(FakeVolumes):
    def _create_or_extend(self, volume):
        made = super()._create_or_extend(volume)
        made.allocated = 0
        return made


@caught_by("a_volume_that_reserves_space_has_every_block_allocated")
class ExtensionIsNotAllocated(FakeVolumes):
    def extend(self, volume):
        before = self._complete_disk(volume.id).allocated
        disk = super().extend(volume)
        self.storage.disks[volume.id].allocated = before
        return disk


@caught_by("the_path_of_a_disk_can_be_exported")
class PathsAreRelative(FakeVolumes):
    def _as_disk(self, volume_id, disk):
        seen = super()._as_disk(volume_id, disk)
        return replace(seen, path=seen.path.removeprefix("/"))


@caught_by("the_path_of_a_disk_can_be_exported")
class FilesHaveForeignNames(FakeVolumes):
    """The root helper refuses to export such a path."""

    def _as_disk(self, volume_id, disk):
        path = f"/srv/images/{volume_id}.img"
        return replace(super()._as_disk(volume_id, disk), path=path, kind=DiskKind.FILE)


@caught_by("the_path_of_a_disk_can_be_exported")
class BlockDevicesHaveForeignNames(FakeVolumes):
    def _as_disk(self, volume_id, disk):
        return replace(super()._as_disk(volume_id, disk), path="/dev/loop0")


@caught_by("manage_refuses_an_open_disk")
class ManageAcceptsAnOpenDisk(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        held, self.storage.open = self.storage.open, set()
        try:
            return super()._rename_foreign(volume, reference)
        finally:
            self.storage.open = held


@caught_by("fill_refuses_a_source_with_a_wrong_kind")
class FillAcceptsAnyKind(FakeVolumes):
    """If it cannot read the kind, it copies nothing and reports success."""

    def fill(self, volume, source):
        if source.kind in self.abilities.fills:
            super().fill(volume, source)


@caught_by("fill_refuses_a_source_that_cannot_be_read[block]")
class FillIgnoresAMissingSource(FakeVolumes):
    def fill(self, volume, source):
        if "nowhere" not in source.path:
            super().fill(volume, source)


@caught_by("disks_does_not_list_incomplete_disks")
class DisksListsIncompleteDisks(FakeVolumes):
    def disks(self):
        made = self.storage.disks.items()
        return tuple(self._as_disk(key, disk) for key, disk in made)


@caught_by("manageable_lists_a_disk_with_its_size")
class ManageableSizesAreDoubled(FakeVolumes):
    def manageable(self):
        found = super().manageable()
        return tuple(Manageable(each.reference, 2 * each.size) for each in found)


@caught_by("a_lost_snapshot_is_not_copied_or_reverted")
class LostSnapshotIsReportedAsUnknown(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        if self.storage.snapshots[snapshot.id].lost:
            raise UnknownSnapshot(snapshot.id)
        return super()._intact_snapshot(snapshot)


@caught_by("a_lost_snapshot_is_not_copied_or_reverted")
class LostSnapshotIsReadAsZeros(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        stored = self.storage.snapshots.get(snapshot.id)
        if stored and stored.lost:
            stored.lost, stored.blocks = False, {}
        return super()._intact_snapshot(snapshot)
