# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about managing snapshots."""

from __future__ import annotations

from dataclasses import replace

from lunshare.drivers.fake.fake_driver import FakeVolumes
from tests.conformance.mutants.caught import caught_by


@caught_by("a_snapshot_is_managed_for_its_own_volume_only")
class ManageAcceptsASnapshotOfAnotherVolume(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        found = self.storage.foreign_snapshots.get(reference)
        if found is not None:
            found.origin = snapshot.volume_id
        super().manage_snapshot(snapshot, reference)


@caught_by("manage_of_a_snapshot_refuses_what_is_no_foreign_snapshot")
class ManageAcceptsAnyDisk(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        found = self.storage.foreign_disks.get(reference)
        if found is not None:
            self.storage.put(self.storage.snapshots, snapshot.id, found)
            return
        super().manage_snapshot(snapshot, reference)


@caught_by("an_unmanaged_snapshot_can_be_managed_again")
class ManageErasesTheSnapshot(FakeVolumes):
    def _pop_foreign_snapshot(self, snapshot, reference):
        disk = super()._pop_foreign_snapshot(snapshot, reference)
        disk.blocks = None
        return disk


@caught_by("manage_refuses_an_open_snapshot")
class ManageIgnoresOpenSnapshots(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        was, self.storage.open = self.storage.open, set()
        try:
            super().manage_snapshot(snapshot, reference)
        finally:
            self.storage.open = was


@caught_by("an_unmanaged_snapshot_can_be_managed_again")
class UnmanageDeletesTheSnapshot(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self.delete_snapshot(snapshot.id)


@caught_by("unmanage_of_an_unknown_snapshot_succeeds")
class UnmanageOfAnUnknownSnapshotFails(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self._intact_snapshot(snapshot)
        super().unmanage_snapshot(snapshot)


@caught_by("a_killed_unmanage_of_a_snapshot_is_finished_by_a_retry")
class UnmanageFailsAfterAKill(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self.storage.snapshots[snapshot.id].lost = False
        self.failures.at("unmanage_snapshot.before")
        self._rename_to_foreign(snapshot, self.storage.snapshots[snapshot.id])
        self.failures.at("unmanage_snapshot.after")


@caught_by("an_unmanaged_snapshot_can_be_managed_again")
class DeniesManageOfSnapshotsAndDoesIt(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, manages_snapshots=False)
