# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that work well until there is trouble in the middle of a verb."""

from __future__ import annotations

import contextlib
import errno
import os

from lunshare.drivers.conformance.fixtures import VolumeFixtures
from lunshare.drivers.errors import CommandFailed, DeadlineExceeded
from lunshare.drivers.fake import FakeVolumes

_THIN = {"options": {"fake_thin": True, "fake_capacity_gb": 1}}


class RawNoSpaceEscapes(FakeVolumes):
    """Room is counted first; what the storage says later is passed on as it is."""

    def create(self, volume):
        disk = super().create(volume)
        if self._free() < 0:
            self.storage.drop(volume.id)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return disk


class NoSpaceOfACommandEscapes(FakeVolumes):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if self._free() < 0:
            self.storage.drop(volume.id)
            raise CommandFailed(("lvcreate",), 5, "insufficient free space")
        return disk


class CreateLeavesRubbishWhenThePoolFills(FakeVolumes):
    def create(self, volume):
        disk = super().create(volume)
        if self._free() < 0:
            self._require_space(volume.size)
        return disk


class FillIsShort(FakeVolumes):
    """What a full pool did not take is not looked at: write(2) may write less."""

    bound = _THIN

    def _write(self, volume_id, blocks):
        if self._free() > 0:
            super()._write(volume_id, blocks)


class TooSlowIsSuccess(FakeVolumes):
    def delete(self, volume_id):
        with contextlib.suppress(DeadlineExceeded):
            super().delete(volume_id)


class TooSlowIsAFailure(FakeVolumes):
    def create(self, volume):
        try:
            return super().create(volume)
        except DeadlineExceeded as error:
            raise CommandFailed(("create",), 5, str(error)) from error


class TooSlowGivesTheOldBytes(FakeVolumes):
    def revert(self, snapshot):
        try:
            return super().revert(snapshot)
        except DeadlineExceeded:
            return self.disk(snapshot.volume_id)


class TwinsFillTogether(FakeVolumes):
    def fill(self, volume, source):
        self._copy_from(volume, source)


class TwinsRevertTogether(FakeVolumes):
    """The snapshot's bytes are put over the volume's in two steps, without a lock."""

    def revert(self, snapshot):
        kept = self._intact_snapshot(snapshot)
        self.failures.at("revert.before")
        self.failures.at("reverting")
        self.storage.disks[snapshot.volume_id].blocks = kept.copy().blocks
        self.failures.at("reverted")
        return super().revert(snapshot)


class TwinWipesTheLiveDisk(FakeVolumes):
    """It is wiped by its name, after the repeat has finished it."""

    def create(self, volume):
        new = volume.id not in self.storage.disks
        disk = super().create(volume)
        if new:
            self.failures.at("made")
            self.storage.disks[volume.id].blocks = None
        return disk


class TwinCopiesAgain(FakeVolumes):
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


class FillIsNotFlushed(_Unflushed):
    def fill(self, volume, source):
        super().fill(volume, source)
        self.unflush(volume.id)


class CopyIsNotFlushed(_Unflushed):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        self.unflush(volume.id)
        return disk


class RevertIsNotFlushed(_Unflushed):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        self.unflush(snapshot.volume_id)
        return disk


class CreatesInPlaceUnseen(FakeVolumes):
    """Its steps are announced nowhere: the kit counts the lines of its code."""

    bound = {"watched": VolumeFixtures.watched}

    def create(self, volume):
        if volume.id in self.storage.disks:
            return super().create(volume)
        self.storage.create(volume.id, volume.size).complete = True
        self.storage.write(volume.id, 0, b"an earlier owner's")
        self.storage.write(volume.id, 0, bytes(4096))
        return self._as_disk(volume.id, self.storage.disks[volume.id])


class ExtendsInPlaceUnseen(FakeVolumes):
    bound = {"watched": VolumeFixtures.watched}

    def extend(self, volume):
        old = self._complete_disk(volume.id).size
        if volume.size <= old:
            return self.disk(volume.id)
        disk = super().extend(volume)
        self.storage.write(volume.id, old, b"an earlier owner's")
        self.storage.write(volume.id, old, bytes(4096))
        return disk


class StepsAreHidden(FakeVolumes):
    """A binding that shows no step of a verb has not tried it."""

    def delete(self, volume_id):
        watcher, self.failures._watcher = self.failures._watcher, None
        super().delete(volume_id)
        self.failures._watcher = watcher


TROUBLE = [
    (RawNoSpaceEscapes, "create_in_a_pool_that_fills_meanwhile"),
    (NoSpaceOfACommandEscapes, "a_copy_in_a_pool_that_fills_meanwhile"),
    (CreateLeavesRubbishWhenThePoolFills, "create_in_a_pool_that_fills_meanwhile"),
    (FillIsShort, "a_disk_that_is_filled_in_a_filling_pool_has_all_bytes_or_says_no"),
    (TooSlowIsSuccess, "a_delete_that_was_too_slow_is_told_and_repeated"),
    (TooSlowIsAFailure, "a_create_that_was_too_slow_is_told_and_repeated"),
    (TooSlowGivesTheOldBytes, "a_way_back_that_was_too_slow_is_told_and_repeated"),
    (TwinsFillTogether, "a_disk_whose_filling_is_repeated_while_its_twin_runs"),
    (TwinsRevertTogether, "a_way_back_that_is_repeated_while_its_twin_runs"),
    (TwinWipesTheLiveDisk, "a_create_that_is_repeated_while_its_twin_runs"),
    (TwinCopiesAgain, "a_copy_that_is_repeated_while_its_twin_runs"),
    (FillIsNotFlushed, "what_a_copy_returned_is_on_the_medium"),
    (CopyIsNotFlushed, "what_copies_returned_is_on_the_medium"),
    (RevertIsNotFlushed, "what_copies_returned_is_on_the_medium"),
    (CreatesInPlaceUnseen, "a_killed_create_is_finished_by_the_next"),
    (ExtendsInPlaceUnseen, "a_killed_extension_is_finished_by_the_next"),
    (StepsAreHidden, "a_killed_delete_is_finished_by_the_next"),
]
