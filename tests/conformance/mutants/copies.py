# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about snapshots, copies and reverts."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import FakeDisk
from lunshare.drivers.values import Volume
from tests.conformance.mutants.caught import caught_by


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class SnapshotSharesBytesWithItsVolume(FakeVolumes):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        blocks = self.storage.disks[snapshot.volume_id].blocks
        self.storage.snapshots[snapshot.id].blocks = blocks


@caught_by("a_retried_create_snapshot_changes_nothing")
class RetriedSnapshotHasNewBytes(FakeVolumes):
    def create_snapshot(self, snapshot):
        self.delete_snapshot(snapshot.id)
        super().create_snapshot(snapshot)


@caught_by("disks_does_not_list_snapshots")
class SnapshotIsListedAsDisk(FakeVolumes):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        self.create(Volume(snapshot.id, snapshot.size))


@caught_by("create_snapshot_in_a_full_pool_leaves_nothing")
class SnapshotsTakeNoSpace(FakeVolumes):
    def create_snapshot(self, snapshot):
        origin = self._complete_disk(snapshot.volume_id)
        self.storage.put(self.storage.snapshots, snapshot.id, origin.copy())


@caught_by("delete_snapshot_frees_its_space")
class DeletedSnapshotFreesNoSpace(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        self.storage.snapshots.pop(snapshot_id, None)


@caught_by("delete_and_revert_preserve_other_snapshots")
class DeleteSnapshotDeletesAll(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        for each in list(self.storage.snapshots):
            super().delete_snapshot(each)


@caught_by("create_snapshot_of_an_open_disk_succeeds_or_reports_disk_busy")
class SnapshotRefusesAnOpenDisk(FakeVolumes):
    def create_snapshot(self, snapshot):
        self._require_closed(snapshot.volume_id)
        super().create_snapshot(snapshot)


@caught_by("snapshots_survive_a_restart")
class SnapshotsAreLostAtRestart(FakeVolumes):
    def __init__(self, *given):
        super().__init__(*given)
        self.storage.snapshots.clear()


@caught_by("a_clone_is_independent_of_its_source")
class CloneSharesBytes(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        origin = self.storage.disks[snapshot.volume_id]
        self.storage.disks[volume.id].blocks = origin.blocks
        return disk


@caught_by("a_volume_from_a_snapshot_is_independent")
class CopySharesBytesWithItsSnapshot(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        stored = self.storage.snapshots[snapshot.id]
        self.storage.disks[volume.id].blocks = stored.blocks
        return disk


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class CopyHasTheCurrentBytes(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        super()._intact_snapshot(snapshot)
        return self.storage.disks[snapshot.volume_id]


@caught_by("create_from_a_smaller_snapshot_adds_zeros")
class CopyIsAsLargeAsItsSnapshot(FakeVolumes):
    def create_from(self, volume, snapshot):
        return super().create_from(Volume(volume.id, snapshot.size), snapshot)


@caught_by("create_from_a_smaller_snapshot_adds_zeros")
class CopyHasOldBytesAtItsEnd(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if volume.size > snapshot.size:
            self.storage.write(volume.id, snapshot.size, b"an earlier owner's")
        return disk


@caught_by("a_retried_create_from_changes_nothing")
class RetriedCopyStartsAgain(FakeVolumes):
    def create_from(self, volume, snapshot):
        self.storage.drop(volume.id)
        return super().create_from(volume, snapshot)


@caught_by("a_retried_create_from_changes_nothing")
class RetriedCopyNeedsItsSnapshot(FakeVolumes):
    def create_from(self, volume, snapshot):
        self._intact_snapshot(snapshot)
        return super().create_from(volume, snapshot)


@caught_by("create_from_an_unknown_snapshot_fails")
class CopyOfAnUnknownSnapshotIsEmpty(FakeVolumes):
    def create_from(self, volume, snapshot):
        if snapshot.id not in self.storage.snapshots:
            return self.create(volume)
        return super().create_from(volume, snapshot)


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertDeletesTheSnapshot(FakeVolumes):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        self.delete_snapshot(snapshot.id)
        return disk


@caught_by("revert_restores_the_size")
class RevertDoesNotRestoreTheSize(FakeVolumes):
    def revert(self, snapshot):
        size = self._complete_disk(snapshot.volume_id).size
        super().revert(snapshot)
        return self.extend(Volume(snapshot.volume_id, size))


@caught_by("revert_refuses_an_open_disk")
class RevertIgnoresOpenDisks(FakeVolumes):
    def revert(self, snapshot):
        held, self.storage.open = self.storage.open, set()
        try:
            return super().revert(snapshot)
        finally:
            self.storage.open = held


@caught_by("revert_to_an_unknown_snapshot_fails")
class RevertToAnUnknownSnapshotErasesTheDisk(FakeVolumes):
    def revert(self, snapshot):
        disk = FakeDisk(snapshot.size)
        disk.complete = True
        self.storage.put(self.storage.disks, snapshot.volume_id, disk)
        return super().revert(snapshot)
