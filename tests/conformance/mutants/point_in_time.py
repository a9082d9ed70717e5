# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers whose copies of a disk in use are not one point in time."""

from __future__ import annotations

import time

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import BLOCK
from tests.conformance.mutants.caught import caught_by
from tests.conformance.mutants.clones import Cloning


def wait_until_all_is_written(disk, before):
    """Wait until a host has written to every block that it had written to before."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        blocks = disk.copy().blocks or {}
        if all(blocks[number] != block for number, block in before.items()):
            return
        time.sleep(0.001)


def copied_in_two_steps(disk):
    """Copy one half of the disk, and the other one later."""
    before, middle = disk.copy().blocks or {}, disk.size // 2 // BLOCK
    wait_until_all_is_written(disk, before)
    later = disk.copy().blocks or {}
    first = {number: block for number, block in before.items() if number < middle}
    return first | {n: block for n, block in later.items() if n >= middle}


@caught_by("a_snapshot_of_a_disk_in_use_is_one_point_in_time")
class SnapshotIsCopiedInTwoSteps(FakeVolumes):
    def create_snapshot(self, snapshot):
        blocks = copied_in_two_steps(self.storage.disks[snapshot.volume_id])
        super().create_snapshot(snapshot)
        self.storage.snapshots[snapshot.id].blocks = blocks


@caught_by("a_snapshot_of_a_disk_in_use_is_one_point_in_time")
class SnapshotIsCopiedWhenItIsUsed(FakeVolumes):
    def create_from(self, volume, snapshot):
        blocks = self.storage.disks[snapshot.volume_id].copy().blocks
        self.storage.snapshots[snapshot.id].blocks = blocks
        return super().create_from(volume, snapshot)


@caught_by("a_clone_of_a_disk_in_use_is_one_point_in_time")
class CloneIsCopiedInTwoSteps(Cloning):
    def clone(self, volume, source):
        blocks = copied_in_two_steps(self.storage.disks[source.id])
        disk = super().clone(volume, source)
        self.storage.disks[volume.id].blocks = blocks
        return disk
