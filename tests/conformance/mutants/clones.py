# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about clones without a temporary snapshot."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import FakeDisk
from lunshare.drivers.values import Volume
from tests.conformance.mutants.caught import caught_by


class Cloning(FakeVolumes):
    bound = {
        "options": {
            "fake_thin": True,
            "fake_capacity_gb": 1,
            "fake_clones_at_once": True,
        }
    }


@caught_by("a_clone_is_independent_of_its_source")
class CloneAtOnceSharesBytes(Cloning):
    def clone(self, volume, source):
        disk = super().clone(volume, source)
        self.storage.disks[volume.id].blocks = self.storage.disks[source.id].blocks
        return disk


@caught_by("clone_of_an_open_disk_succeeds_or_reports_disk_busy")
class CloneRefusesAnOpenSource(Cloning):
    def clone(self, volume, source):
        self._require_closed(source.id)
        return super().clone(volume, source)


@caught_by("a_clone_is_independent_of_its_source")
class CloneLeavesASnapshot(Cloning):
    def clone(self, volume, source):
        disk = super().clone(volume, source)
        copied = self.storage.disks[volume.id].copy()
        self.storage.put(self.storage.snapshots, volume.id, copied)
        return disk


@caught_by("a_clone_of_a_smaller_source_adds_zeros")
class CloneIsAsLargeAsItsSource(Cloning):
    def clone(self, volume, source):
        return super().clone(Volume(volume.id, source.size), source)


@caught_by("a_retried_clone_changes_nothing")
class RetriedCloneStartsAgain(Cloning):
    def clone(self, volume, source):
        if disk := self.storage.disks.get(volume.id):
            disk.complete = False
        return super().clone(volume, source)


@caught_by("a_clone_of_an_unknown_source_fails")
class CloneOfAnUnknownSourceIsEmpty(Cloning):
    def clone(self, volume, source):
        if source.id not in self.storage.disks:
            return self.create(volume)
        return super().clone(volume, source)


@caught_by("a_clone_of_another_backends_volume_fails")
class CloneAcceptsAnyBackendsVolume(Cloning):
    def clone(self, volume, source):
        if source.id not in self.storage.disks:
            disk = FakeDisk(source.size)
            disk.complete = True
            self.storage.put(self.storage.disks, volume.id, disk)
        return super().clone(volume, source)


@caught_by("a_clone_in_a_full_pool_leaves_nothing")
class CloneIgnoresAFullPool(Cloning):
    def _require_space(self, size):
        """It is not full."""


@caught_by("a_killed_clone_is_finished_by_a_retry")
class KilledCloneIsIncomplete(Cloning):
    def clone(self, volume, source):
        if volume.id in self.storage.disks:
            return self.disk(volume.id)
        disk = super().clone(volume, source)
        copied = self.storage.disks[volume.id]
        blocks, copied.blocks = copied.blocks, None
        self.failures.at("copied")
        copied.blocks = blocks
        return disk


@caught_by("a_clone_can_be_retried_while_the_first_call_runs")
class CloneStartsAgainWhileItRuns(Cloning):
    def clone(self, volume, source):
        disk = super().clone(volume, source)
        self.failures.at("copied")
        blocks = self.storage.disks[source.id].copy().blocks
        self.storage.disks[volume.id].blocks = blocks
        return disk


@caught_by("a_clone_that_meets_an_io_error_can_be_retried")
class CloneIgnoresIoErrors(Cloning):
    def clone(self, volume, source):
        if self.storage.fails_writes:
            disk = self.storage.create(volume.id, volume.size)
            disk.complete = True
            return self._as_disk(volume.id, disk)
        return super().clone(volume, source)


@caught_by("a_clone_survives_a_power_cut")
class CloneIsNotFlushed(Cloning):
    def clone(self, volume, source):
        disk = super().clone(volume, source)
        copied = self.storage.disks[volume.id]
        copied.unflushed = set(copied.blocks or ())
        return disk
