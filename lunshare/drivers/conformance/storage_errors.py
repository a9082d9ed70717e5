# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of a storage that fails: its reads and writes end with an I/O error (EIO).

It fails before a verb, and then at its first step, its second step, and so on. The verb
must raise a DriverError, or have done its work. When the storage works again, the
driver is built and checked again, and the call is retried.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.conformance.interruption import ActBefore
from lunshare.drivers.conformance.killed_volume import KilledVolumeContract
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import (
    DriverError,
    UnknownDisk,
    UnknownSnapshot,
    Unsupported,
)
from lunshare.drivers.values import Snapshot, Volume

Build = Callable[[], VolumeDriver]
Steps = DriverSteps[VolumeDriver]
Verb = Callable[[VolumeDriver], object]
AfterErrors = Callable[..., Iterator[VolumeDriver]]

_REMEDY = "override `failing_storage`"
_VACUOUS = "let `failing_storage` fail every read and write of the storage itself"

#: A driver that cannot read its storage cannot know that something does not exist.
_UNFOUNDED = (UnknownDisk, UnknownSnapshot, Unsupported)


class StorageErrorContract(KilledVolumeContract):
    """One test for each verb, and two of what is reported meanwhile."""

    @pytest.fixture
    def after_errors(self, build: Build, steps: Steps) -> AfterErrors:
        """A function that lets the storage fail in a verb, again and again.

        It yields a new driver after the storage works again, and what failed was
        retried. At first no read and no write succeeds during the verb; then no write
        from its first step on, from its second step on, and so on.
        """

        def trials(name: str, verb: Verb, retry: bool = True) -> Iterator[VolumeDriver]:
            refused, remedy = 0, _REMEDY
            for success in self._outcomes_after_errors(build, steps, verb):
                again = build()
                again.check()
                assert again.disks() == tuple(
                    again.disk(disk.volume_id) for disk in again.disks()
                )
                refused += not success
                remedy = _VACUOUS
                if retry and not success:
                    verb(again)
                yield again
            if not refused:
                self.not_tried(f"an I/O error in the middle of {name}", remedy)

        return trials

    def _outcomes_after_errors(
        self, build: Build, steps: Steps, verb: Verb
    ) -> Iterator[bool]:
        """Yield whether the verb reported success, after the storage works again."""
        driver = build()
        failing = self.failing_storage(driver, reads=True)
        if failing is None:
            return
        with failing:
            success = _reports_success(verb, driver)
        yield success
        for step in itertools.count(1):
            with contextlib.ExitStack() as storage:

                def fail(storage: contextlib.ExitStack = storage) -> None:
                    writes = self.failing_storage(driver, reads=False)
                    assert writes is not None
                    storage.enter_context(writes)

                failure = ActBefore(step, fail)
                success = _reports_success(verb, steps.watch_steps(failure))
                acted = failure.stop()
            yield success
            if not acted:
                assert success
                return

    # what is reported while the storage fails

    def test_a_storage_that_cannot_be_read_is_reported(
        self, driver: VolumeDriver, build: Build, create_volume: Create
    ) -> None:
        """By ``check``, or by ``capacity``: the pool takes no new volumes."""
        create_volume()
        before = driver.capacity()
        failing = self.failing_storage(driver, reads=True)
        if failing is None:
            return self.not_tried("check and capacity", _REMEDY)
        with failing:
            assert _is_reported(driver)
            assert _is_reported(build())
        for after in (driver, build()):
            after.check()
            assert self.has_same_space(after.capacity(), before)
        return None

    def test_a_storage_that_cannot_be_read_is_not_taken_for_empty(
        self, driver: VolumeDriver, build: Build, create_volume: Create
    ) -> None:
        disk = driver.disk(create_volume().id)
        failing = self.failing_storage(driver, reads=True)
        if failing is None:
            return self.not_tried("disks and disk", _REMEDY)
        with failing:
            for each in (driver, build()):
                assert _answer(each.disks) in (None, (disk,))
                assert _answer(partial(each.disk, disk.volume_id)) in (None, disk)
        again = build()
        again.check()
        assert again.disks() == (disk,)
        return None

    # the verbs

    def test_a_create_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors, volume: Volume
    ) -> None:
        before = self.capacity_after_wipes(driver)
        for again in after_errors("create", lambda driver: driver.create(volume)):
            disk = again.disk(volume.id)
            assert again.disks() == (disk,)
            assert disk.size >= volume.size
            assert not self.difference(again, disk, b"")
            self.leaves_nothing(again, volume)
            assert self.has_same_space(again.capacity(), before)

    def test_a_create_that_meets_an_io_error_can_be_deleted(
        self, driver: VolumeDriver, after_errors: AfterErrors, volume: Volume
    ) -> None:
        before = self.capacity_after_wipes(driver)
        for again in after_errors(
            "create", lambda driver: driver.create(volume), False
        ):
            self.leaves_nothing(again, volume)
            assert self.has_same_space(again.capacity(), before)

    def test_a_delete_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors
    ) -> None:
        before = self.capacity_after_wipes(driver)
        volumes = [self.new_volume_with_bytes(driver)[0]]
        for again in after_errors(
            "delete", lambda driver: driver.delete(volumes[-1].id)
        ):
            assert again.disks() == ()
            self.wipe_deleted(again)
            assert self.has_same_space(again.capacity(), before)
            volumes.append(self.new_volume_with_bytes(again)[0])
        self.leaves_nothing(driver, volumes[-1])

    def test_an_extend_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors
    ) -> None:
        before = self.capacity_after_wipes(driver)
        volume, data = self.new_volume_with_bytes(driver)
        old = driver.disk(volume.id).size

        def extend(driver: VolumeDriver) -> None:
            driver.extend(Volume(volume.id, old + MIB))

        for again in after_errors("extend", extend):
            disk = again.disk(volume.id)
            assert disk.size >= old + MIB
            assert not self.difference(again, disk, data)
            old = disk.size
        self.leaves_nothing(driver, volume)
        assert self.has_same_space(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_a_create_snapshot_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors
    ) -> None:
        before = self.capacity_after_wipes(driver)
        volume, data = self.new_volume_with_bytes(driver)
        snapshots = [_snapshot(volume)]
        driver.create_snapshot(snapshots[0])
        driver.delete_snapshot(snapshots[0].id)
        for again in after_errors(
            "create_snapshot", lambda driver: driver.create_snapshot(snapshots[-1])
        ):
            assert not self.volume_difference(again, volume, data)
            assert again.snapshots() == (snapshots[-1].id,)
            self.overwrite(again, volume)
            again.revert(snapshots[-1])
            assert not self.volume_difference(again, volume, data)
            again.delete_snapshot(snapshots[-1].id)
            snapshots.append(_snapshot(volume))
        self.leaves_nothing(driver, volume)
        assert self.has_same_space(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_a_delete_snapshot_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors
    ) -> None:
        volume, data = self.new_volume_with_bytes(driver)
        snapshots = [_snapshot(volume)]
        driver.create_snapshot(snapshots[0])
        for again in after_errors(
            "delete_snapshot", lambda driver: driver.delete_snapshot(snapshots[-1].id)
        ):
            assert again.snapshots() == ()
            assert not self.volume_difference(again, volume, data)
            snapshots.append(_snapshot(volume))
            again.create_snapshot(snapshots[-1])
        driver.delete_snapshot(snapshots[-1].id)
        self.leaves_nothing(driver, volume)

    @requires("supports_snapshots")
    def test_a_create_from_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors, volume: Volume
    ) -> None:
        with self.volume_with_snapshot(driver) as (origin, data, snapshot):
            before = self.capacity_after_wipes(driver)
            for again in after_errors(
                "create_from", lambda driver: driver.create_from(volume, snapshot)
            ):
                assert not self.volume_difference(again, volume, data)
                assert not self.volume_difference(again, origin, data)
                again.delete(volume.id)
                self.wipe_deleted(again)
                assert again.disks() == (again.disk(origin.id),)
                assert self.has_same_space(again.capacity(), before)

    @requires("supports_snapshots")
    def test_a_revert_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors
    ) -> None:
        with self.volume_with_snapshot(driver) as (volume, data, snapshot):
            disk = driver.disk(volume.id)
            self.overwrite(driver, volume)
            for again in after_errors("revert", lambda driver: driver.revert(snapshot)):
                assert again.disks() == (disk,)
                assert again.snapshots() == (snapshot.id,)
                assert not self.volume_difference(again, volume, data)
                self.overwrite(again, volume)

    def test_a_fill_that_meets_an_io_error_can_be_retried(
        self, driver: VolumeDriver, after_errors: AfterErrors, create_volume: Create
    ) -> None:
        source, targets = create_volume(), [create_volume()]
        disk, data = driver.disk(source.id), self.pattern(source)
        self.write_pattern(driver, disk, data)
        if disk.kind not in self.can.fills:
            return
        for again in after_errors(
            "fill", lambda driver: driver.fill(targets[-1], disk)
        ):
            assert not self.volume_difference(again, targets[-1], data)
            assert not self.volume_difference(again, source, data)
            again.delete(targets[-1].id)
            self.wipe_deleted(again)
            targets.append(create_volume())

    def leaves_nothing(self, driver: VolumeDriver, volume: Volume) -> None:
        """Delete the volume, the only one; no disk must be left."""
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert driver.disks() == ()
        with pytest.raises(UnknownDisk):
            driver.disk(volume.id)


def _snapshot(volume: Volume) -> Snapshot:
    return Snapshot(str(uuid.uuid4()), volume.id, volume.size)


def _reports_success(verb: Verb, driver: VolumeDriver) -> bool:
    """Whether the verb returned. An error that is not a DriverError is raised."""
    try:
        verb(driver)
    except _UNFOUNDED:
        raise
    except DriverError:
        return False
    return True


def _answer(query: Callable[[], object]) -> object:
    """The answer; None if the driver reported an error."""
    try:
        return query()
    except _UNFOUNDED:
        raise
    except DriverError:
        return None


def _is_reported(driver: VolumeDriver) -> bool:
    """Whether ``check`` or ``capacity`` shows that the storage fails."""
    try:
        driver.check()
        return bool(driver.capacity().closed)
    except DriverError:
        return True
