# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that do not report that their storage fails."""

from __future__ import annotations

import contextlib
import errno
import os

from lunshare.drivers.errors import CommandFailed, UnknownDisk
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.values import Capacity
from tests.conformance.mutants.caught import caught_by


@caught_by("a_storage_that_cannot_be_read_is_reported")
class CheckReadsACache(FakeVolumes):
    """It answers check and capacity from memory, and the pool stays open."""

    def check(self):
        with contextlib.suppress(CommandFailed):
            super().check()

    def capacity(self):
        try:
            return super().capacity()
        except CommandFailed:
            return Capacity(self._total, self._total, 0, False, "")


@caught_by("a_storage_that_cannot_be_read_is_not_taken_for_empty")
class UnreadablePoolIsEmpty(FakeVolumes):
    def disks(self):
        try:
            return super().disks()
        except CommandFailed:
            return ()


@caught_by("a_storage_that_cannot_be_read_is_not_taken_for_empty")
class UnreadableDiskIsUnknown(FakeVolumes):
    def disk(self, volume_id):
        if self.storage.fails_reads:
            raise UnknownDisk(volume_id)
        return super().disk(volume_id)


@caught_by("a_create_that_meets_an_io_error_can_be_retried")
class ErrorOfTheStorageIsNotTranslated(FakeVolumes):
    """The caller gets the OSError of the storage."""

    def create(self, volume):
        try:
            return super().create(volume)
        except CommandFailed:
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from None


@caught_by("a_create_that_meets_an_io_error_can_be_deleted")
class FailedCreateLeavesAnIncompleteDisk(FakeVolumes):
    """Its delete finds only complete disks."""

    def delete(self, volume_id):
        disk = self.storage.disks.get(volume_id)
        if disk is None or disk.complete:
            super().delete(volume_id)


@caught_by("a_delete_that_meets_an_io_error_can_be_retried")
class DeleteIgnoresErrors(FakeVolumes):
    def delete(self, volume_id):
        with contextlib.suppress(CommandFailed):
            super().delete(volume_id)


@caught_by("an_extend_that_meets_an_io_error_can_be_retried")
class ExtendIgnoresErrors(FakeVolumes):
    def extend(self, volume):
        try:
            return super().extend(volume)
        except CommandFailed:
            return self.disk(volume.id)


@caught_by("a_create_snapshot_that_meets_an_io_error_can_be_retried")
class SnapshotIgnoresErrors(FakeVolumes):
    def create_snapshot(self, snapshot):
        with contextlib.suppress(CommandFailed):
            super().create_snapshot(snapshot)


@caught_by("a_delete_snapshot_that_meets_an_io_error_can_be_retried")
class DeleteSnapshotIgnoresErrors(FakeVolumes):
    def delete_snapshot(self, snapshot_id):
        with contextlib.suppress(CommandFailed):
            super().delete_snapshot(snapshot_id)


@caught_by("a_create_from_that_meets_an_io_error_can_be_retried")
class CopyWithErrorsIsComplete(FakeVolumes):
    """It cannot write all bytes, and gives the copy its name all the same."""

    def create_from(self, volume, snapshot):
        try:
            return super().create_from(volume, snapshot)
        except CommandFailed:
            if found := self.storage.disks.get(volume.id):
                found.blocks, found.complete = None, True
            raise


@caught_by("a_revert_that_meets_an_io_error_can_be_retried")
class RevertIgnoresErrors(FakeVolumes):
    def revert(self, snapshot):
        try:
            return super().revert(snapshot)
        except CommandFailed:
            return self.disk(snapshot.volume_id)


@caught_by("a_fill_that_meets_an_io_error_can_be_retried")
class FillIgnoresFailedWrites(FakeVolumes):
    """It copies what it can, and verifies nothing."""

    def _write(self, volume_id, blocks):
        with contextlib.suppress(CommandFailed):
            super()._write(volume_id, blocks)

    def _verify_copy(self, volume_id, source):
        pass
