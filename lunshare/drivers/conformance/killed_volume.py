# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of a volume driver that is killed at each of its steps.

Each kill is one step later than the kill before. After a kill the driver is built and
checked again, and the call is retried.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.at_once import AtOnceContract
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.fixtures import MIB, VolumeFixtures, new_volume
from lunshare.drivers.conformance.interruption import Kill
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import Capacity, Snapshot, Volume

Build = Callable[[], VolumeDriver]
ForeignState = Callable[[], object]
Kills = Callable[..., Iterator[Kill[VolumeDriver]]]


class KilledVolumeContract(AtOnceContract):
    """One test for each verb. No verb may change a foreign disk."""

    _how: tuple[bool, bool]

    @pytest.fixture
    def kills(
        self,
        build: Build,
        driver: VolumeDriver,
        foreign_state: ForeignState,
        steps: DriverSteps[VolumeDriver],
    ) -> Iterator[Kills]:
        """A function that yields kills; the pool must not have changed after them."""

        def kills_of(
            foreign: object, space: Capacity, may_do_nothing: bool
        ) -> Iterator[Kill[VolumeDriver]]:
            yield from steps.kills(may_do_nothing=may_do_nothing)
            self.wipe_deleted(driver)
            # A new driver: the driver of the test may have cached the capacity.
            after = build().capacity()
            assert after.provisioned == space.provisioned
            assert abs(after.free - space.free) <= self.metadata_size
            assert foreign_state() == foreign

        def start(may_do_nothing: bool = False) -> Iterator[Kill[VolumeDriver]]:
            self.wipe_deleted(driver)  # deleted disks take space until then
            return kills_of(foreign_state(), build().capacity(), may_do_nothing)

        yield start
        for snapshot_id in driver.snapshots():
            driver.delete_snapshot(snapshot_id)
        for disk in driver.disks():
            driver.delete(disk.volume_id)
            self.wipe_deleted(driver)

    @pytest.fixture
    def steps(self, build: Build) -> DriverSteps[VolumeDriver]:
        """How the steps of this driver are counted; probed once for a binding."""
        known = type(self).__dict__.get("_how")
        overridden = type(self).watch_steps is not VolumeFixtures.watch_steps
        steps = DriverSteps(build, self.watch_steps, self.counted, overridden)
        if known is None:
            volume = new_volume(self.size)

            def undo() -> bool:
                there = bool(build().disks())
                build().delete(volume.id)
                self.wipe_deleted(build())
                return there

            steps.probe(lambda driver: driver.create(volume), undo)
            type(self)._how = known = (steps.by_lines, steps.in_child)
        steps.by_lines, steps.in_child = known
        return steps

    def new_volume_with_bytes(self, driver: VolumeDriver) -> tuple[Volume, bytes]:
        """Create a volume with its own pattern, and return both."""
        volume = new_volume(self.size)
        data = self.pattern(volume)
        self.write_pattern(driver, driver.create(volume), data)
        return volume, data

    @contextlib.contextmanager
    def volume_with_snapshot(
        self, driver: VolumeDriver
    ) -> Iterator[tuple[Volume, bytes, Snapshot]]:
        """Create a volume with a pattern and a snapshot; delete them afterwards."""
        volume, data = self.new_volume_with_bytes(driver)
        snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
        driver.create_snapshot(snapshot)
        try:
            yield volume, data, snapshot
        finally:
            driver.delete_snapshot(snapshot.id)
            driver.delete(volume.id)

    def test_a_killed_create_is_finished_by_a_retry(self, kills: Kills) -> None:
        for kill in kills():
            volume = new_volume(self.size)
            again = kill.call_and_retry("create", volume)
            disk = again.disk(volume.id)
            assert again.disks() == (disk,)
            assert disk.size >= volume.size
            assert not self.difference(again, disk, b"")
            again.delete(volume.id)

    def test_a_killed_create_can_be_deleted(self, kills: Kills) -> None:
        for kill in kills():
            volume = new_volume(self.size)
            kill.call("create", volume)
            again = kill.restart()
            again.delete(volume.id)
            assert again.disks() == ()

    def test_a_killed_delete_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        for kill in kills():
            volume, _ = self.new_volume_with_bytes(driver)
            again = kill.call_and_retry("delete", volume.id)
            assert again.disks() == ()
            with pytest.raises(UnknownDisk):
                again.disk(volume.id)

    def test_a_killed_extend_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        tries = kills()
        volume, data = self.new_volume_with_bytes(driver)
        for kill in tries:
            old = driver.disk(volume.id).size
            again = kill.call_and_retry("extend", Volume(volume.id, old + MIB))
            disk = again.disk(volume.id)
            assert disk.size >= old + MIB
            assert not self.difference(again, disk, data)
            assert not any(self.read(again, disk, old, MIB))
            if not kill.killed:
                again.delete(volume.id)

    @requires("supports_snapshots")
    def test_a_killed_create_snapshot_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        volume, data = self.new_volume_with_bytes(driver)
        for kill in kills():
            snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
            again = kill.call_and_retry("create_snapshot", snapshot)
            assert again.snapshots() == (snapshot.id,)
            self.overwrite(again, volume)
            again.revert(snapshot)
            assert not self.volume_difference(again, volume, data)
            again.delete_snapshot(snapshot.id)

    @requires("supports_snapshots")
    def test_a_killed_delete_snapshot_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        volume, data = self.new_volume_with_bytes(driver)
        for kill in kills():
            snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
            driver.create_snapshot(snapshot)
            again = kill.call_and_retry("delete_snapshot", snapshot.id)
            assert again.snapshots() == ()
            assert not self.volume_difference(again, volume, data)

    @requires("supports_snapshots")
    def test_a_killed_create_from_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        with self.volume_with_snapshot(driver) as (origin, data, snapshot):
            for kill in kills():
                volume = new_volume(self.size)
                again = kill.call_and_retry("create_from", volume, snapshot)
                assert not self.volume_difference(again, volume, data)
                assert not self.volume_difference(again, origin, data)
                again.delete(volume.id)

    @requires("supports_snapshots")
    def test_a_killed_revert_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        with self.volume_with_snapshot(driver) as (volume, data, snapshot):
            before = driver.disk(volume.id)
            for kill in kills():
                self.overwrite(driver, volume)
                again = kill.call_and_retry("revert", snapshot)
                assert again.disk(volume.id) == before
                assert not self.volume_difference(again, volume, data)
                assert again.snapshots() == (snapshot.id,)

    @requires("manages")
    def test_a_killed_manage_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        volume, data = self.new_volume_with_bytes(driver)
        for kill in kills():
            driver.unmanage(volume.id)
            reference = self.unmanaged_reference(driver, volume)
            again = kill.call_and_retry("manage", volume, reference)
            assert not self.volume_difference(again, volume, data)
            assert again.disks() == (again.disk(volume.id),)

    @requires("manages")
    def test_a_killed_unmanage_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        volume, data = self.new_volume_with_bytes(driver)
        for kill in kills():
            again = kill.call_and_retry("unmanage", volume.id)
            assert again.disks() == ()
            again.manage(volume, self.unmanaged_reference(again, volume))
            assert not self.volume_difference(again, volume, data)

    @requires("manages_snapshots")
    def test_a_killed_unmanage_of_a_snapshot_is_finished_by_a_retry(
        self, driver: VolumeDriver, kills: Kills
    ) -> None:
        with self.volume_with_snapshot(driver) as (volume, data, snapshot):
            for kill in kills():
                again = kill.call_and_retry("unmanage_snapshot", snapshot)
                assert again.snapshots() == ()
                [found] = again.manageable_snapshots()
                again = kill.call_and_retry(
                    "manage_snapshot", snapshot, found.reference
                )
                assert again.snapshots() == (snapshot.id,)
                assert again.manageable_snapshots() == ()
            assert not self.volume_difference(driver, volume, data)

    def test_a_killed_wipe_is_continued_by_a_retry(
        self, driver: VolumeDriver, kills: Kills, create_volume: Create
    ) -> None:
        other = create_volume()
        for kill in kills(not self.can.wipes_deleted):
            volume, _ = self.new_volume_with_bytes(driver)
            driver.delete(volume.id)
            for left in driver.wipes():
                kill.call("wipe", left.name, left.size)
            self.wipe_deleted(kill.restart())
            assert driver.wipes() == ()
            assert driver.disks() == (driver.disk(other.id),)
