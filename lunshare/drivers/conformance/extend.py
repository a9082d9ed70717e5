# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of extend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.failures import FailureContract
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.volume_bytes import (
    SECTOR,
    Create,
    first_difference,
    image,
    offsets,
)
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]


class ExtendContract(FailureContract):
    """One test for each behaviour."""

    def test_extend_preserves_bytes_and_adds_zeros(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        """Also those of an incomplete MiB at the end."""
        volume = create_volume(self.size + SECTOR)
        data, old = self.pattern(volume), driver.disk(volume.id)
        self.write_pattern(driver, old, data)
        last = slice(old.size - SECTOR, old.size)
        self.write(driver, old, last.start, data[:SECTOR])
        grown = driver.extend(Volume(volume.id, 2 * self.size))
        assert grown.size >= 2 * self.size
        assert grown.path == old.path
        assert driver.disk(volume.id) == grown
        wanted = image(grown.size, data, self.size)
        wanted[last] = data[:SECTOR]
        found = self.read(driver, grown, 0, grown.size)
        assert not first_difference(found, wanted)

    def test_extend_into_freed_space_shows_no_old_bytes(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        larger = self.size + self.size // 2
        other, volume = Volume(volume.id, larger), create_volume()
        disk, data = driver.create(other), self.pattern(other)
        for at in offsets(larger, len(data)):
            self.write(driver, disk, at, data)
        driver.delete(other.id)
        self.wipe_deleted(driver)
        old = driver.disk(volume.id).size
        grown = driver.extend(Volume(volume.id, larger))
        added = self.read(driver, grown, old, larger - old)
        assert added.count(0) == len(added)

    @requires("extends_open")
    def test_an_open_disk_can_be_extended(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        data, disk = self.pattern(volume), driver.disk(volume.id)
        self.write_pattern(driver, disk, data)
        with self.held_open(driver, disk):
            grown = driver.extend(Volume(volume.id, 2 * self.size))
            assert grown.size >= 2 * self.size
            assert not self.difference(driver, grown, data)

    def test_a_retried_extend_changes_nothing(
        self, build: Build, driver: VolumeDriver, create_volume: Create
    ) -> None:
        """The first call was that of an earlier process."""
        larger = Volume(create_volume().id, 2 * self.size)
        assert driver.disk(larger.id).size < larger.size
        grown = build().extend(larger)
        assert driver.disk(larger.id) == grown
        assert driver.extend(larger) == grown

    def test_extend_to_a_smaller_size_changes_nothing(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        before = driver.disk(volume.id)
        assert driver.extend(Volume(volume.id, MIB)) == before

    def test_extend_of_an_unknown_volume_fails(self, driver: VolumeDriver) -> None:
        with pytest.raises(UnknownDisk):
            driver.extend(new_volume(self.size))
        assert driver.disks() == ()
