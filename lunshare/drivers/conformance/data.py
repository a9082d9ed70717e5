# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests: a disk has the bytes that were written, and zeros, or those of a source."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.volume_bytes import (
    HOLE,
    PAGE,
    SECTOR,
    Create,
    VolumeBytes,
)
from lunshare.drivers.errors import DriverError, UnknownDisk, Unsupported
from lunshare.drivers.values import Disk, DiskKind, Volume

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
            start, end = first * SECTOR, (first + sectors) * SECTOR
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
            assert disk.size % SECTOR == disk.size % logical == 0
            last = disk.size - SECTOR
            self.write(driver, disk, last, b"z" * SECTOR)
            assert self.read(driver, disk, last, SECTOR) == b"z" * SECTOR
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

    def test_fill_copies_all_bytes(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        """Its verification finds bytes in a hole of the source, too.

        Before the end of the source is a part of a MiB, and after it there are zeros.
        """
        source = create_volume(self.size + SECTOR)
        target = create_volume(self.size + MIB)
        data, other = self.pattern(source), self.pattern(target)
        disk = driver.disk(source.id)
        self.write_pattern(driver, disk, data)
        if disk.kind not in self.can.fills:
            return self.is_refused(driver, target, disk)
        for _ in range(2):
            driver.fill(target, disk)
            assert not self.difference(driver, driver.disk(target.id), data)
        self.write(driver, driver.disk(target.id), HOLE, other)
        with contextlib.suppress(DriverError):  # it has found that they differ
            driver.fill(target, disk)
            assert not self.difference(driver, driver.disk(target.id), data)
        self.write_pattern(driver, driver.disk(target.id), other)
        return self.still_has(driver, source, data)

    @pytest.mark.parametrize("kind", list(DiskKind))
    def test_fill_refuses_a_source_that_cannot_be_read(
        self, driver: VolumeDriver, create_volume: Create, kind: DiskKind
    ) -> None:
        target, away = create_volume(), create_volume()
        disk = driver.disk(away.id)
        path = f"/nowhere/at/all/volume-{away.id}"
        if kind is DiskKind.BLOCK:
            path = f"/dev/nowhere/volume-{away.id}"
        self.is_refused(driver, target, replace(disk, kind=kind, path=path))

    def test_fill_refuses_a_source_with_a_wrong_kind(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        """A file given as a block device, or a block device given as a file."""
        source, target = create_volume(), create_volume()
        self.write_pattern(driver, driver.disk(source.id), self.pattern(source))
        disk = driver.disk(source.id)
        (other,) = set(DiskKind) - {disk.kind}
        self.is_refused(driver, target, replace(disk, kind=other))

    def test_fill_of_an_unknown_volume_fails(
        self, driver: VolumeDriver, create_volume: Create, volume: Volume
    ) -> None:
        disk = driver.disk(create_volume().id)
        wanted = UnknownDisk if disk.kind in self.can.fills else Unsupported
        with pytest.raises(wanted):
            driver.fill(volume, disk)

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

    def is_refused(self, driver: VolumeDriver, target: Volume, source: Disk) -> None:
        """The driver must refuse to fill the target, which still reads as zeros."""
        with pytest.raises(Unsupported) as raised:
            driver.fill(target, source)
        assert raised.value.remedy
        assert not self.difference(driver, driver.disk(target.id), b"")

    def still_has(self, driver: VolumeDriver, volume: Volume, data: bytes) -> None:
        """The volume must still have these bytes."""
        assert not self.difference(driver, driver.disk(volume.id), data)
