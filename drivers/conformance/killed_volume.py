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
from lunshare.drivers.conformance.coverage import Stepping
from lunshare.drivers.conformance.fixtures import MIB, VolumeFixtures, new_volume
from lunshare.drivers.conformance.interruption import Life
from lunshare.drivers.conformance.revert import RevertContract
from lunshare.drivers.conformance.volume_bytes import Make
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import Capacity, Snapshot, Volume

Build = Callable[[], VolumeDriver]
State = Callable[[], object]
Lives = Callable[..., Iterator[Life[VolumeDriver]]]


class KilledVolumeContract(RevertContract):
    """A verb a test; what others have in the pool is looked at in each."""

    _how: tuple[bool, bool]

    @pytest.fixture
    def each(
        self,
        build: Build,
        driver: VolumeDriver,
        foreign: State,
        stepping: Stepping[VolumeDriver],
    ) -> Iterator[Lives]:
        """Lives to try a verb in; the pool is then as it was when they were called."""

        def tried(
            theirs: object, room: Capacity, idle: bool
        ) -> Iterator[Life[VolumeDriver]]:
            yield from stepping.lives(idle=idle)
            self.settle(driver)
            # Not the driver of the test, which was not there when others worked.
            after = build().capacity()
            assert after.provisioned == room.provisioned
            assert abs(after.free - room.free) <= self.tables
            assert foreign() == theirs

        def begin(idle: bool = False) -> Iterator[Life[VolumeDriver]]:
            self.settle(driver)  # what earlier work has left takes room until then
            return tried(foreign(), build().capacity(), idle)

        yield begin
        for snapshot_id in driver.snapshots():
            driver.delete_snapshot(snapshot_id)
        for disk in driver.disks():
            driver.delete(disk.volume_id)
            self.settle(driver)

    @pytest.fixture
    def stepping(self, build: Build) -> Stepping[VolumeDriver]:
        """How this driver's steps are counted; found out once for a binding."""
        known = type(self).__dict__.get("_how")
        hooked = type(self).watched is not VolumeFixtures.watched
        made = Stepping(build, self.watched, self.counted, hooked)
        if known is None:
            volume = new_volume(self.size)

            def undone() -> bool:
                there = bool(build().disks())
                build().delete(volume.id)
                self.settle(build())
                return there

            made.probe(lambda driver: driver.create(volume), undone)
            type(self)._how = known = (made.by_lines, made.apart)
        made.by_lines, made.apart = known
        return made

    def ours(self, driver: VolumeDriver) -> tuple[Volume, bytes]:
        """A volume with bytes of its own."""
        volume = new_volume(self.size)
        data = self.pattern(volume)
        self.fill(driver, driver.create(volume), data)
        return volume, data

    @contextlib.contextmanager
    def kept(self, driver: VolumeDriver) -> Iterator[tuple[Volume, bytes, Snapshot]]:
        """A volume, its bytes, and the snapshot that has them; gone afterwards."""
        volume, data = self.ours(driver)
        snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
        driver.create_snapshot(snapshot)
        yield volume, data, snapshot
        driver.delete_snapshot(snapshot.id)
        driver.delete(volume.id)

    def test_a_killed_create_is_finished_by_a_retry(self, each: Lives) -> None:
        for life in each():
            volume = new_volume(self.size)
            again = life.repeats("create", volume)
            disk = again.disk(volume.id)
            assert again.disks() == (disk,)
            assert disk.size >= volume.size
            assert not self.damaged(again, disk, b"")
            again.delete(volume.id)

    def test_a_killed_create_can_be_deleted(self, each: Lives) -> None:
        for life in each():
            volume = new_volume(self.size)
            life.ends("create", volume)
            again = life.next()
            again.delete(volume.id)
            assert again.disks() == ()

    def test_a_killed_delete_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        for life in each():
            volume, _ = self.ours(driver)
            again = life.repeats("delete", volume.id)
            assert again.disks() == ()
            with pytest.raises(UnknownDisk):
                again.disk(volume.id)

    def test_a_killed_extend_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        tries = each()
        volume, data = self.ours(driver)
        for life in tries:
            old = driver.disk(volume.id).size
            again = life.repeats("extend", Volume(volume.id, old + MIB))
            disk = again.disk(volume.id)
            assert disk.size >= old + MIB
            assert not self.damaged(again, disk, data)
            assert not any(self.read(again, disk, old, MIB))
            if not life.killed:
                again.delete(volume.id)

    @requires("supports_snapshots")
    def test_a_killed_create_snapshot_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        volume, data = self.ours(driver)
        for life in each():
            snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
            again = life.repeats("create_snapshot", snapshot)
            assert again.snapshots() == (snapshot.id,)
            self.overwrite(again, volume)
            again.revert(snapshot)
            assert not self.harmed(again, volume, data)
            again.delete_snapshot(snapshot.id)

    @requires("supports_snapshots")
    def test_a_killed_delete_snapshot_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        volume, data = self.ours(driver)
        for life in each():
            snapshot = Snapshot(str(uuid.uuid4()), volume.id, self.size)
            driver.create_snapshot(snapshot)
            again = life.repeats("delete_snapshot", snapshot.id)
            assert again.snapshots() == ()
            assert not self.harmed(again, volume, data)

    @requires("supports_snapshots")
    def test_a_killed_create_from_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        with self.kept(driver) as (origin, data, snapshot):
            for life in each():
                volume = new_volume(self.size)
                again = life.repeats("create_from", volume, snapshot)
                assert not self.harmed(again, volume, data)
                assert not self.harmed(again, origin, data)
                again.delete(volume.id)

    @requires("supports_snapshots")
    def test_a_killed_revert_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        with self.kept(driver) as (volume, data, snapshot):
            before = driver.disk(volume.id)
            for life in each():
                self.overwrite(driver, volume)
                again = life.repeats("revert", snapshot)
                assert again.disk(volume.id) == before
                assert not self.harmed(again, volume, data)
                assert again.snapshots() == (snapshot.id,)

    @requires("manages")
    def test_a_killed_manage_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        volume, data = self.ours(driver)
        for life in each():
            driver.unmanage(volume.id)
            reference = self.given_away(driver, volume)
            again = life.repeats("manage", volume, reference)
            assert not self.harmed(again, volume, data)
            assert again.disks() == (again.disk(volume.id),)

    @requires("manages")
    def test_a_killed_unmanage_is_finished_by_a_retry(
        self, driver: VolumeDriver, each: Lives
    ) -> None:
        volume, data = self.ours(driver)
        for life in each():
            again = life.repeats("unmanage", volume.id)
            assert again.disks() == ()
            again.manage(volume, self.given_away(again, volume))
            assert not self.harmed(again, volume, data)

    def test_a_killed_wipe_is_continued_by_a_retry(
        self, driver: VolumeDriver, each: Lives, made: Make
    ) -> None:
        other = made()
        for life in each(not self.can.wipes_deleted):
            volume, _ = self.ours(driver)
            driver.delete(volume.id)
            for left in driver.wipes():
                life.ends("wipe", left.name, left.size)
            self.settle(life.next())
            assert driver.wipes() == ()
            assert driver.disks() == (driver.disk(other.id),)
