# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A disk that gets the bytes of another, for a volume that moves."""

from __future__ import annotations

import pytest

from drivers.base import VolumeDriver
from drivers.conformance.bytes import Make, asks
from drivers.conformance.data import DataContract
from drivers.errors import UnknownDisk
from drivers.values import Volume


class FillingContract(DataContract):
    """What a move between two backends asks of the one it goes to."""

    def test_it_says_whether_it_fills_disks(self, driver: VolumeDriver) -> None:
        assert bool(driver.fills) is self.fills_disks

    @asks("fills_disks")
    def test_a_disk_gets_all_bytes_of_another(
        self, driver: VolumeDriver, made: Make
    ) -> None:
        source, target = made(), made()
        data, other = self.pattern(source), self.pattern(target)
        self.fill(driver, driver.disk(source.id), data)
        for _ in range(2):
            driver.fill(target, driver.disk(source.id))
            disk = driver.disk(target.id)
            assert self.ends(driver, disk, len(data)) == [data] * 2
        self.fill(driver, disk, other)
        kept = self.ends(driver, driver.disk(source.id), len(data))
        assert kept == [data] * 2

    @asks("fills_disks")
    def test_a_disk_that_is_not_there_is_not_filled(
        self, driver: VolumeDriver, made: Make, volume: Volume
    ) -> None:
        source = made()
        with pytest.raises(UnknownDisk):
            driver.fill(volume, driver.disk(source.id))
