# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of fill: the destination of a migration gets the bytes of the source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.data import DataContract
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import UnknownDisk, Unsupported
from lunshare.drivers.values import Disk, DiskKind, Volume


class FillContract(DataContract):
    """One test for each behaviour."""

    def test_fill_copies_all_bytes(
        self, driver: VolumeDriver, create_volume: Create
    ) -> None:
        source, target = create_volume(), create_volume()
        data, other = self.pattern(source), self.pattern(target)
        disk = driver.disk(source.id)
        self.write_pattern(driver, disk, data)
        if disk.kind not in self.can.fills:
            return self.is_refused(driver, target, disk)
        for _ in range(2):
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

    def is_refused(self, driver: VolumeDriver, target: Volume, source: Disk) -> None:
        """The driver must refuse to fill the target, which still reads as zeros."""
        with pytest.raises(Unsupported) as raised:
            driver.fill(target, source)
        assert raised.value.remedy
        assert not self.difference(driver, driver.disk(target.id), b"")

    def still_has(self, driver: VolumeDriver, volume: Volume, data: bytes) -> None:
        """The volume must still have these bytes."""
        assert not self.difference(driver, driver.disk(volume.id), data)
