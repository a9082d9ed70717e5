# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise only when they are killed."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import Volume, Wipe
from tests.conformance.mutants.caught import caught_by
from tests.conformance.mutants.manage import Wiping


@caught_by("a_killed_create_is_finished_by_a_retry")
class CreateShowsADiskBeforeItIsWiped(FakeVolumes):
    def create(self, volume):
        if volume.id in self.storage.disks:
            return super().create(volume)
        disk = super().create(volume)
        self.storage.write(volume.id, 0, b"an earlier owner's")
        self.failures.at("wiped")
        self.storage.write(volume.id, 0, bytes(4096))
        return disk


@caught_by("a_killed_create_can_be_deleted")
class CreateReservesSpaceTwice(FakeVolumes):
    def create(self, volume):
        self.storage.provisioned += volume.size
        self.failures.at("reserved")
        self.storage.provisioned -= volume.size
        return super().create(volume)


@caught_by("a_killed_delete_is_finished_by_a_retry")
class DeleteRemovesTheNameFirst(FakeVolumes):
    def delete(self, volume_id):
        if disk := self.storage.disks.pop(volume_id, None):
            self.failures.at("forgotten")
            self.storage.provisioned -= disk.size


@caught_by("a_killed_extend_is_finished_by_a_retry")
class ExtendShowsSpaceBeforeItIsWiped(FakeVolumes):
    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        disk = super().extend(volume)
        if disk.size > old:
            self.storage.write(volume.id, old, b"an earlier owner's")
            self.failures.at("wiped")
            self.storage.write(volume.id, old, bytes(4096))
        return disk


@caught_by("a_killed_create_snapshot_is_finished_by_a_retry")
class SnapshotIsListedBeforeItHasItsBytes(FakeVolumes):
    def create_snapshot(self, snapshot):
        if snapshot.id in self.storage.snapshots:
            return
        super().create_snapshot(snapshot)
        stored = self.storage.snapshots[snapshot.id]
        blocks, stored.blocks = stored.blocks, None
        self.failures.at("copied")
        stored.blocks = blocks


@caught_by("a_killed_delete_snapshot_is_finished_by_a_retry")
class KilledDeleteSnapshotFreesNoSpace(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        if stored := self.storage.snapshots.pop(snapshot_id, None):
            self.failures.at("forgotten")
            self.storage.provisioned -= stored.size


@caught_by("a_killed_create_from_is_finished_by_a_retry")
class CopyIsListedBeforeItHasItsBytes(FakeVolumes):
    def create_from(self, volume, snapshot):
        if volume.id in self.storage.disks:
            return super().create_from(volume, snapshot)
        disk = super().create_from(volume, snapshot)
        made = self.storage.disks[volume.id]
        blocks, made.blocks = made.blocks, None
        self.failures.at("copied")
        made.blocks = blocks
        return disk


@caught_by("a_killed_revert_is_finished_by_a_retry")
class RevertDeletesTheDiskFirst(FakeVolumes):
    def revert(self, snapshot):
        self._complete_disk(snapshot.volume_id)
        self.storage.drop(snapshot.volume_id)
        self.failures.at("dropped")
        return self.create_from(Volume(snapshot.volume_id, snapshot.size), snapshot)


@caught_by("a_killed_manage_is_finished_by_a_retry")
class ManageRemovesTheOldNameFirst(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        self.failures.at("renamed")
        return disk


@caught_by("a_killed_unmanage_is_finished_by_a_retry")
class UnmanageRemovesTheOldNameFirst(FakeVolumes):
    def unmanage(self, volume_id):
        disk = self.storage.disks.get(volume_id)
        self.storage.drop(volume_id)
        self.failures.at("dropped")
        if disk:
            self.storage.foreign_disks[f"unmanaged-{volume_id}"] = disk
            self.storage.foreign += disk.size


@caught_by("a_killed_wipe_is_continued_by_a_retry")
class WipeRemovesTheNameFirst(Wiping):
    def _wipe_step(self, name: str, most: int) -> Wipe | None:
        disk = self.storage.deleted.get(name)
        if disk is None or disk.wiped + most < disk.size:
            return super()._wipe_step(name, most)
        del self.storage.deleted[name]
        self.failures.at("forgotten")
        self.storage.provisioned -= disk.size
        return None
