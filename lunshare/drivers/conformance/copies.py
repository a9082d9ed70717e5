# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots, clones and volumes that are created from a snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.manage_snapshots import ManageSnapshotContract
from lunshare.drivers.conformance.volume_bytes import (
    HOLE,
    PAGE,
    Create,
    Snap,
    first_difference,
)
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

#: A chunk of most storages.
_STEP = 64 * 1024

_OTHER = b"-other-bytes-than-before-" * 400


@dataclass(frozen=True)
class CopyCase:
    """A volume with its own pattern, and one that may become its copy.

    data: the pattern of ``origin``.
    volume: does not exist yet; it is deleted first at the end.
    """

    contract: CopyContract
    driver: VolumeDriver
    origin: Volume
    data: bytes
    volume: Volume
    new_snapshot: Snap

    @property
    def disk(self) -> Disk:
        """The origin's disk, as it is now."""
        return self.driver.disk(self.origin.id)

    def volume_ids(self) -> list[str]:
        """The ids of all volumes that the driver has."""
        return [disk.volume_id for disk in self.driver.disks()]

    def snapshot(self) -> Snapshot:
        """A new snapshot of the origin; it is deleted before its volume."""
        return self.new_snapshot(self.origin)

    def create_from(self, snapshot: Snapshot) -> Disk:
        """Create the volume from a snapshot."""
        return self.driver.create_from(self.volume, snapshot)

    def clone(self) -> Disk:
        """Clone the origin, in one step if the driver can."""
        return self.contract.clone(self.driver, self.volume, self.origin)

    def overwrite(self, volume: Volume) -> bytes:
        """Write another pattern, and return it."""
        return self.contract.overwrite(self.driver, volume)

    def difference(self, volume: Volume, data: bytes) -> str:
        """How a volume differs from one with the pattern ``data``; empty if equal."""
        return self.contract.volume_difference(self.driver, volume, data)


