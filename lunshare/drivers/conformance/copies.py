# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots, clones and volumes that are created from a snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.manage_snapshots import ManageSnapshotContract
from lunshare.drivers.conformance.volume_bytes import PAGE, Create, Snap
from lunshare.drivers.errors import (
    DiskBusy,
    InvalidValue,
    NoSpace,
    UnknownDisk,
    UnknownSnapshot,
)
from lunshare.drivers.values import Disk, Snapshot, Volume

Build = Callable[[], VolumeDriver]
FullPool = Callable[[], AbstractContextManager[None]]

ForeignState = Callable[[], object]

_OTHER = b"-other-bytes-than-before-" * 400


class CopyContract(ManageSnapshotContract):
    """One test for each behaviour."""

    @pytest.fixture
    def new_snapshot(
        self, driver: VolumeDriver, create_volume: Create
    ) -> Iterator[Snap]:
        """A function that creates a snapshot; it is deleted before its volume."""
        created: list[Snapshot] = []

        def create(volume: Volume) -> Snapshot:
            created.append(Snapshot(str(uuid.uuid4()), volume.id, volume.size))
            driver.create_snapshot(created[-1])
            return created[-1]

        yield create
        for snapshot in created if self.can.supports_snapshots else ():
            driver.delete_snapshot(snapshot.id)

    def volume_difference(
        self, driver: VolumeDriver, volume: Volume, data: bytes
    ) -> str:
        """How a volume differs from one with the pattern ``data``; empty if equal."""
        return self.difference(driver, driver.disk(volume.id), data)

    def volume_with_bytes(
        self, driver: VolumeDriver, create_volume: Create
    ) -> tuple[Volume, bytes]:
        """Create a volume with its own pattern, and return both."""
        volume = create_volume()
        data = self.pattern(volume)
        self.write_pattern(driver, driver.disk(volume.id), data)
        return volume, data

    def clone(self, driver: VolumeDriver, volume: Volume, source: Volume) -> Disk:
        """Clone in one step if the driver can, or by a temporary snapshot."""
        if self.can.clones_at_once:
            return driver.clone(volume, source)
        temporary = Snapshot(volume.id, source.id, source.size)
        driver.create_snapshot(temporary)
        disk = driver.create_from(volume, temporary)
        driver.delete_snapshot(temporary.id)
        return disk

    def overwrite(self, driver: VolumeDriver, volume: Volume) -> bytes:
        """Write another pattern, and return it."""
        other = _OTHER[: 2 * PAGE]
        self.write_pattern(driver, driver.disk(volume.id), other)
        return other

    # snapshots

    @requires("supports_snapshots")
    def test_a_snapshot_does_not_change_when_its_volume_is_written(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        other = self.overwrite(driver, origin)
        driver.create_from(volume, snapshot)
        assert not self.volume_difference(driver, volume, data)
        assert not self.volume_difference(driver, origin, other)

    @requires("supports_snapshots")
    def test_a_retried_create_snapshot_changes_nothing(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        self.overwrite(driver, origin)
        driver.create_snapshot(snapshot)
        assert driver.snapshots() == (snapshot.id,)
        driver.create_from(volume, snapshot)
        assert not self.volume_difference(driver, volume, data)

    @requires("supports_snapshots")
    def test_create_snapshot_of_an_open_disk_succeeds_or_reports_disk_busy(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        with self.held_open(driver, driver.disk(origin.id)):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    new_snapshot(origin)
                assert driver.snapshots() == ()
                return
            snapshot = new_snapshot(origin)
        driver.create_from(volume, snapshot)
        assert not self.volume_difference(driver, volume, data)

    @requires("supports_snapshots")
    def test_snapshots_survive_a_restart(
        self,
        build: Build,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        self.reboot(driver)
        again = build()
        again.check()
        assert again.snapshots() == (snapshot.id,)
        again.create_from(volume, snapshot)
        assert not self.volume_difference(again, volume, data)

    @requires("supports_snapshots")
    def test_disks_does_not_list_snapshots(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin = create_volume()
        new_snapshot(origin), new_snapshot(origin)
        assert [disk.volume_id for disk in driver.disks()] == [origin.id]
        assert len(driver.snapshots()) == 2

    @requires("supports_snapshots")
    def test_create_snapshot_of_an_unknown_volume_fails(
        self, driver: VolumeDriver
    ) -> None:
        unknown = Snapshot(str(uuid.uuid4()), new_volume(self.size).id, self.size)
        with pytest.raises(UnknownDisk) as raised:
            driver.create_snapshot(unknown)
        assert raised.value.volume_id == unknown.volume_id
        assert driver.snapshots() == ()

    @requires("supports_snapshots")
    def test_delete_snapshot_deletes_only_that_snapshot(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        gone, kept = new_snapshot(origin), new_snapshot(origin)
        driver.delete_snapshot(gone.id)
        driver.delete_snapshot(gone.id)
        assert driver.snapshots() == (kept.id,)
        assert not self.volume_difference(driver, origin, data)

    @requires("supports_snapshots")
    def test_delete_of_an_unknown_snapshot_succeeds(self, driver: VolumeDriver) -> None:
        driver.delete_snapshot(str(uuid.uuid4()))

    @requires("supports_snapshots")
    def test_delete_snapshot_refuses_an_id_that_is_not_a_uuid(
        self, driver: VolumeDriver
    ) -> None:
        with pytest.raises(InvalidValue):
            driver.delete_snapshot("../lv-root")

    @requires("supports_snapshots")
    def test_delete_snapshot_frees_its_space(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, _ = self.volume_with_bytes(driver, create_volume)
        before = self.capacity_after_wipes(driver)
        driver.delete_snapshot(new_snapshot(origin).id)
        self.wipe_deleted(driver)
        assert self.has_same_space(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_create_snapshot_in_a_full_pool_leaves_nothing(
        self,
        driver: VolumeDriver,
        full_pool: FullPool,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        with full_pool():
            with pytest.raises(NoSpace):
                new_snapshot(origin)
            assert driver.snapshots() == ()
            assert not self.volume_difference(driver, origin, data)
        assert driver.snapshots() == ()

    # volumes from snapshots and clones

    @requires("supports_snapshots")
    def test_a_volume_from_a_snapshot_is_independent(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot, second = new_snapshot(origin), new_volume(self.size)
        driver.create_from(volume, snapshot)
        other = self.overwrite(driver, volume)
        driver.create_from(second, snapshot)
        assert not self.volume_difference(driver, second, data)
        driver.delete(second.id)
        driver.delete_snapshot(snapshot.id)
        assert not self.volume_difference(driver, volume, other)
        assert not self.volume_difference(driver, origin, data)

    @requires("supports_snapshots")
    def test_a_clone_is_independent_of_its_source(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        source, data = self.volume_with_bytes(driver, create_volume)
        self.clone(driver, volume, source)
        other = self.overwrite(driver, source)
        assert not self.volume_difference(driver, volume, data)
        driver.delete(source.id)
        assert not self.volume_difference(driver, volume, data)
        assert driver.snapshots() == ()
        assert other != data

    @requires("supports_snapshots")
    def test_clone_of_an_open_disk_succeeds_or_reports_disk_busy(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        source, data = self.volume_with_bytes(driver, create_volume)
        with self.held_open(driver, driver.disk(source.id)):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    self.clone(driver, volume, source)
                assert [disk.volume_id for disk in driver.disks()] == [source.id]
                return
            self.clone(driver, volume, source)
            assert not self.volume_difference(driver, volume, data)

    @requires("supports_snapshots")
    def test_create_from_a_smaller_snapshot_adds_zeros(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        size, larger = driver.disk(origin.id).size, new_volume(2 * self.size)
        disk = driver.create_from(larger, new_snapshot(origin))
        assert disk.size >= larger.size
        assert disk == driver.disk(larger.id)
        assert not self.volume_difference(driver, larger, data)
        added = self.read(driver, disk, size, 2 * self.size - size)
        assert added.count(0) == len(added)
        driver.delete(larger.id)

    @requires("supports_snapshots")
    def test_a_retried_create_from_changes_nothing(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, _ = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        disk = driver.create_from(volume, snapshot)
        other = self.overwrite(driver, volume)
        assert driver.create_from(volume, snapshot) == disk
        assert not self.volume_difference(driver, volume, other)
        # A caller that was killed does not know that the copy was complete, and may
        # have deleted the snapshot already: that of a clone is temporary.
        driver.delete_snapshot(snapshot.id)
        assert driver.create_from(volume, snapshot) == disk
        assert not self.volume_difference(driver, volume, other)

    @requires("supports_snapshots")
    def test_create_from_finishes_an_incomplete_copy(
        self,
        build: Build,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        self.leave_incomplete_copy(driver, volume, snapshot)
        again = build()
        again.check()
        again.create_from(volume, snapshot)
        assert not self.volume_difference(again, volume, data)

    @requires("supports_snapshots")
    def test_delete_of_an_incomplete_copy_frees_its_space(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, _ = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        before = self.capacity_after_wipes(driver)
        self.leave_incomplete_copy(driver, volume, snapshot)
        driver.delete(volume.id)
        driver.create_from(volume, snapshot)
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert self.has_same_space(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_create_from_an_unknown_snapshot_fails(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        origin = create_volume()
        unknown = Snapshot(str(uuid.uuid4()), origin.id, self.size)
        with pytest.raises(UnknownSnapshot) as raised:
            driver.create_from(volume, unknown)
        assert raised.value.snapshot_id == unknown.id
        assert [disk.volume_id for disk in driver.disks()] == [origin.id]

    @requires("supports_snapshots")
    def test_create_from_in_a_full_pool_leaves_nothing(
        self,
        driver: VolumeDriver,
        full_pool: FullPool,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        with full_pool():
            with pytest.raises(NoSpace):
                driver.create_from(volume, snapshot)
            assert [disk.volume_id for disk in driver.disks()] == [origin.id]
        driver.create_from(volume, snapshot)
        assert not self.volume_difference(driver, volume, data)

    @requires("supports_snapshots")
    def test_copies_do_not_change_foreign_disks(
        self,
        foreign_state: ForeignState,
        driver: VolumeDriver,
        create_volume: Create,
        volume: Volume,
    ) -> None:
        before = foreign_state()
        source = create_volume()
        self.clone(driver, volume, source)
        snapshot = Snapshot(str(uuid.uuid4()), source.id, self.size)
        driver.create_snapshot(snapshot)
        driver.revert(snapshot)
        driver.delete_snapshot(snapshot.id)
        assert foreign_state() == before
