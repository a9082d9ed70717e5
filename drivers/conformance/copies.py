# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every volume driver that keeps snapshots does, as tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import asks
from lunshare.drivers.conformance.bytes import PAGE, Make
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.manage import HandingContract
from lunshare.drivers.errors import (
    DiskBusy,
    InvalidValue,
    NoSpace,
    UnknownDisk,
    UnknownSnapshot,
)
from lunshare.drivers.values import Disk, Snapshot, Volume

Build = Callable[[], VolumeDriver]
Full = Callable[[], AbstractContextManager[None]]
Keep = Callable[[Volume], Snapshot]
State = Callable[[], object]

_OTHER = b"-other-bytes-than-before-" * 400


class CopiesContract(HandingContract):
    """Snapshots, volumes made of them and of other volumes, and the way back."""

    @pytest.fixture
    def keep(self, driver: VolumeDriver, made: Make) -> Iterator[Keep]:
        """Take a snapshot; all of them are gone before the volumes go."""
        kept: list[Snapshot] = []

        def take(volume: Volume) -> Snapshot:
            kept.append(Snapshot(str(uuid.uuid4()), volume.id, volume.size))
            driver.create_snapshot(kept[-1])
            return kept[-1]

        yield take
        for snapshot in kept if self.can.supports_snapshots else ():
            driver.delete_snapshot(snapshot.id)

    def harmed(self, driver: VolumeDriver, volume: Volume, data: bytes) -> str:
        """What is wrong with a volume that was filled with ``data``; all is read."""
        return self.damaged(driver, driver.disk(volume.id), data)

    def filled(self, driver: VolumeDriver, made: Make) -> tuple[Volume, bytes]:
        """A volume with bytes of its own."""
        volume = made()
        data = self.pattern(volume)
        self.fill(driver, driver.disk(volume.id), data)
        return volume, data

    def clone(self, driver: VolumeDriver, volume: Volume, source: Volume) -> Disk:
        """What lunshare.drivers.base.Backend does."""
        moment = Snapshot(volume.id, source.id, source.size)
        driver.create_snapshot(moment)
        disk = driver.create_from(volume, moment)
        driver.delete_snapshot(moment.id)
        return disk

    def overwrite(self, driver: VolumeDriver, volume: Volume) -> bytes:
        """Put other bytes over both ends."""
        other = _OTHER[: 2 * PAGE]
        self.fill(driver, driver.disk(volume.id), other)
        return other

    # snapshots

    @asks("supports_snapshots")
    def test_a_snapshot_does_not_move(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot = keep(origin)
        other = self.overwrite(driver, origin)
        driver.create_from(volume, snapshot)
        assert not self.harmed(driver, volume, data)
        assert not self.harmed(driver, origin, other)

    @asks("supports_snapshots")
    def test_a_snapshot_taken_again_keeps_its_moment(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot = keep(origin)
        self.overwrite(driver, origin)
        driver.create_snapshot(snapshot)
        assert driver.snapshots() == (snapshot.id,)
        driver.create_from(volume, snapshot)
        assert not self.harmed(driver, volume, data)

    @asks("supports_snapshots")
    def test_a_snapshot_of_an_open_disk(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        with self.held_open(driver, driver.disk(origin.id)):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    keep(origin)
                assert driver.snapshots() == ()
                return
            snapshot = keep(origin)
        driver.create_from(volume, snapshot)
        assert not self.harmed(driver, volume, data)

    @asks("supports_snapshots")
    def test_snapshots_outlive_a_restart(
        self, build: Build, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot = keep(origin)
        self.power_cycle(driver)
        again = build()
        again.check()
        assert again.snapshots() == (snapshot.id,)
        again.create_from(volume, snapshot)
        assert not self.harmed(again, volume, data)

    @asks("supports_snapshots")
    def test_snapshots_are_no_disks(
        self, driver: VolumeDriver, made: Make, keep: Keep
    ) -> None:
        origin = made()
        keep(origin), keep(origin)
        assert [disk.volume_id for disk in driver.disks()] == [origin.id]
        assert len(driver.snapshots()) == 2

    @asks("supports_snapshots")
    def test_a_snapshot_of_the_unknown_is_refused(self, driver: VolumeDriver) -> None:
        unknown = Snapshot(str(uuid.uuid4()), new_volume(self.size).id, self.size)
        with pytest.raises(UnknownDisk) as raised:
            driver.create_snapshot(unknown)
        assert raised.value.volume_id == unknown.volume_id
        assert driver.snapshots() == ()

    @asks("supports_snapshots")
    def test_delete_snapshot_removes_that_one(
        self, driver: VolumeDriver, made: Make, keep: Keep
    ) -> None:
        origin, data = self.filled(driver, made)
        gone, kept = keep(origin), keep(origin)
        driver.delete_snapshot(gone.id)
        driver.delete_snapshot(gone.id)
        assert driver.snapshots() == (kept.id,)
        assert not self.harmed(driver, origin, data)

    @asks("supports_snapshots")
    def test_delete_snapshot_of_the_unknown_is_success(
        self, driver: VolumeDriver
    ) -> None:
        driver.delete_snapshot(str(uuid.uuid4()))

    @asks("supports_snapshots")
    def test_a_snapshot_that_is_no_uuid_is_refused(self, driver: VolumeDriver) -> None:
        with pytest.raises(InvalidValue):
            driver.delete_snapshot("../lv-root")

    @asks("supports_snapshots")
    def test_a_snapshot_takes_its_room_back_when_it_goes(
        self, driver: VolumeDriver, made: Make, keep: Keep
    ) -> None:
        origin, _ = self.filled(driver, made)
        before = driver.capacity()
        driver.delete_snapshot(keep(origin).id)
        self.settle(driver)
        assert self.same_room(driver.capacity(), before)

    @asks("supports_snapshots")
    def test_a_snapshot_in_a_full_pool_leaves_nothing(
        self, driver: VolumeDriver, exhausted: Full, made: Make, keep: Keep
    ) -> None:
        origin, data = self.filled(driver, made)
        with exhausted():
            with pytest.raises(NoSpace):
                keep(origin)
            assert driver.snapshots() == ()
            assert not self.harmed(driver, origin, data)
        assert driver.snapshots() == ()

    # volumes made of another's bytes

    @asks("supports_snapshots")
    def test_a_volume_of_a_snapshot_goes_its_own_way(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot, second = keep(origin), new_volume(self.size)
        driver.create_from(volume, snapshot)
        other = self.overwrite(driver, volume)
        driver.create_from(second, snapshot)
        assert not self.harmed(driver, second, data)
        driver.delete(second.id)
        driver.delete_snapshot(snapshot.id)
        assert not self.harmed(driver, volume, other)
        assert not self.harmed(driver, origin, data)

    @asks("supports_snapshots")
    def test_a_clone_goes_its_own_way(
        self, driver: VolumeDriver, made: Make, volume: Volume
    ) -> None:
        source, data = self.filled(driver, made)
        self.clone(driver, volume, source)
        other = self.overwrite(driver, source)
        assert not self.harmed(driver, volume, data)
        driver.delete(source.id)
        assert not self.harmed(driver, volume, data)
        assert driver.snapshots() == ()
        assert other != data

    @asks("supports_snapshots")
    def test_a_clone_of_an_open_disk(
        self, driver: VolumeDriver, made: Make, volume: Volume
    ) -> None:
        source, data = self.filled(driver, made)
        with self.held_open(driver, driver.disk(source.id)):
            if not self.can.snapshots_open:
                with pytest.raises(DiskBusy):
                    self.clone(driver, volume, source)
                assert [disk.volume_id for disk in driver.disks()] == [source.id]
                return
            self.clone(driver, volume, source)
            assert not self.harmed(driver, volume, data)

    @asks("supports_snapshots")
    def test_a_larger_copy_has_zeros_behind(
        self, driver: VolumeDriver, made: Make, keep: Keep
    ) -> None:
        origin, data = self.filled(driver, made)
        size, larger = driver.disk(origin.id).size, new_volume(2 * self.size)
        disk = driver.create_from(larger, keep(origin))
        assert disk.size >= larger.size
        assert disk == driver.disk(larger.id)
        assert not self.harmed(driver, larger, data)
        added = self.read(driver, disk, size, 2 * self.size - size)
        assert added.count(0) == len(added)
        driver.delete(larger.id)

    @asks("supports_snapshots")
    def test_a_copy_made_again_changes_nothing(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, _ = self.filled(driver, made)
        snapshot = keep(origin)
        disk = driver.create_from(volume, snapshot)
        other = self.overwrite(driver, volume)
        assert driver.create_from(volume, snapshot) == disk
        assert not self.harmed(driver, volume, other)

    @asks("supports_snapshots")
    def test_a_half_made_copy_is_finished(
        self, build: Build, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot = keep(origin)
        self.leave_half_copied(driver, volume, snapshot)
        again = build()
        again.check()
        again.create_from(volume, snapshot)
        assert not self.harmed(again, volume, data)

    @asks("supports_snapshots")
    def test_a_half_made_copy_is_deleted_wholly(
        self, driver: VolumeDriver, made: Make, keep: Keep, volume: Volume
    ) -> None:
        origin, _ = self.filled(driver, made)
        snapshot, before = keep(origin), driver.capacity()
        self.leave_half_copied(driver, volume, snapshot)
        driver.delete(volume.id)
        driver.create_from(volume, snapshot)
        driver.delete(volume.id)
        self.settle(driver)
        assert self.same_room(driver.capacity(), before)

    @asks("supports_snapshots")
    def test_a_copy_of_the_unknown_is_refused(
        self, driver: VolumeDriver, made: Make, volume: Volume
    ) -> None:
        origin = made()
        unknown = Snapshot(str(uuid.uuid4()), origin.id, self.size)
        with pytest.raises(UnknownSnapshot) as raised:
            driver.create_from(volume, unknown)
        assert raised.value.snapshot_id == unknown.id
        assert [disk.volume_id for disk in driver.disks()] == [origin.id]

    @asks("supports_snapshots")
    def test_a_copy_in_a_full_pool_leaves_nothing(
        self,
        driver: VolumeDriver,
        exhausted: Full,
        made: Make,
        keep: Keep,
        volume: Volume,
    ) -> None:
        origin, data = self.filled(driver, made)
        snapshot = keep(origin)
        with exhausted():
            with pytest.raises(NoSpace):
                driver.create_from(volume, snapshot)
            assert [disk.volume_id for disk in driver.disks()] == [origin.id]
        driver.create_from(volume, snapshot)
        assert not self.harmed(driver, volume, data)

    @asks("supports_snapshots")
    def test_foreign_disks_are_not_touched_by_copies(
        self, foreign: State, driver: VolumeDriver, made: Make, volume: Volume
    ) -> None:
        before = foreign()
        source = made()
        self.clone(driver, volume, source)
        snapshot = Snapshot(str(uuid.uuid4()), source.id, self.size)
        driver.create_snapshot(snapshot)
        driver.revert(snapshot)
        driver.delete_snapshot(snapshot.id)
        assert foreign() == before
