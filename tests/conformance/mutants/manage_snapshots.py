# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about managing snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lunshare.drivers.fake.fake_driver import FakeVolumes


class ManageAcceptsASnapshotOfAnotherVolume(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        found = self.storage.foreign_snapshots.get(reference)
        if found is not None:
            found.origin = snapshot.volume_id
        super().manage_snapshot(snapshot, reference)


class ManageAcceptsAnyDisk(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        found = self.storage.foreign_disks.get(reference)
        if found is not None:
            self.storage.put(self.storage.snapshots, snapshot.id, found)
            return
        super().manage_snapshot(snapshot, reference)


class ManageErasesTheSnapshot(FakeVolumes):
    def _pop_foreign_snapshot(self, snapshot, reference):
        disk = super()._pop_foreign_snapshot(snapshot, reference)
        disk.blocks = None
        return disk


class ManageIgnoresOpenSnapshots(FakeVolumes):
    def manage_snapshot(self, snapshot, reference):
        was, self.storage.open = self.storage.open, set()
        try:
            super().manage_snapshot(snapshot, reference)
        finally:
            self.storage.open = was


class UnmanageDeletesTheSnapshot(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self.delete_snapshot(snapshot.id)


class UnmanageOfAnUnknownSnapshotFails(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self._intact_snapshot(snapshot)
        super().unmanage_snapshot(snapshot)


class UnmanageFailsAfterAKill(FakeVolumes):
    def unmanage_snapshot(self, snapshot):
        self.storage.snapshots[snapshot.id].lost = False
        self.failures.at("unmanage_snapshot.before")
        self._rename_to_foreign(snapshot, self.storage.snapshots[snapshot.id])
        self.failures.at("unmanage_snapshot.after")


class DeniesManageOfSnapshotsAndDoesIt(FakeVolumes):
    ABILITIES = replace(FakeVolumes.ABILITIES, manages_snapshots=False)


MANAGE_SNAPSHOTS: list[tuple[type[Any], str]] = [
    (
        ManageAcceptsASnapshotOfAnotherVolume,
        "a_snapshot_is_managed_for_its_own_volume_only",
    ),
    (
        ManageAcceptsAnyDisk,
        "manage_of_a_snapshot_refuses_what_is_no_foreign_snapshot",
    ),
    (ManageErasesTheSnapshot, "an_unmanaged_snapshot_can_be_managed_again"),
    (ManageIgnoresOpenSnapshots, "manage_refuses_an_open_snapshot"),
    (UnmanageDeletesTheSnapshot, "an_unmanaged_snapshot_can_be_managed_again"),
    (
        UnmanageOfAnUnknownSnapshotFails,
        "unmanage_of_an_unknown_snapshot_succeeds",
    ),
    (
        UnmanageFailsAfterAKill,
        "a_killed_unmanage_of_a_snapshot_is_finished_by_a_retry",
    ),
    (DeniesManageOfSnapshotsAndDoesIt, "an_unmanaged_snapshot_can_be_managed_again"),
]
