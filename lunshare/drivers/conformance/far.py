# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of bytes beyond the first GiB, on a volume whose size is no round number.

What is copied without being read is larger than 2 TiB: there a number of 32 bits is too
small for an offset, also for one in sectors.

The volume is sparse and has some sectors, so this costs little. A driver whose volumes
reserve their space is not asked for that much.
"""

from __future__ import annotations

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.fixtures import MIB
from lunshare.drivers.conformance.revert import RevertContract
from lunshare.drivers.conformance.volume_bytes import Create, Snap
from lunshare.drivers.values import GIB, Disk, Volume

_SECTOR = 512
_TAIL = MIB // 2 + 3 * _SECTOR
_SIZE, _LARGE = GIB + _TAIL, 2048 * GIB + _TAIL


class FarContract(RevertContract):
    """One test for each behaviour."""

    def test_a_new_volume_shows_no_far_bytes_of_a_deleted_one(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        """Before that they are filled into another volume, and managed again."""
        if self.can.reserves_space:
            return
        volume = create_volume(_SIZE)
        disk, data = driver.disk(volume.id), self.pattern(volume)
        self.write_far(driver, disk, data)
        if disk.kind in self.can.fills and disk.size <= self.largest_fill:
            target = create_volume(_SIZE)
            driver.fill(target, disk)
            assert self.has_far(driver, driver.disk(target.id), data)
        if self.can.manages:
            driver.unmanage(volume.id)
            disk = driver.manage(volume, self.unmanaged_reference(driver, volume))
            assert self.has_far(driver, disk, data)
        driver.delete(volume.id)
        self.wipe_deleted(driver)
        assert self.has_far(driver, driver.create(volume), bytes(_SECTOR))

    @requires("supports_snapshots")
    def test_copies_and_reverts_have_far_bytes(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        new_snapshot: Snap,
        volume: Volume,
    ) -> None:
        if self.can.reserves_space and self.can.supports_snapshots:
            return
        origin = create_volume(self.size)
        data, size = self.pattern(origin), 0 if self.can.reserves_space else _LARGE
        disk = driver.extend(Volume(origin.id, size))
        self.write_far(driver, disk, data)
        snapshot = new_snapshot(origin)
        self.write_far(driver, disk, data.swapcase())
        copy = driver.create_from(Volume(volume.id, _LARGE), snapshot)
        assert self.has_far(driver, copy, data)
        assert self.has_far(driver, disk, data.swapcase())
        assert self.has_far(driver, driver.revert(snapshot), data)

    def write_far(self, driver: VolumeDriver, disk: Disk, data: bytes) -> None:
        """Write a sector at each of the places."""
        for at in _places(disk.size):
            self.write(driver, disk, at, data[:_SECTOR])

    def has_far(self, driver: VolumeDriver, disk: Disk, data: bytes) -> bool:
        """Whether each place has the sector that ``write_far`` writes."""
        read = {self.read(driver, disk, at, _SECTOR) for at in _places(disk.size)}
        return read == {data[:_SECTOR]}


def _places(size: int) -> list[int]:
    """A lone sector below each limit, a sector above it, and the last sector.

    What takes a block with an empty first sector for a hole loses some of them. Modulo
    a limit, their offsets are those of places that stay empty, or of each other.
    """
    limits = (GIB, 4 * GIB, 2048 * GIB)
    around = [at for limit in limits for at in (limit - _SECTOR, limit + 8 * _SECTOR)]
    places = [*around, size - _SECTOR]
    return [place for place in places if place < size]
