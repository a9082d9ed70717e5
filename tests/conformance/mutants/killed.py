# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that keep every promise, until they are killed half-way."""

from __future__ import annotations

from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.values import Volume, Wipe
from tests.conformance.mutants.handing import Wiping


class CreateIsThereBeforeItIsWiped(FakeVolumes):
    def create(self, volume):
        if volume.id in self.storage.disks:
            return super().create(volume)
        disk = super().create(volume)
        self.storage.write(volume.id, 0, b"an earlier owner's")
        self.failures.at("wiped")
        self.storage.write(volume.id, 0, bytes(4096))
        return disk


class CreateTakesItsRoomTwice(FakeVolumes):
    def create(self, volume):
        self.storage.provisioned += volume.size
        self.failures.at("taken")
        self.storage.provisioned -= volume.size
        return super().create(volume)


class DeleteForgetsTheNameFirst(FakeVolumes):
    def delete(self, volume_id):
        if disk := self.storage.disks.pop(volume_id, None):
            self.failures.at("forgotten")
            self.storage.provisioned -= disk.size


class ExtendIsThereBeforeItIsWiped(FakeVolumes):
    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        disk = super().extend(volume)
        if disk.size > old:
            self.storage.write(volume.id, old, b"an earlier owner's")
            self.failures.at("wiped")
            self.storage.write(volume.id, old, bytes(4096))
        return disk


class SnapshotIsThereBeforeItsBytes(FakeVolumes):
    def create_snapshot(self, snapshot):
        if snapshot.id in self.storage.snapshots:
            return
        super().create_snapshot(snapshot)
        kept = self.storage.snapshots[snapshot.id]
        blocks, kept.blocks = kept.blocks, None
        self.failures.at("copied")
        kept.blocks = blocks


class SnapshotKeepsItsRoomWhenKilled(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        if kept := self.storage.snapshots.pop(snapshot_id, None):
            self.failures.at("forgotten")
            self.storage.provisioned -= kept.size


class CopyIsThereBeforeItsBytes(FakeVolumes):
    def create_from(self, volume, snapshot):
        if volume.id in self.storage.disks:
            return super().create_from(volume, snapshot)
        disk = super().create_from(volume, snapshot)
        made = self.storage.disks[volume.id]
        blocks, made.blocks = made.blocks, None
        self.failures.at("copied")
        made.blocks = blocks
        return disk


class RevertTakesTheDiskAwayFirst(FakeVolumes):
    def revert(self, snapshot):
        self._complete_disk(snapshot.volume_id)
        self.storage.drop(snapshot.volume_id)
        self.failures.at("dropped")
        return self.create_from(Volume(snapshot.volume_id, snapshot.size), snapshot)


class ManageLosesItOnTheWay(FakeVolumes):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        self.failures.at("taken")
        return disk


class UnmanageLosesItOnTheWay(FakeVolumes):
    def unmanage(self, volume_id):
        disk = self.storage.disks.get(volume_id)
        self.storage.drop(volume_id)
        self.failures.at("dropped")
        if disk:
            self.storage.foreign_disks[f"unmanaged-{volume_id}"] = disk
            self.storage.foreign += disk.size


class WipeForgetsTheNameFirst(Wiping):
    def _wipe_step(self, name: str, most: int) -> Wipe | None:
        disk = self.storage.deleted.get(name)
        if disk is None or disk.wiped + most < disk.size:
            return super()._wipe_step(name, most)
        del self.storage.deleted[name]
        self.failures.at("forgotten")
        self.storage.provisioned -= disk.size
        return None


KILLED = [
    (CreateIsThereBeforeItIsWiped, "a_killed_create_is_finished_by_the_next"),
    (CreateTakesItsRoomTwice, "a_killed_create_can_be_given_up"),
    (DeleteForgetsTheNameFirst, "a_killed_delete_is_finished_by_the_next"),
    (ExtendIsThereBeforeItIsWiped, "a_killed_extension_is_finished_by_the_next"),
    (SnapshotIsThereBeforeItsBytes, "a_killed_snapshot_is_finished_by_the_next"),
    (
        SnapshotKeepsItsRoomWhenKilled,
        "a_killed_end_of_a_snapshot_is_finished_by_the_next",
    ),
    (CopyIsThereBeforeItsBytes, "a_killed_copy_is_finished_by_the_next"),
    (RevertTakesTheDiskAwayFirst, "a_killed_way_back_is_finished_by_the_next"),
    (ManageLosesItOnTheWay, "a_killed_take_over_is_finished_by_the_next"),
    (UnmanageLosesItOnTheWay, "a_killed_giving_away_is_finished_by_the_next"),
    (WipeForgetsTheNameFirst, "a_killed_wipe_is_gone_on_with_by_the_next"),
]
