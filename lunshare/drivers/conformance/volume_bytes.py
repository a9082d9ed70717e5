# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the volume tests: volumes that are deleted again, and their bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB, VolumeFixtures
from lunshare.drivers.values import Capacity, Disk, Snapshot, Volume

Create = Callable[..., Volume]
Snap = Callable[..., Snapshot]

PAGE, SECTOR = 4096, 512

#: No pattern has bytes in the 256 KiB from here on.
HOLE = MIB // 2


def offsets(size: int, length: int) -> list[int]:
    """The offsets of a pattern on a disk of that size, with holes between them.

    They are at both ends, 64 KiB from both ends, before each MiB and in the middle. A
    copy that loses a piece of the disk loses one of them.
    """
    inside = [64 * 1024, size // 2 - length // 2, size - 64 * 1024 - length]
    inside += [at - PAGE for at in range(MIB, size - MIB, MIB)]
    return sorted({0, *inside, size - length})


def image(size: int, data: bytes, used: int) -> bytearray:
    """All bytes of a disk after ``write_pattern`` on its first ``used`` bytes."""
    wanted = bytearray(size)
    for at in offsets(used, len(data)):
        wanted[at : at + len(data)] = data
    return wanted


def first_difference(found: bytes | bytearray, wanted: bytes | bytearray) -> str:
    """A sentence about the first bytes that differ; empty if they are equal."""
    if found == wanted:
        return ""
    if len(found) != len(wanted):
        return f"it has {len(found)} bytes, not {len(wanted)}"
    pages = ((n, found[n : n + PAGE], wanted[n : n + PAGE]) for n in _starts(found))
    at, has, should = next(each for each in pages if each[1] != each[2])
    return f"from byte {at} it has {bytes(has[:32])!r}, not {bytes(should[:32])!r}"


def _starts(data: bytes | bytearray) -> range:
    return range(0, len(data), PAGE)


def similar_ids() -> Iterator[str]:
    """A UUID, and others that differ from it in one digit: the last, the first, ..."""
    text = str(uuid.uuid4())
    yield text
    places = [place for place, digit in enumerate(text) if digit != "-"]
    for last, first in zip(reversed(places), places, strict=True):
        for at in (last, first):
            yield text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1 :]


class VolumeBytes(VolumeFixtures):
    """Fixtures and methods for volumes with a pattern."""

    @pytest.fixture
    def ids(self) -> Iterator[str]:
        """The ids of a test's volumes. A driver that cuts names confuses them."""
        return similar_ids()

    @pytest.fixture
    def create_volume(
        self, driver: VolumeDriver, ids: Iterator[str]
    ) -> Iterator[Create]:
        """A function that creates a volume of ``size``, or of another size given.

        All volumes are deleted afterwards.
        """
        volumes: list[Volume] = []

        def create(size: int = self.size) -> Volume:
            volumes.append(Volume(next(ids), size))
            driver.create(volumes[-1])
            return volumes[-1]

        yield create
        for volume in volumes:
            driver.delete(volume.id)
        self.wipe_deleted(driver)

    @pytest.fixture
    def volume(self, driver: VolumeDriver, ids: Iterator[str]) -> Iterator[Volume]:
        """A volume that does not exist yet; it is deleted afterwards."""
        volume = Volume(next(ids), self.size)
        yield volume
        driver.delete(volume.id)
        self.wipe_deleted(driver)

    def wipe_deleted(self, driver: VolumeDriver) -> None:
        """Wipe deleted disks, as the daemon does in the background."""
        for left in driver.wipes():
            while driver.wipe(left.name, left.size):
                pass

    def capacity_after_wipes(self, driver: VolumeDriver) -> Capacity:
        """The capacity to compare with later: earlier tests leave nothing to wipe."""
        self.wipe_deleted(driver)
        return driver.capacity()

    def has_same_space(self, one: Capacity, other: Capacity) -> bool:
        """Whether the capacity is equal, except for ``metadata_size``."""
        near = abs(one.free - other.free) <= self.metadata_size
        return near and replace(one, free=0) == replace(other, free=0)

    def pattern(self, volume: Volume) -> bytes:
        """Two pages that no other volume has."""
        return (volume.id.encode() + b"!").ljust(64, b"+") * (2 * PAGE // 64)

    def write_pattern(self, driver: VolumeDriver, disk: Disk, data: bytes) -> None:
        """Write ``data`` at all ``offsets`` of a disk."""
        for at in offsets(self.size, len(data)):
            self.write(driver, disk, at, data)

    def difference(self, driver: VolumeDriver, disk: Disk, data: bytes) -> str:
        """How a disk differs from one with the pattern ``data``; empty if equal.

        Reads the complete disk. Empty ``data`` means a disk of zeros.
        """
        found = self.read(driver, disk, 0, disk.size)
        return first_difference(found, image(disk.size, data, self.size))
