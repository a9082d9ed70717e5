# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of volumes share: volumes that go away again, and their bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from drivers.base import VolumeDriver
from drivers.conformance.fixtures import VolumeFixtures, new_volume
from drivers.errors import Unsupported
from drivers.values import Capacity, Disk, Volume

Make = Callable[[], Volume]
_Test = TypeVar("_Test", bound=Callable[..., None])

PAGE = 4096


def asks(ability: str) -> Callable[[_Test], _Test]:
    """A test of what not every driver offers.

    Where the fixtures class says no to ``ability``, the driver must refuse the
    first call of it with Unsupported: no test is left out.
    """

    def decorated(test: _Test) -> _Test:
        @functools.wraps(test)
        def run(self: object, *args: Any, **named: Any) -> None:
            if getattr(self, ability):
                return test(self, *args, **named)
            with pytest.raises(Unsupported) as raised:
                test(self, *args, **named)
            assert raised.value.remedy
            return None

        return run  # type: ignore[return-value]

    return decorated


class VolumeBytes(VolumeFixtures):
    """Volumes to try things on."""

    @pytest.fixture
    def made(self, driver: VolumeDriver) -> Iterator[Make]:
        """Make a volume of the usual size; all of them are gone afterwards."""
        volumes: list[Volume] = []

        def make() -> Volume:
            volumes.append(new_volume(self.size))
            driver.create(volumes[-1])
            return volumes[-1]

        yield make
        for volume in volumes:
            driver.delete(volume.id)
        self.settle(driver)

    @pytest.fixture
    def volume(self, driver: VolumeDriver) -> Iterator[Volume]:
        """A volume that is not there yet; it is gone afterwards."""
        volume = new_volume(self.size)
        yield volume
        driver.delete(volume.id)
        self.settle(driver)

    def settle(self, driver: VolumeDriver) -> None:
        """Wipe what was deleted, as the caller does in the background."""
        for left in driver.wipes():
            while driver.wipe(left.name, left.size):
                pass

    def same_room(self, one: Capacity, other: Capacity) -> bool:
        """Whether the pool holds as much as it did, but for its own tables."""
        near = abs(one.free - other.free) <= self.tables
        return near and replace(one, free=0) == replace(other, free=0)

    def pattern(self, volume: Volume) -> bytes:
        """Two pages that no other volume has."""
        return (volume.id.encode() + b"!").ljust(64, b"+") * (2 * PAGE // 64)

    def fill(self, driver: VolumeDriver, disk: Disk, data: bytes) -> None:
        """Write at both ends of a disk."""
        self.write(driver, disk, 0, data)
        self.write(driver, disk, self.size - len(data), data)

    def ends(self, driver: VolumeDriver, disk: Disk, length: int) -> list[bytes]:
        """Read at both ends of what was asked for."""
        return [
            self.read(driver, disk, 0, length),
            self.read(driver, disk, self.size - length, length),
        ]
