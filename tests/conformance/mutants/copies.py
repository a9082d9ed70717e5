# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about snapshots, copies and the way back."""

from __future__ import annotations

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.fake_storage import FakeDisk
from lunshare.drivers.values import Volume


class SnapshotMoves(FakeVolumes):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        blocks = self.storage.disks[snapshot.volume_id].blocks
        self.storage.snapshots[snapshot.id].blocks = blocks


class SnapshotAgainIsAnother(FakeVolumes):
    def create_snapshot(self, snapshot):
        self.delete_snapshot(snapshot.id)
        super().create_snapshot(snapshot)


class SnapshotIsAVolume(FakeVolumes):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        self.create(Volume(snapshot.id, snapshot.size))


class SnapshotsTakeNoRoom(FakeVolumes):
    def create_snapshot(self, snapshot):
        origin = self._complete_disk(snapshot.volume_id)
        self.storage.put(self.storage.snapshots, snapshot.id, origin.copy())


class SnapshotKeepsItsRoom(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        self.storage.snapshots.pop(snapshot_id, None)


class SnapshotsGoTogether(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        for each in list(self.storage.snapshots):
            super().delete_snapshot(each)


class SnapshotGoesWithAnOpenDisk(FakeVolumes):
    def create_snapshot(self, snapshot):
        self._require_closed(snapshot.volume_id)
        super().create_snapshot(snapshot)


class SnapshotsAreForgotten(FakeVolumes):
    def __init__(self, *given):
        super().__init__(*given)
        self.storage.snapshots.clear()


class CloneSharesBytes(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        origin = self.storage.disks[snapshot.volume_id]
        self.storage.disks[volume.id].blocks = origin.blocks
        return disk


class CopySharesBytesWithItsSnapshot(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        kept = self.storage.snapshots[snapshot.id]
        self.storage.disks[volume.id].blocks = kept.blocks
        return disk


class CopyIsOfTheVolumeNow(FakeVolumes):
    def _intact_snapshot(self, snapshot):
        super()._intact_snapshot(snapshot)
        return self.storage.disks[snapshot.volume_id]


class CopyIsAsLargeAsItsSnapshot(FakeVolumes):
    def create_from(self, volume, snapshot):
        return super().create_from(Volume(volume.id, snapshot.size), snapshot)


class CopyHasRubbishBehind(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if volume.size > snapshot.size:
            self.storage.write(volume.id, snapshot.size, b"an earlier owner's")
        return disk


class CopyAgainBeginsAnew(FakeVolumes):
    def create_from(self, volume, snapshot):
        self.storage.drop(volume.id)
        return super().create_from(volume, snapshot)


class CopyOfNothingIsEmpty(FakeVolumes):
    def create_from(self, volume, snapshot):
        if snapshot.id not in self.storage.snapshots:
            return self.create(volume)
        return super().create_from(volume, snapshot)


class RevertLosesTheSnapshot(FakeVolumes):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        self.delete_snapshot(snapshot.id)
        return disk


class RevertKeepsTheSize(FakeVolumes):
    def revert(self, snapshot):
        size = self._complete_disk(snapshot.volume_id).size
        super().revert(snapshot)
        return self.extend(Volume(snapshot.volume_id, size))


class RevertIgnoresWhoHasItOpen(FakeVolumes):
    def revert(self, snapshot):
        held, self.storage.open = self.storage.open, set()
        try:
            return super().revert(snapshot)
        finally:
            self.storage.open = held


class RevertToNothingEmptiesIt(FakeVolumes):
    def revert(self, snapshot):
        disk = FakeDisk(snapshot.size)
        disk.complete = True
        self.storage.put(self.storage.disks, snapshot.volume_id, disk)
        return super().revert(snapshot)


COPIES = [
    (SnapshotMoves, "a_snapshot_does_not_move"),
    (SnapshotAgainIsAnother, "a_snapshot_taken_again_keeps_its_moment"),
    (SnapshotIsAVolume, "snapshots_are_no_disks"),
    (SnapshotsTakeNoRoom, "a_snapshot_in_a_full_pool_leaves_nothing"),
    (SnapshotKeepsItsRoom, "a_snapshot_takes_its_room_back_when_it_goes"),
    (SnapshotsGoTogether, "delete_snapshot_removes_that_one"),
    (SnapshotGoesWithAnOpenDisk, "a_snapshot_of_an_open_disk"),
    (SnapshotsAreForgotten, "snapshots_outlive_a_restart"),
    (CloneSharesBytes, "a_clone_goes_its_own_way"),
    (CopySharesBytesWithItsSnapshot, "a_volume_of_a_snapshot_goes_its_own_way"),
    (CopyIsOfTheVolumeNow, "a_snapshot_does_not_move"),
    (CopyIsAsLargeAsItsSnapshot, "a_larger_copy_has_zeros_behind"),
    (CopyHasRubbishBehind, "a_larger_copy_has_zeros_behind"),
    (CopyAgainBeginsAnew, "a_copy_made_again_changes_nothing"),
    (CopyOfNothingIsEmpty, "a_copy_of_the_unknown_is_refused"),
    (RevertLosesTheSnapshot, "revert_gives_the_bytes_back_and_keeps_the_snapshot"),
    (RevertKeepsTheSize, "revert_gives_the_size_back"),
    (RevertIgnoresWhoHasItOpen, "revert_of_an_open_disk_changes_nothing"),
    (RevertToNothingEmptiesIt, "revert_to_the_unknown_changes_nothing"),
]
