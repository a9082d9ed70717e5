# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of revert: a volume gets the bytes of its snapshot again."""

from __future__ import annotations

import uuid

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.point_in_time import PointInTimeContract
from lunshare.drivers.conformance.volume_bytes import Create, Snap
from lunshare.drivers.errors import DiskBusy, LostSnapshot, UnknownSnapshot
from lunshare.drivers.values import Snapshot, Volume


class RevertContract(PointInTimeContract):
    """One test for each behaviour."""

    @requires("supports_snapshots")
    def test_revert_restores_the_bytes_and_preserves_the_snapshot(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        before, snapshot = driver.disk(origin.id), new_snapshot(origin)
        for _ in range(2):
            self.overwrite(driver, origin)
            assert driver.revert(snapshot) == before
            assert not self.volume_difference(driver, origin, data)
            assert driver.snapshots() == (snapshot.id,)

    @requires("supports_snapshots", "extends_under_snapshots")
    def test_revert_restores_the_size(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        before, snapshot = driver.disk(origin.id), new_snapshot(origin)
        driver.extend(Volume(origin.id, 2 * self.size))
        assert driver.revert(snapshot) == before
        assert not self.volume_difference(driver, origin, data)

    @requires("supports_snapshots")
    def test_revert_preserves_other_snapshots(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        first, other = new_snapshot(origin), self.overwrite(driver, origin)
        second = new_snapshot(origin)
        driver.revert(first)
        assert not self.volume_difference(driver, origin, data)
        assert set(driver.snapshots()) == {first.id, second.id}
        driver.revert(second)
        assert not self.volume_difference(driver, origin, other)

    @requires("supports_snapshots")
    def test_revert_refuses_an_open_disk(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
    ) -> None:
        origin, _ = self.volume_with_bytes(driver, create_volume)
        snapshot, other = new_snapshot(origin), self.overwrite(driver, origin)
        with (
            self.held_open(driver, driver.disk(origin.id)),
            pytest.raises(DiskBusy),
        ):
            driver.revert(snapshot)
        assert not self.volume_difference(driver, origin, other)

    @requires("supports_snapshots")
    def test_revert_to_an_unknown_snapshot_fails(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        with pytest.raises(UnknownSnapshot):
            driver.revert(Snapshot(str(uuid.uuid4()), origin.id, self.size))
        assert not self.volume_difference(driver, origin, data)

    @requires("supports_snapshots")
    def test_a_lost_snapshot_is_not_copied_or_reverted(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        origin, data = self.volume_with_bytes(driver, create_volume)
        snapshot = new_snapshot(origin)
        if not self.can.loses_snapshots:
            return
        self.lose_snapshot(driver, snapshot)
        with pytest.raises(LostSnapshot) as raised:
            driver.create_from(volume, snapshot)
        assert raised.value.snapshot_id == snapshot.id
        with pytest.raises(LostSnapshot):
            driver.revert(snapshot)
        assert [disk.volume_id for disk in driver.disks()] == [origin.id]
        found = self.read(driver, driver.disk(origin.id), 0, len(data))
        assert found == data
        driver.delete_snapshot(snapshot.id)
        assert driver.snapshots() == ()
