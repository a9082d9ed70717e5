# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of manage and unmanage, and of the wipe of deleted disks."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.data import DataContract
from lunshare.drivers.conformance.volume_bytes import Create, Snap, image
from lunshare.drivers.errors import (
    DiskBusy,
    InvalidValue,
    UnknownDisk,
    UnknownReference,
)
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]
ForeignDisk = Callable[[bytes], str]
ForeignState = Callable[[], object]


class ManageContract(DataContract):
    """One test for each behaviour."""

    def unmanaged_reference(self, driver: VolumeDriver, volume: Volume) -> str:
        """The reference of an unmanaged volume: its name contains the volume's id."""
        names = [disk.reference for disk in driver.manageable()]
        found = [name for name in names if volume.id in name]
        assert len(found) == 1
        return found[0]

    # manage

    @requires("manages")
    def test_manage_preserves_the_bytes_of_a_disk(
        self, driver: VolumeDriver, foreign_disk: ForeignDisk, volume: Volume
    ) -> None:
        """A part of its name does not name it."""
        data = self.pattern(volume)
        reference = foreign_disk(bytes(image(self.size, data, self.size)))
        assert reference in {disk.reference for disk in driver.manageable()}
        for part in (reference[:-1], reference[1:]):
            with pytest.raises(UnknownReference):
                driver.manage(volume, part)
        for _ in range(2):
            disk = driver.manage(volume, reference)
            assert disk == driver.disk(volume.id)
            assert disk.size >= volume.size
        assert reference not in {disk.reference for disk in driver.manageable()}
        assert driver.disks() == (disk,)
        assert not self.difference(driver, disk, data)
        other = self.pattern(volume).swapcase()
        self.write_pattern(driver, disk, other)
        assert not self.difference(driver, disk, other)

    @requires("manages")
    def test_manageable_lists_a_disk_with_its_size(
        self, driver: VolumeDriver, foreign_disk: ForeignDisk, volume: Volume
    ) -> None:
        reference = foreign_disk(b"")
        found = {item.reference: item for item in driver.manageable()}[reference]
        assert not found.problem
        smaller = Volume(volume.id, found.size // 2)
        assert driver.manage(smaller, reference).size == found.size >= self.size
        assert driver.disk(volume.id).size == found.size

    @requires("manages")
    def test_manage_refuses_an_open_disk(
        self, driver: VolumeDriver, foreign_disk: ForeignDisk, volume: Volume
    ) -> None:
        reference = foreign_disk(b"")
        held = self.held_open_reference(driver, reference)
        if held is None and self.can.manages:
            self.not_tried("manage of an open disk", "override `held_open_reference`")
        elif held is not None:
            before = {(disk.reference, disk.size) for disk in driver.manageable()}
            with held, pytest.raises(DiskBusy):
                driver.manage(volume, reference)
            assert driver.disks() == ()
            after = {(disk.reference, disk.size) for disk in driver.manageable()}
            assert after == before
        driver.manage(volume, reference)

    @requires("manages")
    def test_manage_of_an_unknown_reference_fails(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        with pytest.raises(UnknownReference) as raised:
            driver.manage(volume, "no-such-disk")
        assert raised.value.reference == "no-such-disk"
        assert driver.disks() == ()

    @requires("manages")
    def test_manage_refuses_a_disk_that_is_already_managed(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        other = create_volume()
        with pytest.raises(UnknownReference):
            driver.manage(volume, other.name)
        assert [disk.volume_id for disk in driver.disks()] == [other.id]
        assert other.name not in {disk.reference for disk in driver.manageable()}

    @requires("manages")
    @pytest.mark.parametrize("reference", ["", "../x", "-rf", "a/b", "a b", "x" * 300])
    def test_manage_refuses_an_invalid_reference(
        self, driver: VolumeDriver, volume: Volume, reference: str
    ) -> None:
        with pytest.raises(UnknownReference):
            driver.manage(volume, reference)
        assert driver.disks() == ()

    # unmanage

    @requires("manages")
    def test_an_unmanaged_volume_can_be_managed_again(
        self, driver: VolumeDriver, volume: Volume, new_snapshot: Snap
    ) -> None:
        """Its snapshots stay, or it is refused with DiskBusy while it has some."""
        data = self.pattern(volume)
        self.write_pattern(driver, driver.create(volume), data)
        if self.can.supports_snapshots:
            snapshot = new_snapshot(volume)
            with contextlib.suppress(DiskBusy):
                driver.unmanage(volume.id)
            assert driver.snapshots() == (snapshot.id,)
            driver.delete_snapshot(snapshot.id)
        for _ in range(2):
            driver.unmanage(volume.id)
        assert driver.disks() == ()
        with pytest.raises(UnknownDisk):
            driver.disk(volume.id)
        disk = driver.manage(volume, self.unmanaged_reference(driver, volume))
        assert not self.difference(driver, disk, data)

    @requires("manages")
    def test_unmanage_refuses_an_open_disk(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        disk = driver.create(volume)
        with self.held_open(driver, disk), pytest.raises(DiskBusy):
            driver.unmanage(volume.id)
        assert driver.disks() == (disk,)

    @requires("manages")
    def test_unmanage_of_an_unknown_volume_succeeds(self, driver: VolumeDriver) -> None:
        driver.unmanage(str(uuid.uuid4()))

    @requires("manages")
    def test_unmanage_refuses_an_id_that_is_not_a_uuid(
        self, driver: VolumeDriver, foreign_disk: ForeignDisk, volume: Volume
    ) -> None:
        reference = foreign_disk(b"")
        with pytest.raises(InvalidValue):
            driver.unmanage("../lv-root")
        assert reference in {disk.reference for disk in driver.manageable()}
        driver.manage(volume, reference)

    # wipe

    @requires("manages")
    def test_wipe_by_name_does_not_change_a_foreign_disk(
        self, driver: VolumeDriver, foreign_disk: ForeignDisk, volume: Volume
    ) -> None:
        reference = foreign_disk(b"")
        before = driver.manageable()
        with contextlib.suppress(InvalidValue):
            assert driver.wipe(reference, self.size) is None
        assert reference in {disk.reference for disk in before}
        assert driver.manageable() == before
        driver.manage(volume, reference)

    def test_a_deleted_disk_is_wiped_in_steps(
        self, build: Build, driver: VolumeDriver, volume: Volume, create_volume: Create
    ) -> None:
        kept, before = create_volume(), driver.capacity()
        data = self.pattern(kept)
        self.write_pattern(driver, driver.disk(kept.id), data)
        self.write_pattern(driver, driver.create(volume), self.pattern(volume))
        driver.delete(volume.id)
        left = driver.wipes()
        assert len(left) == int(self.can.wipes_deleted)
        for wipe in left:
            assert wipe.size == wipe.left >= self.size
            part = driver.wipe(wipe.name, wipe.size // 2)
            assert part is not None
            assert 0 < part.left < wipe.left
            again = build()
            again.check()
            [seen] = again.wipes()
            assert seen.size == wipe.size
            assert seen.left < wipe.left
            assert again.disks() == (again.disk(kept.id),)
        self.wipe_deleted(driver)
        assert driver.wipes() == ()
        assert driver.capacity().provisioned == before.provisioned
        assert not self.difference(driver, driver.disk(kept.id), data)

    def test_a_volume_can_be_created_again_while_its_old_disk_is_wiped(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        for _ in range(2):
            disk = driver.create(volume)
            assert not self.difference(driver, disk, b"")
            self.write_pattern(driver, disk, self.pattern(volume))
            driver.delete(volume.id)
            driver.delete(volume.id)
        assert len(driver.wipes()) == 2 * int(self.can.wipes_deleted)
        assert driver.disks() == ()

    def test_wipe_of_an_unknown_name_succeeds(self, driver: VolumeDriver) -> None:
        assert driver.wipe(f"deleted-{uuid.uuid4()}", self.size) is None

    def test_wipe_of_a_deleted_disk_does_not_change_foreign_disks(
        self,
        foreign_state: ForeignState,
        driver: VolumeDriver,
        create_volume: Create,
        volume: Volume,
    ) -> None:
        before = foreign_state()
        driver.create(volume)
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert foreign_state() == before
