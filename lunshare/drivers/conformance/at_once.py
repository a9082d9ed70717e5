# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of several copies at once, of different volumes.

All calls are of one instance of the driver, as in the daemon. After each of its steps a
call waits for the others, so that every run has them at the same place. A driver that
does them in turn goes on after a second.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.far import FarContract
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.volume_bytes import Create, Snap
from lunshare.drivers.values import Disk, Snapshot, Volume

Steps = DriverSteps[VolumeDriver]
Verb = Callable[[VolumeDriver], object]


class InStep:
    """Calls that wait for each other after each of their steps."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=1.0)

    def __call__(self, step: str = "") -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._barrier.wait()

    def run(self, verb: Verb, driver: VolumeDriver) -> None:
        """Do one of the calls; at its end the others wait no more."""
        try:
            verb(driver)
        finally:
            self._barrier.abort()


class AtOnceContract(FarContract):
    """One test for each behaviour."""

    @pytest.fixture
    def copies(
        self, driver: VolumeDriver, new_snapshot: Snap
    ) -> Iterator[list[Volume]]:
        """Three small volumes that do not exist yet; they are deleted afterwards."""
        volumes = [new_volume(MIB) for _ in range(3)]
        yield volumes
        for volume in volumes:
            driver.delete(volume.id)
        self.wipe_deleted(driver)

    @requires("supports_snapshots")
    def test_several_volumes_can_be_created_from_snapshots_at_once(
        self,
        driver: VolumeDriver,
        steps: Steps,
        create_volume: Create,
        new_snapshot: Snap,
        copies: list[Volume],
    ) -> None:
        """Two copies of one snapshot, and one of another."""
        origin, data = self.small_volume(driver, create_volume)
        first = new_snapshot(origin)
        self.write(driver, driver.disk(origin.id), 0, data.swapcase())
        snapshots = [first, first, new_snapshot(origin)]
        pairs = zip(copies, snapshots, strict=True)
        _do_at_once(steps, [_creation(*pair) for pair in pairs])
        contents = [self.first_bytes(driver, volume) for volume in copies]
        assert contents == [data, data, data.swapcase()]

    def test_two_volumes_can_be_filled_at_once(
        self, driver: VolumeDriver, steps: Steps, create_volume: Create
    ) -> None:
        sources = [self.small_volume(driver, create_volume) for _ in range(2)]
        targets = [create_volume(MIB) for _ in sources]
        if driver.disk(targets[0].id).kind not in self.can.fills:
            return
        pairs = zip(targets, sources, strict=True)
        _do_at_once(
            steps,
            [_filling(target, driver.disk(source.id)) for target, (source, _) in pairs],
        )
        copies = [self.first_bytes(driver, target) for target in targets]
        assert copies == [data for _, data in sources]

    def small_volume(
        self, driver: VolumeDriver, create_volume: Create
    ) -> tuple[Volume, bytes]:
        """Create a volume with bytes at its start, and return both."""
        volume = create_volume(MIB)
        data = self.pattern(volume)
        self.write(driver, driver.disk(volume.id), 0, data)
        return volume, data

    def first_bytes(self, driver: VolumeDriver, volume: Volume) -> bytes:
        """The bytes at the start of a volume, as many as a pattern has."""
        length = len(self.pattern(volume))
        return self.read(driver, driver.disk(volume.id), 0, length)


def _creation(volume: Volume, snapshot: Snapshot) -> Verb:
    return lambda driver: driver.create_from(volume, snapshot)


def _filling(volume: Volume, source: Disk) -> Verb:
    return lambda driver: driver.fill(volume, source)


def _do_at_once(steps: Steps, verbs: list[Verb]) -> None:
    """Do all of them at once; raise the first of their errors."""
    together = InStep(len(verbs))
    driver = steps.watch_steps(together)
    with ThreadPoolExecutor(len(verbs)) as pool:
        calls = [pool.submit(together.run, verb, driver) for verb in verbs]
    for call in calls:
        call.result()