class CopyContract(ManageSnapshotContract):
    """One test for each behaviour."""

    @pytest.fixture
    def new_snapshot(
        self, driver: VolumeDriver, create_volume: Create
    ) -> Iterator[Snap]:
        """A function that creates a snapshot; it is deleted before its volume."""
        created: list[Snapshot] = []

        def create(volume: Volume, key: str = "") -> Snapshot:
            key = key or str(uuid.uuid4())
            created.append(Snapshot(key, volume.id, volume.size))
            driver.create_snapshot(created[-1])
            return created[-1]

        yield create
        for snapshot in created if self.can.supports_snapshots else ():
            driver.delete_snapshot(snapshot.id)

    @pytest.fixture
    def case(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> CopyCase:
        """What most tests of copies start with."""
        origin, data = self.volume_with_bytes(driver, create_volume)
        return CopyCase(self, driver, origin, data, volume, new_snapshot)

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
        self, case: CopyCase
    ) -> None:
        """It has the holes of a discard, and reads as before one. So does a copy."""
        self.write(case.driver, case.disk, HOLE, case.data)
        self.try_discard(case.driver, case.disk, HOLE, len(case.data))
        before = self.all_bytes(case.driver, case.disk)
        snapshot = case.snapshot()
        case.overwrite(case.origin)
        self.discard_if_supported(case.driver, case.disk, 0, self.size)
        copy = case.create_from(snapshot)
        self.discard_if_supported(case.driver, case.disk, 0, self.size)
        assert not first_difference(self.all_bytes(case.driver, copy), before)

    @requires("supports_snapshots")
    def test_a_retried_create_snapshot_changes_nothing(self, case: CopyCase) -> None:
        snapshot = case.snapshot()
        other = case.overwrite(case.origin)
        case.driver.create_snapshot(snapshot)
        assert case.driver.snapshots() == (snapshot.id,)
        case.create_from(snapshot)
        assert not case.difference(case.volume, case.data)
        assert not case.difference(case.origin, other)

    @requires("supports_snapshots")
    def test_create_snapshot_of_an_open_disk_succeeds_or_reports_disk_busy(
        self, case: CopyCase
    ) -> None:
        with self.held_open(case.driver, case.disk):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    case.snapshot()
                assert case.driver.snapshots() == ()
                return
            snapshot = case.snapshot()
        case.create_from(snapshot)
        assert not case.difference(case.volume, case.data)

    @requires("supports_snapshots")
    def test_snapshots_survive_a_restart(self, case: CopyCase, build: Build) -> None:
        """Also one that has the id of a volume."""
        snapshot = case.new_snapshot(case.origin, case.origin.id)
        self.reboot(case.driver)
        again = build()
        again.check()
        assert again.snapshots() == (snapshot.id,)
        again.create_from(case.volume, snapshot)
        assert not self.volume_difference(again, case.volume, case.data)

    @requires("supports_snapshots")
    def test_disks_does_not_list_snapshots(
        self, driver: VolumeDriver, create_volume: Create, new_snapshot: Snap
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
    def test_delete_and_revert_preserve_other_snapshots(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        """Three snapshots, each with one page more; the middle one is deleted.

        And they preserve a copy of the oldest one, which has been written to.
        """
        copy = volume
        volume = create_volume(MIB)
        disk, data = driver.disk(volume.id), self.pattern(volume)
        stages = []
        for number in range(3):
            self.write(driver, disk, number * _STEP, data)
            stages.append((new_snapshot(volume), self.read(driver, disk, 0, MIB)))
        older, (gone, _), newer = stages
        other = _OTHER[:PAGE] * (3 * _STEP // PAGE)
        driver.create_from(Volume(copy.id, MIB), older[0])
        self.write(driver, driver.disk(copy.id), 0, other)
        self.write(driver, disk, 0, other)
        driver.delete_snapshot(gone.id)
        driver.delete_snapshot(gone.id)
        assert self.read(driver, disk, 0, MIB) == other.ljust(MIB, b"\0")
        for snapshot, before in (older, newer):
            disk = driver.revert(snapshot)
            assert not first_difference(self.read(driver, disk, 0, MIB), before)
            assert {*driver.snapshots()} == {older[0].id, newer[0].id}
        copied = self.read(driver, driver.disk(copy.id), 0, len(other))
        assert copied == other

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
    def test_delete_snapshot_frees_its_space(self, case: CopyCase) -> None:
        before = self.capacity_after_wipes(case.driver)
        case.driver.delete_snapshot(case.snapshot().id)
        self.wipe_deleted(case.driver)
        assert self.has_same_space(case.driver.capacity(), before)

    @requires("supports_snapshots")
    def test_create_snapshot_in_a_full_pool_leaves_nothing(
        self, case: CopyCase, full_pool: FullPool
    ) -> None:
        with full_pool():
            with pytest.raises(NoSpace):
                case.snapshot()
            assert case.driver.snapshots() == ()
            assert not case.difference(case.origin, case.data)
        assert case.driver.snapshots() == ()

    # volumes from snapshots and clones

    @requires("supports_snapshots")
    def test_a_volume_from_a_snapshot_is_independent(self, case: CopyCase) -> None:
        """Also of a volume that has its id, as the snapshot of a clone."""
        snapshot = case.snapshot()
        second = Volume(snapshot.id, self.size)
        case.create_from(snapshot)
        case.driver.create_from(second, snapshot)
        other = case.overwrite(case.volume)
        for _ in range(2):  # a copy from before, and one from after this write
            case.driver.create_from(second, snapshot)
            assert not case.difference(second, case.data)
            case.driver.delete(second.id)
        assert case.driver.snapshots() == (snapshot.id,)
        case.driver.delete_snapshot(snapshot.id)
        assert not case.difference(case.volume, other)
        assert not case.difference(case.origin, case.data)

    @requires("supports_snapshots")
    def test_a_clone_is_independent_of_its_source(self, case: CopyCase) -> None:
        case.clone()
        other = case.overwrite(case.origin)
        assert not case.difference(case.volume, case.data)
        case.driver.delete(case.origin.id)
        assert not case.difference(case.volume, case.data)
        assert case.driver.snapshots() == ()
        assert other != case.data

    @requires("supports_snapshots")
    def test_clone_of_an_open_disk_succeeds_or_reports_disk_busy(
        self, case: CopyCase
    ) -> None:
        with self.held_open(case.driver, case.disk):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    case.clone()
                assert case.volume_ids() == [case.origin.id]
                return
            case.clone()
            assert not case.difference(case.volume, case.data)

    @requires("supports_snapshots")
    def test_create_from_a_smaller_snapshot_adds_zeros(self, case: CopyCase) -> None:
        size, larger = case.disk.size, new_volume(2 * self.size)
        disk = case.driver.create_from(larger, case.snapshot())
        assert disk.size >= larger.size
        assert disk == case.driver.disk(larger.id)
        assert not case.difference(larger, case.data)
        added = self.read(case.driver, disk, size, 2 * self.size - size)
        assert added.count(0) == len(added)
        case.driver.delete(larger.id)

    @requires("supports_snapshots")
    def test_a_retried_create_from_changes_nothing(self, case: CopyCase) -> None:
        snapshot = case.snapshot()
        disk = case.create_from(snapshot)
        other = case.overwrite(case.volume)
        assert case.create_from(snapshot) == disk
        assert not case.difference(case.volume, other)
        # A caller that was killed does not know that the copy was complete, and may
        # have deleted the snapshot already: that of a clone is temporary.
        case.driver.delete_snapshot(snapshot.id)
        assert case.create_from(snapshot) == disk
        assert not case.difference(case.volume, other)

    @requires("supports_snapshots")
    def test_create_from_finishes_an_incomplete_copy(
        self, case: CopyCase, build: Build
    ) -> None:
        snapshot = case.snapshot()
        self.leave_incomplete_copy(case.driver, case.volume, snapshot)
        again = build()
        again.check()
        again.create_from(case.volume, snapshot)
        assert not self.volume_difference(again, case.volume, case.data)

    @requires("supports_snapshots")
    def test_delete_of_an_incomplete_copy_frees_its_space(self, case: CopyCase) -> None:
        snapshot = case.snapshot()
        before = self.capacity_after_wipes(case.driver)
        self.leave_incomplete_copy(case.driver, case.volume, snapshot)
        case.driver.delete(case.volume.id)
        case.create_from(snapshot)
        case.driver.delete(case.volume.id)
        self.wipe_deleted(case.driver)
        assert self.has_same_space(case.driver.capacity(), before)

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
        self, case: CopyCase, full_pool: FullPool
    ) -> None:
        snapshot = case.snapshot()
        with full_pool():
            with pytest.raises(NoSpace):
                case.create_from(snapshot)
            assert case.volume_ids() == [case.origin.id]
        case.create_from(snapshot)
        assert not case.difference(case.volume, case.data)

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
