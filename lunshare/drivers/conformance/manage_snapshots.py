# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of managing foreign snapshots, and of unmanaging snapshots."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.manage import ManageContract
from lunshare.drivers.conformance.volume_bytes import Create, Snap
from lunshare.drivers.errors import DiskBusy, UnknownReference
from lunshare.drivers.values import Snapshot, Volume


class ManageSnapshotContract(ManageContract):
    """One test for each behaviour."""

    def snapshot_of(
        self, driver: VolumeDriver, create_volume: Create, new_snapshot: Snap
    ) -> tuple[Volume, Snapshot, bytes]:
        """A volume whose bytes changed after its snapshot, and the bytes before."""
        volume = create_volume()
        data = self.pattern(volume)
        self.write_pattern(driver, driver.disk(volume.id), data)
        snapshot = new_snapshot(volume)
        self.write_pattern(driver, driver.disk(volume.id), data.swapcase())
        return volume, snapshot, data

    def unmanaged_snapshot(self, driver: VolumeDriver, snapshot: Snapshot) -> str:
        """The reference of an unmanaged snapshot: its name contains the id."""
        found = driver.manageable_snapshots()
        (own,) = [item for item in found if snapshot.id in item.reference]
        assert own.volume_id == snapshot.volume_id
        assert own.size >= self.size
        assert not own.problem
        return own.reference

    @requires("manages_snapshots")
    def test_an_unmanaged_snapshot_can_be_managed_again(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        source, snapshot, data = self.snapshot_of(driver, create_volume, new_snapshot)
        for _ in range(2):
            driver.unmanage_snapshot(snapshot)
        assert driver.snapshots() == ()
        reference = self.unmanaged_snapshot(driver, snapshot)
        managed = Snapshot(str(uuid.uuid4()), source.id, self.size)
        for _ in range(2):
            driver.manage_snapshot(managed, reference)
        assert driver.snapshots() == (managed.id,)
        assert driver.manageable_snapshots() == ()
        disk = driver.create_from(volume, managed)
        assert not self.difference(driver, disk, data)
        disk = driver.disk(source.id)
        assert not self.difference(driver, disk, data.swapcase())
        driver.delete(volume.id)
        driver.revert(managed)
        assert not self.difference(driver, driver.disk(source.id), data)
        driver.delete_snapshot(managed.id)

    @requires("manages_snapshots")
    def test_a_snapshot_is_managed_for_its_own_volume_only(
        self, driver: VolumeDriver, create_volume: Create, new_snapshot: Snap
    ) -> None:
        source, snapshot, _ = self.snapshot_of(driver, create_volume, new_snapshot)
        other = create_volume()
        driver.unmanage_snapshot(snapshot)
        reference = self.unmanaged_snapshot(driver, snapshot)
        for owner, name in ((other, reference), (source, reference[:-1])):
            with pytest.raises(UnknownReference):
                driver.manage_snapshot(
                    Snapshot(str(uuid.uuid4()), owner.id, self.size), name
                )
        assert driver.snapshots() == ()
        assert self.unmanaged_snapshot(driver, snapshot) == reference
        driver.manage_snapshot(snapshot, reference)
        driver.delete_snapshot(snapshot.id)

    @requires("manages_snapshots")
    def test_manage_of_a_snapshot_refuses_what_is_no_foreign_snapshot(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        foreign_disk: Callable[[bytes], str],
        volume: Volume,
    ) -> None:
        source, snapshot, _ = self.snapshot_of(driver, create_volume, new_snapshot)
        reference = foreign_disk(b"")
        wrong = ["no-such-snapshot", "", "../x", "-rf", "a b", "x" * 300]
        for name in (*wrong, reference, snapshot.name, source.name):
            with pytest.raises(UnknownReference) as raised:
                driver.manage_snapshot(
                    Snapshot(str(uuid.uuid4()), source.id, self.size), name
                )
            assert raised.value.reference == name
        assert driver.snapshots() == (snapshot.id,)
        driver.manage(volume, reference)
        driver.delete_snapshot(snapshot.id)

    @requires("manages_snapshots")
    def test_unmanage_of_an_unknown_snapshot_succeeds(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        driver.unmanage_snapshot(Snapshot(str(uuid.uuid4()), volume.id, self.size))
        assert driver.manageable_snapshots() == ()

    @requires("manages_snapshots")
    def test_manage_refuses_an_open_snapshot(
        self, driver: VolumeDriver, create_volume: Create, new_snapshot: Snap
    ) -> None:
        _, snapshot, _ = self.snapshot_of(driver, create_volume, new_snapshot)
        driver.unmanage_snapshot(snapshot)
        if self.can.manages_snapshots:
            reference = self.unmanaged_snapshot(driver, snapshot)
            held = self.held_open_snapshot(driver, reference)
            if held is None:
                what = "manage of an open snapshot"
                self.not_tried(what, "override `held_open_snapshot`")
            else:
                with held, pytest.raises(DiskBusy):
                    driver.manage_snapshot(snapshot, reference)
                assert driver.snapshots() == ()
            driver.manage_snapshot(snapshot, reference)
            driver.delete_snapshot(snapshot.id)
