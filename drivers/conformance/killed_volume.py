# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every volume driver does when it is killed at any of its steps, as tests.

Each life is killed one step later than the one before it; the next one is
built and checked anew, and does all of the work again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.fixtures import MIB, VolumeFixtures, new_volume
from lunshare.drivers.conformance.interruption import Kill
from lunshare.drivers.conformance.revert import RevertContract
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import Capacity, Snapshot, Volume

Build = Callable[[], VolumeDriver]
ForeignState = Callable[[], object]
Kills = Callable[..., Iterator[Kill[VolumeDriver]]]


class KilledVolumeContract(RevertContract):
    """A verb a test; what others have in the pool is looked at in each."""

    _how: tuple[bool, bool]

    @pytest.fixture
    def kills(
        self,
        build: Build,
        driver: VolumeDriver,
        foreign_state: ForeignState,
        steps: DriverSteps[VolumeDriver],
    ) -> Iterator[Kills]:
        """Lives to try a verb in; the pool is then as it was when they were called."""

        def kills_of(
            theirs: object, room: Capacity, may_do_nothing: bool
        ) -> Iterator[Kill[VolumeDriver]]:
            yield from steps.kills(may_do_nothing=may_do_nothing)
            self.wipe_deleted(driver)
            # Not the driver of the test, which was not there when others worked.
            after = build().capacity()
            assert after.provisioned == room.provisioned
            assert abs(after.free - room.free) <= self.metadata_size
            assert foreign_state() == theirs

        def begin(may_do_nothing: bool = False) -> Iterator[Kill[VolumeDriver]]:
            self.wipe_deleted(driver)  # deleted disks take space until then
            return kills_of(foreign_state(), build().capacity(), may_do_nothing)

        yield begin
        for snapshot_id in driver.snapshots():
            driver.delete_snapshot(snapshot_id)
        for disk in driver.disks():
            driver.delete(disk.volume_id)
            self.wipe_deleted(driver)

    @pytest.fixture
    def steps(self, build: Build) -> DriverSteps[VolumeDriver]:
        """How this driver's steps are counted; found out once for a binding."""
        known = type(self).__dict__.get("_how")
        overridden = type(self).watch_steps is not VolumeFixtures.watch_steps
        made = DriverSteps(build, self.watch_steps, self.counted, overridden)
        if known is None:
            volume = new_volume(self.size)

            def undo() -> bool:
                there = bool(build().disks())
                build().delete(volume.id)
                self.wipe_deleted(build())
                return there

            made.probe(lambda driver: driver.create(volume), undo)
            type(self)._how = known = (made.by_lines, made.in_child)
        made.by_lines, made.in_child = known
        return made

    def new_volume_with_bytes(self, driver: VolumeDriver) -> tuple[Volume, bytes]:
        """A volume with bytes of its own."""
        volume = new_volume(self.size)
        data = self.pattern(volume)
        self.write_pattern(driver, driver.create(volume), data)
        return volume, data

    @contextlib.contextmanager
    def volume_with_snapshot(
        self, driver: VolumeDriver
    ) -> Iterator[tuple[Volume, bytes, Snapshot]]:
        """A volume, its bytes, and the snapshot that has them; gone afterwards."""
        volume, data = self.new_volume_with_bytes(driver)
        snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
        driver.create_snapshot(snapshot)
        yield volume, data, snapshot
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
