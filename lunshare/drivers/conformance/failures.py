# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of failures in the middle of a verb.

At its first step, its second step, and so on, the pool fills up, a deadline passes, or
the verb is retried while the first call still runs.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.coverage import DriverSteps
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.interruption import (
    ActBefore,
    Killed,
    MissDeadline,
    UnfinishedCall,
)
from lunshare.drivers.conformance.storage_errors import StorageErrorContract
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import DeadlineExceeded, DriverError, NoSpace, UnknownDisk
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]
FullPool = Callable[[], AbstractContextManager[None]]
Steps = DriverSteps[VolumeDriver]
Verb = Callable[[VolumeDriver], object]
Filling = Callable[..., Iterator[bool]]
Retried = Callable[[Verb, Callable[[], None]], Iterator[None]]

#: Seconds in which the retry can end before the first call.
_AHEAD = 0.2


class FailureContract(StorageErrorContract):
    """One test for each behaviour."""

    # the pool fills up

    @pytest.fixture
    def filling(self, steps: Steps, full_pool: FullPool) -> Filling:
        """``while_pool_fills_up`` of this driver."""
        return partial(self.while_pool_fills_up, steps, full_pool)

    @pytest.fixture
    def retried(self, build: Build, steps: Steps) -> Retried:
        """``retried_while_running`` of this driver."""
        return partial(self.retried_while_running, build, steps)

    def while_pool_fills_up(
        self,
        steps: Steps,
        full_pool: FullPool,
        name: str,
        verb: Verb,
        needed: bool = True,
    ) -> Iterator[bool]:
        """Fill the pool at each step of ``verb``; yield whether the verb succeeded.

        An error other than NoSpace ends the test. ``needed``: the verb needs space, so
        at least one step must have failed.
        """
        refused = 0
        for step in itertools.count(1):
            with contextlib.ExitStack() as full:
                filling = ActBefore(step, lambda: full.enter_context(full_pool()))
                success = _has_space(verb, steps.watch_steps(filling))
                acted = filling.stop()
            refused += not success
            yield success
            if not acted:
                break
        if not refused and needed:
            remedy = "let `full_pool` take the last free space of the storage itself"
            self.not_tried(f"ENOSPC in the middle of {name}", remedy)

    def test_create_leaves_nothing_if_the_pool_fills_up(
        self, driver: VolumeDriver, filling: Filling, volume: Volume
    ) -> None:
        before = self.capacity_after_wipes(driver)
        for success in filling("create", lambda driver: driver.create(volume)):
            if success:
                assert not self.difference(driver, driver.disk(volume.id), b"")
            else:
                with pytest.raises(UnknownDisk):
                    driver.disk(volume.id)
            driver.delete(volume.id)
            self.wipe_deleted(driver)
            assert self.has_same_space(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_create_from_leaves_nothing_if_the_pool_fills_up(
        self, driver: VolumeDriver, filling: Filling, volume: Volume
    ) -> None:
        with self.volume_with_snapshot(driver) as (origin, data, snapshot):
            for success in filling(
                "create_from", lambda driver: driver.create_from(volume, snapshot)
            ):
                if success:
                    assert not self.volume_difference(driver, volume, data)
                else:
                    assert driver.disks() == (driver.disk(origin.id),)
                driver.delete(volume.id)
                self.wipe_deleted(driver)

    def test_fill_copies_all_bytes_or_fails_if_the_pool_fills_up(
        self, driver: VolumeDriver, filling: Filling, create_volume: Create
    ) -> None:
        source = create_volume()
        disk, data = driver.disk(source.id), self.pattern(source)
        self.write_pattern(driver, disk, data)
        if disk.kind not in self.can.fills:
            return
        targets = [create_volume()]
        for success in filling(
            "fill",
            lambda driver: driver.fill(targets[-1], disk),
            not self.can.reserves_space,
        ):
            if success:
                assert not self.volume_difference(driver, targets[-1], data)
            driver.delete(targets[-1].id)
            self.wipe_deleted(driver)
            targets.append(create_volume())

    # a missed deadline

    def after_missed_deadline(self, steps: Steps, verb: Verb) -> Iterator[VolumeDriver]:
        """Miss the deadline of each step of ``verb``, retry it, and yield the driver.

        If the verb reports success all the same, it must have done its work.
        """
        if steps.by_lines:
            remedy = "override `watch_steps`: the driver runs nothing as root"
            return self.not_tried("a missed deadline", remedy)
        for step in itertools.count(1):
            deadline = MissDeadline(step)
            driver = steps.watch_steps(deadline)
            try:
                verb(driver)
            except DeadlineExceeded:
                verb(driver)
            acted = deadline.stop()
            yield driver
            if not acted:
                return None

    def test_a_create_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, steps: Steps, volume: Volume
    ) -> None:
        for again in self.after_missed_deadline(
            steps, lambda driver: driver.create(volume)
        ):
            disk = again.disk(volume.id)
            assert again.disks() == (disk,)
            assert not self.difference(again, disk, b"")
            driver.delete(volume.id)

    def test_a_delete_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, build: Build, steps: Steps
    ) -> None:
        volumes = [self.new_volume_with_bytes(driver)[0]]
        for _ in self.after_missed_deadline(
            steps, lambda driver: driver.delete(volumes[-1].id)
        ):
            assert build().disks() == ()
            volumes.append(self.new_volume_with_bytes(driver)[0])
        driver.delete(volumes[-1].id)

    @requires("supports_snapshots")
    def test_a_revert_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, steps: Steps
    ) -> None:
        with self.volume_with_snapshot(driver) as (volume, data, snapshot):
            self.overwrite(driver, volume)
            for again in self.after_missed_deadline(
                steps, lambda driver: driver.revert(snapshot)
            ):
                assert not self.volume_difference(again, volume, data)
                self.overwrite(again, volume)

    # a retry while the first call runs

    def retried_while_running(
        self, build: Build, steps: Steps, verb: Verb, written: Callable[[], None]
    ) -> Iterator[None]:
        """Retry ``verb`` while its first call is at each of its steps.

        Yields when both calls have ended. ``written`` is called as soon as the retry
        has succeeded, as a host writes then. A driver that works in this process is
        not tried: its steps end when it is killed.
        """
        if steps.by_lines:
            return
        for step in itertools.count(1):
            first_call = UnfinishedCall(step)
            first = steps.watch_steps(first_call)
            with ThreadPoolExecutor(2) as pool:
                kill = pool.submit(_run_to_the_end, verb, first)
                started = pool.submit(first_call.started.wait, 60)
                both: list[Future[Any]] = [kill, started]
                wait(both, return_when="FIRST_COMPLETED")
                alone = not first_call.started.is_set()
                first_call.started.set()
                repeat = pool.submit(_is_success, verb, build())
                early = not wait([repeat], timeout=_AHEAD).not_done
                if early and repeat.result():
                    written()
                first_call.finish()
                if not repeat.result():
                    verb(build())
                if not (early and repeat.result()):
                    written()
            yield
            if alone:
                return

    def test_a_create_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, build: Build, retried: Retried
    ) -> None:
        volumes = [new_volume(self.size)]

        def written() -> None:
            disk = driver.disk(volumes[-1].id)
            self.write_pattern(driver, disk, self.pattern(volumes[-1]))

        before = self.capacity_after_wipes(driver)
        for _ in retried(lambda driver: driver.create(volumes[-1]), written):
            assert not self.volume_difference(
                driver, volumes[-1], self.pattern(volumes[-1])
            )
            driver.delete(volumes[-1].id)
            self.wipe_deleted(driver)
            assert self.has_same_space(build().capacity(), before)
            volumes.append(new_volume(self.size))

    @requires("supports_snapshots")
    def test_a_create_from_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, retried: Retried
    ) -> None:
        with self.volume_with_snapshot(driver) as (origin, data, snapshot):
            volumes = [new_volume(self.size)]
            for _ in retried(
                lambda driver: driver.create_from(volumes[-1], snapshot),
                lambda: self.rewrite(driver, volumes[-1]),
            ):
                assert not self.volume_difference(driver, volumes[-1], self.rewritten())
                assert not self.volume_difference(driver, origin, data)
                driver.delete(volumes[-1].id)
                self.wipe_deleted(driver)
                volumes.append(new_volume(self.size))

    def test_a_fill_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, retried: Retried, create_volume: Create
    ) -> None:
        source, targets = create_volume(), [create_volume()]
        disk = driver.disk(source.id)
        self.write_pattern(driver, disk, self.pattern(source))
        if disk.kind not in self.can.fills:
            return
        for _ in retried(
            lambda driver: driver.fill(targets[-1], disk),
            lambda: self.rewrite(driver, targets[-1]),
        ):
            assert not self.volume_difference(driver, targets[-1], self.rewritten())
            driver.delete(targets[-1].id)
            self.wipe_deleted(driver)
            targets.append(create_volume())

    @requires("supports_snapshots")
    def test_a_revert_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, retried: Retried
    ) -> None:
        with self.volume_with_snapshot(driver) as (volume, _, snapshot):
            for _ in retried(
                lambda driver: driver.revert(snapshot),
                lambda: self.rewrite(driver, volume),
            ):
                assert not self.volume_difference(driver, volume, self.rewritten())

    def rewrite(self, driver: VolumeDriver, volume: Volume) -> None:
        """Write as a host that gets the volume after the verb."""
        self.write_pattern(driver, driver.disk(volume.id), self.rewritten())

    def rewritten(self) -> bytes:
        """The pattern of ``rewrite``."""
        return self.pattern(Volume(str(uuid.UUID(int=0)), 0)).swapcase()

    # a power cut

    def test_created_and_filled_disks_survive_a_power_cut(
        self, driver: VolumeDriver, build: Build, create_volume: Create, volume: Volume
    ) -> None:
        source, target = create_volume(), create_volume()
        data, disk = self.pattern(source), driver.disk(source.id)
        self.write_pattern(driver, disk, data)
        self.survives_power_cut(driver, build, "create", [source], data)
        if disk.kind in self.can.fills:
            driver.fill(target, disk)
            self.survives_power_cut(driver, build, "fill", [source, target], data)

    @requires("supports_snapshots")
    def test_copied_and_reverted_disks_survive_a_power_cut(
        self, driver: VolumeDriver, build: Build, volume: Volume
    ) -> None:
        with self.volume_with_snapshot(driver) as (origin, data, snapshot):
            driver.create_from(volume, snapshot)
            self.survives_power_cut(
                driver, build, "create_from", [origin, volume], data
            )
            self.overwrite(driver, origin)
            driver.revert(snapshot)
            self.survives_power_cut(driver, build, "revert", [origin, volume], data)

    def survives_power_cut(
        self,
        driver: VolumeDriver,
        build: Build,
        verb: str,
        whole: list[Volume],
        data: bytes,
    ) -> None:
        """Cut the power; the volumes must still have these bytes."""
        if not self.power_cut(driver):
            return self.not_tried(f"a power cut after {verb}", "override `power_cut`")
        again = build()
        again.check()
        for each in whole:
            assert not self.volume_difference(again, each, data)


def _has_space(verb: Verb, driver: VolumeDriver) -> bool:
    try:
        verb(driver)
    except NoSpace:
        return False
    return True


def _run_to_the_end(verb: Verb, driver: VolumeDriver) -> None:
    with contextlib.suppress(
        Killed, DriverError
    ):  # the client of the first call is gone
        verb(driver)


def _is_success(verb: Verb, driver: VolumeDriver) -> bool:
    """Whether the retry succeeded. It may fail and be retried again."""
    try:
        verb(driver)
    except NoSpace:
        raise
    except DriverError:
        return False
    return True
