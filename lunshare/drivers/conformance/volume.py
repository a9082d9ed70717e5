# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The tests of every volume driver. Its promises are in lunshare.drivers.base."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.clones import CloneContract
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.volume_bytes import PAGE, Create
from lunshare.drivers.errors import (
    DiskBusy,
    InvalidValue,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]
FullPool = Callable[[], AbstractContextManager[None]]
ForeignState = Callable[[], object]


class VolumeContract(CloneContract):
    """One test for each behaviour; bind them with a subclass named ``Test...``."""

    # check

    def test_check_can_be_repeated(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        driver.check()
        driver.check()
        assert driver.disk(volume.id).size >= self.size

    def test_check_reports_a_missing_pool(self, misconfigured: VolumeDriver) -> None:
        with pytest.raises(Misconfigured) as raised:
            misconfigured.check()
        assert raised.value.remedy

    def test_check_activates_disks_after_a_reboot(
        self, build: Build, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volumes = [create_volume(), create_volume()]
        data = self.pattern(volumes[0])
        self.write_pattern(driver, driver.disk(volumes[0].id), data)
        self.reboot(driver)
        again = build()
        again.check()
        assert len([again.disk(volume.id) for volume in volumes]) == 2
        assert not self.difference(again, again.disk(volumes[0].id), data)

    # create

    def test_create_returns_at_least_the_requested_size(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        disk = driver.create(volume)
        assert disk.volume_id == volume.id
        assert disk.size >= volume.size

    def test_create_rounds_an_odd_size_up(self, driver: VolumeDriver) -> None:
        volume = new_volume(self.size + 1)
        disk = driver.create(volume)
        try:
            assert disk.size > self.size
            assert driver.disk(volume.id) == disk
        finally:
            driver.delete(volume.id)

    def test_a_new_disk_reads_as_zeros(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        disk = driver.create(volume)
        assert not self.difference(driver, disk, b"")

    def test_a_retried_create_changes_nothing(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        disk, data = driver.create(volume), self.pattern(volume)
        self.write_pattern(driver, disk, data)
        assert driver.create(volume) == disk
        assert not self.difference(driver, disk, data)
        assert [disk.volume_id for disk in driver.disks()] == [volume.id]

    def test_create_with_a_smaller_size_changes_nothing(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        before = driver.disk(volume.id)
        assert driver.create(Volume(volume.id, MIB)).size == before.size
        assert driver.disk(volume.id) == before

    def test_create_with_a_larger_size_extends_the_disk(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        data = self.pattern(volume)
        self.write_pattern(driver, driver.disk(volume.id), data)
        larger = driver.create(Volume(volume.id, 2 * self.size))
        assert larger.size >= 2 * self.size
        assert driver.disk(volume.id) == larger
        assert not self.difference(driver, larger, data)

    def test_create_finishes_an_incomplete_disk(
        self, build: Build, driver: VolumeDriver, volume: Volume
    ) -> None:
        self.leave_incomplete_disk(driver, volume)
        again = build()
        again.check()
        disk = again.create(volume)
        assert disk.size >= volume.size
        assert not self.difference(again, disk, b"")
        assert again.disks() == (disk,)

    def test_delete_of_an_incomplete_disk_frees_its_space(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        before = self.capacity_after_wipes(driver)
        self.leave_incomplete_disk(driver, volume)
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert self.has_same_space(driver.capacity(), before)
        with pytest.raises(UnknownDisk):
            driver.disk(volume.id)

    def test_many_threads_can_create_and_delete_volumes(
        self, driver: VolumeDriver
    ) -> None:
        volumes = [new_volume(PAGE) for _ in range(self.many_volumes)]
        with ThreadPoolExecutor(4) as pool:
            disks = list(pool.map(driver.create, volumes))
            assert set(driver.disks()) == set(disks)
            list(pool.map(driver.delete, [volume.id for volume in volumes]))
        self.wipe_deleted(driver)
        assert driver.disks() == ()

    # bytes

    def test_written_bytes_survive_a_restart(
        self, build: Build, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        data = self.pattern(volume)
        self.write_pattern(driver, driver.disk(volume.id), data)
        again = build()
        again.check()
        assert not self.difference(again, again.disk(volume.id), data)

    def test_volumes_do_not_share_bytes(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volumes = [create_volume(), create_volume()]
        for volume in volumes:
            self.write_pattern(driver, driver.disk(volume.id), self.pattern(volume))
        for volume in volumes:
            data = self.pattern(volume)
            assert not self.difference(driver, driver.disk(volume.id), data)

    def test_a_new_volume_shows_no_bytes_of_a_deleted_one(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        """Nor does what the delete left for later meet the new one."""
        data = self.pattern(volume)
        self.write_pattern(driver, driver.create(volume), data)
        driver.delete(volume.id)
        disk = driver.create(volume)
        assert not self.difference(driver, disk, b"")
        self.write_pattern(driver, disk, data)
        driver.delete(new_volume(self.size).id)
        self.wipe_deleted(driver)
        assert driver.disks() == (disk,)
        assert not self.difference(driver, disk, data)

    # delete

    def test_delete_removes_the_disk(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        gone, kept = create_volume(), create_volume()
        driver.delete(gone.id)
        assert [disk.volume_id for disk in driver.disks()] == [kept.id]
        with pytest.raises(UnknownDisk):
            driver.disk(gone.id)

    def test_a_retried_delete_succeeds(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        driver.delete(volume.id)
        driver.delete(volume.id)

    def test_delete_of_an_unknown_volume_succeeds(self, driver: VolumeDriver) -> None:
        driver.delete(new_volume(self.size).id)

    def test_delete_refuses_an_open_disk(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, data = driver.disk(volume.id), self.pattern(volume)
        self.write_pattern(driver, disk, data)
        with self.held_open(driver, disk), pytest.raises(DiskBusy) as raised:
            driver.delete(volume.id)
        assert raised.value.volume_id == volume.id
        assert driver.disk(volume.id) == disk
        assert not self.difference(driver, disk, data)

    def test_an_id_that_is_not_a_uuid_is_refused(self, driver: VolumeDriver) -> None:
        for call in (driver.delete, driver.disk):
            with pytest.raises(InvalidValue):
                call("../lv-root")

    # disk, disks, capacity

    def test_disk_of_an_unknown_volume_fails(self, driver: VolumeDriver) -> None:
        unknown = new_volume(self.size).id
        with pytest.raises(UnknownDisk) as raised:
            driver.disk(unknown)
        assert raised.value.volume_id == unknown

    def test_disk_returns_what_create_returned(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        assert driver.create(volume) == driver.disk(volume.id)

    def test_disks_lists_exactly_the_created_disks(
        self, build: Build, driver: VolumeDriver, create_volume: Create
    ) -> None:
        wanted = {driver.disk(create_volume().id) for _ in range(3)}
        assert set(driver.disks()) == wanted
        assert set(build().disks()) == wanted

    def test_capacity_counts_provisioned_space(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        before = driver.capacity()
        assert 0 <= before.free <= before.total
        disk = driver.create(volume)
        after = driver.capacity()
        assert after.total == before.total
        assert after.provisioned - before.provisioned == disk.size
        if self.can.reserves_space:
            assert abs(before.free - after.free - disk.size) <= self.metadata_size
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert driver.capacity().provisioned == before.provisioned

    def test_capacity_counts_extended_space(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        before, old = driver.capacity(), driver.disk(volume.id)
        grown = driver.extend(Volume(volume.id, 2 * self.size))
        after = driver.capacity()
        assert after.provisioned - before.provisioned == grown.size - old.size

    def test_capacity_reports_thin_provisioning(self, driver: VolumeDriver) -> None:
        assert driver.capacity().thin is not self.can.reserves_space

    def test_a_volume_that_reserves_space_has_every_block_allocated(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        driver.extend(Volume(volume.id, 2 * self.size))
        if not self.can.reserves_space:
            return
        disk = driver.disk(volume.id)
        allocated = self.allocated(driver, disk)
        if allocated is None:
            self.not_tried("the number of allocated blocks", "override `allocated`")
        else:
            assert allocated >= disk.size

    def test_the_path_of_a_disk_can_be_exported(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        for disk in (driver.create(volume), driver.disk(volume.id), *driver.disks()):
            assert not self.path_rejection(disk)

    def test_disks_does_not_list_incomplete_disks(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        """A disk is listed if ``disk`` finds it, and then it is complete."""
        self.leave_incomplete_disk(driver, volume)
        listed = driver.disks()
        try:
            found = driver.disk(volume.id)
        except UnknownDisk:
            assert listed == ()
        else:
            assert listed == (found,)
            assert found.size >= volume.size
            assert not self.difference(driver, found, b"")

    # a full pool

    def test_capacity_reports_a_full_pool(
        self, driver: VolumeDriver, full_pool: FullPool
    ) -> None:
        assert driver.capacity().closed == ""
        with full_pool():
            found = driver.capacity()
            assert found.closed or (self.can.reserves_space and found.free < self.size)
        assert driver.capacity().closed == ""

    def test_create_in_a_full_pool_leaves_nothing(
        self, driver: VolumeDriver, full_pool: FullPool, volume: Volume
    ) -> None:
        before = driver.disks()
        with full_pool():
            with pytest.raises(NoSpace) as raised:
                driver.create(volume)
            assert raised.value.pool
            assert driver.disks() == before
            with pytest.raises(UnknownDisk):
                driver.disk(volume.id)
        assert driver.create(volume).size >= volume.size

    def test_extend_in_a_full_pool_changes_nothing(
        self, driver: VolumeDriver, full_pool: FullPool, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, data = driver.disk(volume.id), self.pattern(volume)
        self.write_pattern(driver, disk, data)
        larger = Volume(volume.id, 2 * self.size)
        with full_pool():
            with pytest.raises(NoSpace):
                driver.extend(larger)
            assert driver.disk(volume.id) == disk
            assert not self.difference(driver, disk, data)
        assert driver.extend(larger).size >= larger.size

    def test_a_volume_larger_than_the_pool_fails_if_space_is_reserved(
        self, driver: VolumeDriver
    ) -> None:
        volume = new_volume(driver.capacity().total + MIB)
        if self.can.reserves_space:
            with pytest.raises(NoSpace):
                driver.create(volume)
            assert driver.disks() == ()
        else:
            assert driver.create(volume).size >= volume.size
            driver.delete(volume.id)

    # foreign disks

    def test_foreign_disks_are_not_listed_or_changed(
        self,
        build: Build,
        foreign_state: ForeignState,
        driver: VolumeDriver,
        create_volume: Create,
    ) -> None:
        before = foreign_state()
        volume = create_volume()
        driver.extend(Volume(volume.id, 2 * self.size))
        assert [disk.volume_id for disk in driver.disks()] == [volume.id]
        driver.delete(volume.id)
        build().check()
        assert driver.disks() == ()
        assert foreign_state() == before
