# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that do not handle a failure in the middle of a verb."""

from __future__ import annotations

import contextlib
import errno
import os

from lunshare.drivers.conformance.fixtures import VolumeFixtures
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded
from lunshare.drivers.fake.fake_driver import FakeVolumes
from tests.conformance.mutants.caught import caught_by

_THIN = {"options": {"fake_thin": True, "fake_capacity_gb": 1}}


@caught_by("create_leaves_nothing_if_the_pool_fills_up")
class NoSpaceOfTheStorageIsNotTranslated(FakeVolumes):
    """It checks the free space first, and does not translate a later ENOSPC."""

    def create(self, volume):
        disk = super().create(volume)
        if self._free() < 0:
            self.storage.drop(volume.id)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return disk


@caught_by("create_from_leaves_nothing_if_the_pool_fills_up")
class NoSpaceOfACommandIsNotTranslated(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if self._free() < 0:
            self.storage.drop(volume.id)
            raise CommandFailed(("lvcreate",), 5, "insufficient free space")
        return disk


@caught_by("create_leaves_nothing_if_the_pool_fills_up")
class CreateLeavesADiskWhenThePoolFillsUp(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        if self._free() < 0:
            self._require_space(volume.size)
        return disk


@caught_by("fill_copies_all_bytes_or_fails_if_the_pool_fills_up")
class FillIgnoresShortWrites(FakeVolumes):
    """It ignores that write(2) wrote less than it was given."""

    bound = _THIN

    def _write(self, volume_id, blocks):
        if self._free() > 0:
            super()._write(volume_id, blocks)


@caught_by("a_delete_that_misses_its_deadline_can_be_retried")
class MissedDeadlineIsReportedAsSuccess(FakeVolumes):
    def delete(self, volume_id):
        with contextlib.suppress(DeadlineExceeded):
            super().delete(volume_id)


@caught_by("a_create_that_misses_its_deadline_can_be_retried")
class MissedDeadlineIsReportedAsCommandFailed(FakeVolumes):
    def create(self, volume):
        try:
            return super().create(volume)
        except DeadlineExceeded as error:
            raise CommandFailed(("create",), 5, str(error)) from error


@caught_by("a_revert_that_misses_its_deadline_can_be_retried")
class MissedDeadlineOfRevertIsIgnored(FakeVolumes):
    def revert(self, snapshot):
        try:
            return super().revert(snapshot)
        except DeadlineExceeded:
            return self.disk(snapshot.volume_id)


@caught_by("a_fill_can_be_retried_while_the_first_call_runs")
class TwoFillsRunTogether(FakeVolumes):
    def fill(self, volume, source):
        self._copy_from(volume, source)


@caught_by("a_revert_can_be_retried_while_the_first_call_runs")
class TwoRevertsRunTogether(FakeVolumes):
    """It overwrites the volume in two steps, without a lock."""

    def revert(self, snapshot):
        stored = self._intact_snapshot(snapshot)
        self.failures.at("revert.before")
        self.failures.at("reverting")
        self.storage.disks[snapshot.volume_id].blocks = stored.copy().blocks
        self.failures.at("reverted")
        return super().revert(snapshot)


@caught_by("a_create_can_be_retried_while_the_first_call_runs")
class FirstCreateWipesTheUsedDisk(FakeVolumes):
    """The first call wipes the disk by name, after the retry has created it."""

    def create(self, volume):
        new = volume.id not in self.storage.disks
        disk = super().create(volume)
        if new:
            self.failures.at("made")
            self.storage.disks[volume.id].blocks = None
        return disk


@caught_by("a_create_from_can_be_retried_while_the_first_call_runs")
class FirstCopyOverwritesTheUsedDisk(FakeVolumes):
    def create_from(self, volume, snapshot):
        new = volume.id not in self.storage.disks
        disk = super().create_from(volume, snapshot)
        if new:
            self.failures.at("made")
            self.storage.disks[volume.id].blocks = (
                self._intact_snapshot(snapshot).copy().blocks
            )
        return disk


class _Unflushed(FakeVolumes):
    def unflush(self, volume_id):
        disk = self.storage.disks[volume_id]
        disk.unflushed = set(disk.blocks or ())


@caught_by("created_and_filled_disks_survive_a_power_cut")
class FillIsNotFlushed(_Unflushed):
    def fill(self, volume, source):
        super().fill(volume, source)
        self.unflush(volume.id)


@caught_by("copied_and_reverted_disks_survive_a_power_cut")
class CopyIsNotFlushed(_Unflushed):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        self.unflush(volume.id)
        return disk


@caught_by("copied_and_reverted_disks_survive_a_power_cut")
class RevertIsNotFlushed(_Unflushed):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        self.unflush(snapshot.volume_id)
        return disk


@caught_by("a_killed_create_is_finished_by_a_retry")
class CreatesInPlaceWithoutSteps(FakeVolumes):
    """It reports no steps: the kit counts the lines of its code."""

    bound = {"watch_steps": VolumeFixtures.watch_steps}

    def create(self, volume):
        if volume.id in self.storage.disks:
            return super().create(volume)
        self.storage.create(volume.id, volume.size).complete = True
        self.storage.write(volume.id, 0, b"an earlier owner's")
        self.storage.write(volume.id, 0, bytes(4096))
        return self._as_disk(volume.id, self.storage.disks[volume.id])


@caught_by("a_killed_extend_is_finished_by_a_retry")
class ExtendsInPlaceWithoutSteps(FakeVolumes):
    bound = {"watch_steps": VolumeFixtures.watch_steps}

    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        if volume.size <= old:
            return self.disk(volume.id)
        disk = super().extend(volume)
        self.storage.write(volume.id, old, b"an earlier owner's")
        self.storage.write(volume.id, old, bytes(4096))
        return disk


@caught_by("a_killed_delete_is_finished_by_a_retry")
class StepsAreHidden(FakeVolumes):
    """A verb without any step was not tried."""

    def delete(self, volume_id):
        watcher, self.failures._watcher = self.failures._watcher, None
        super().delete(volume_id)
        self.failures._watcher = watcher
