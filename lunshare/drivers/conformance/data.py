# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests: a disk has the bytes that were written, and zeros."""

from __future__ import annotations

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.volume_bytes import PAGE, Create, VolumeBytes
from lunshare.drivers.values import Disk

_SECTOR = 512
_LARGEST_BLOCK = 64 * 1024**2  # the kernel's limit, with the largest page size


class DataContract(VolumeBytes):
    """One test for each behaviour."""

    def all_bytes(self, driver: VolumeDriver, disk: Disk) -> bytes:
        """All bytes of a disk of the usual size."""
        return self.read(driver, disk, 0, self.size)

    def test_a_volume_has_the_written_bytes_and_zeros(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, wanted = driver.disk(volume.id), bytearray(self.size)
        data = self.pattern(volume)
        for offset in (0, PAGE * 77, self.size // 2 - PAGE, self.size - len(data)):
            self.write(driver, disk, offset, data)
            wanted[offset : offset + len(data)] = data
        assert self.all_bytes(driver, driver.disk(volume.id)) == wanted

    def test_a_write_changes_only_its_own_sectors(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, data = driver.disk(volume.id), self.pattern(volume)
        self.write(driver, disk, 0, data)
        for first, sectors in ((1, 1), (5, 3), (11, 4)):
            start, end = first * _SECTOR, (first + sectors) * _SECTOR
            data = data[:start] + b"x" * (end - start) + data[end:]
            self.write(driver, disk, start, data[start:end])
            assert self.read(driver, disk, 0, len(data)) == data
            assert self.read(driver, disk, start, end - start) == data[start:end]

    def test_the_last_sector_of_a_disk_can_be_written(
        self, driver: VolumeDriver
    ) -> None:
        volume = new_volume(self.size + 1)
        disk = driver.create(volume)
        try:
            logical, _ = self.block_sizes(driver, disk)
            assert disk.size % _SECTOR == disk.size % logical == 0
            last = disk.size - _SECTOR
            self.write(driver, disk, last, b"z" * _SECTOR)
            assert self.read(driver, disk, last, _SECTOR) == b"z" * _SECTOR
        finally:
            driver.delete(volume.id)

    def test_block_sizes_are_supported_by_hosts(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        logical, physical = self.block_sizes(driver, driver.disk(create_volume().id))
        assert logical in (512, 4096)
        assert logical <= physical <= _LARGEST_BLOCK
        assert physical.bit_count() == 1

    def test_a_discard_changes_only_the_discarded_range(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, data = driver.disk(volume.id), self.pattern(volume)
        data *= self.size // 2 // len(data)
        self.write(driver, disk, 0, data)
        start, end = PAGE * 3, len(data) - PAGE * 5
        self.try_discard(driver, disk, start, end - start)
        found = self.all_bytes(driver, disk)
        assert found[:start] == data[:start]
        assert found[end : len(data)] == data[end:]
        assert not any(found[len(data) :])
        for at in range(start, end, PAGE):
            assert found[at : at + PAGE] in (bytes(PAGE), data[at : at + PAGE])

    def test_a_discarded_range_can_be_written_again(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        volume = create_volume()
        disk, data = driver.disk(volume.id), self.pattern(volume)
        self.write(driver, disk, 0, data)
        self.try_discard(driver, disk, 0, len(data))
        self.write(driver, disk, 0, data)
        assert self.read(driver, disk, 0, len(data)) == data

    def try_discard(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        """Discard; without the ability ``discards`` it must fail with OSError."""
        if self.can.discards:
            self.discard(driver, disk, offset, length)
            return
        with pytest.raises(OSError, match="not supported"):
            self.discard(driver, disk, offset, length)

    def discard_if_supported(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        """Discard. A disk that has snapshots may refuse that (dm-snapshot does)."""
        try:
            self.discard(driver, disk, offset, length)
        except OSError as error:
            if "not supported" not in str(error):
                raise
