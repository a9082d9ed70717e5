# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Trouble in the middle of a verb, as tests.

At its first step, its second, and so on, somebody fills the pool, a deadline passes,
or the driver's life ends while the step still runs and the next life begins.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.coverage import Stepping
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.interruption import Before, Killed, Late, Twin
from lunshare.drivers.conformance.killed_volume import KilledVolumeContract
from lunshare.drivers.conformance.volume_bytes import Make
from lunshare.drivers.errors import DeadlineExceeded, DriverError, NoSpace, UnknownDisk
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]
Full = Callable[[], AbstractContextManager[None]]
Steps = Stepping[VolumeDriver]
Verb = Callable[[VolumeDriver], object]

#: Seconds in which a repeat is given the chance to end before its twin.
_AHEAD = 0.2


class FailureContract(KilledVolumeContract):
    """A behaviour a test."""

    # the storage is full in the middle of it

    def in_a_filling_pool(
        self,
        stepping: Steps,
        exhausted: Full,
        name: str,
        verb: Verb,
        needed: bool = True,
    ) -> Iterator[bool]:
        """Whether ``verb`` was done, for each step at which somebody fills the pool.

        What comes out of it other than success and NoSpace ends the test. ``needed``:
        the verb takes room, so that it must have been refused somewhere.
        """
        refused = 0
        for step in itertools.count(1):
            with contextlib.ExitStack() as full:
                filling = Before(step, lambda: full.enter_context(exhausted()))
                done = _has_room(verb, stepping.watched(filling))
                acted = filling.over()
            refused += not done
            yield done
            if not acted:
                break
        if not refused and needed:
            remedy = "let `exhausted` take the last free space of the storage itself"
            self.not_tried(f"ENOSPC in the middle of {name}", remedy)

    def test_create_leaves_nothing_if_the_pool_fills_up(
        self, driver: VolumeDriver, stepping: Steps, exhausted: Full, volume: Volume
    ) -> None:
        before = driver.capacity()
        for done in self.in_a_filling_pool(
            stepping, exhausted, "create", lambda driver: driver.create(volume)
        ):
            if done:
                assert not self.damaged(driver, driver.disk(volume.id), b"")
            else:
                with pytest.raises(UnknownDisk):
                    driver.disk(volume.id)
            driver.delete(volume.id)
            self.settle(driver)
            assert self.same_room(driver.capacity(), before)

    @requires("supports_snapshots")
    def test_create_from_leaves_nothing_if_the_pool_fills_up(
        self, driver: VolumeDriver, stepping: Steps, exhausted: Full, volume: Volume
    ) -> None:
        with self.kept(driver) as (origin, data, snapshot):
            for done in self.in_a_filling_pool(
                stepping,
                exhausted,
                "create_from",
                lambda driver: driver.create_from(volume, snapshot),
            ):
                if done:
                    assert not self.harmed(driver, volume, data)
                else:
                    assert driver.disks() == (driver.disk(origin.id),)
                driver.delete(volume.id)
                self.settle(driver)

    def test_fill_copies_all_bytes_or_fails_if_the_pool_fills_up(
        self, driver: VolumeDriver, stepping: Steps, exhausted: Full, made: Make
    ) -> None:
        source = made()
        disk, data = driver.disk(source.id), self.pattern(source)
        self.fill(driver, disk, data)
        if disk.kind not in self.can.fills:
            return
        targets = [made()]
        for done in self.in_a_filling_pool(
            stepping,
            exhausted,
            "fill",
            lambda driver: driver.fill(targets[-1], disk),
            not self.can.reserves_space,
        ):
            if done:
                assert not self.harmed(driver, targets[-1], data)
            driver.delete(targets[-1].id)
            self.settle(driver)
            targets.append(made())

    # a deadline that passes

    def after_a_deadline(self, stepping: Steps, verb: Verb) -> Iterator[VolumeDriver]:
        """The driver, when it has repeated a verb whose nth step was too slow.

        A verb that reports success in spite of it has to have its effect.
        """
        if stepping.by_lines:
            remedy = "override `watched`: the driver runs nothing as root"
            return self.not_tried("a missed deadline", remedy)
        for step in itertools.count(1):
            late = Late(step)
            driver = stepping.watched(late)
            try:
                verb(driver)
            except DeadlineExceeded:
                verb(driver)
            acted = late.over()
            yield driver
            if not acted:
                return None

    def test_a_create_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, stepping: Steps, volume: Volume
    ) -> None:
        for again in self.after_a_deadline(
            stepping, lambda driver: driver.create(volume)
        ):
            disk = again.disk(volume.id)
            assert again.disks() == (disk,)
            assert not self.damaged(again, disk, b"")
            driver.delete(volume.id)

    def test_a_delete_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, build: Build, stepping: Steps
    ) -> None:
        volumes = [self.ours(driver)[0]]
        for _ in self.after_a_deadline(
            stepping, lambda driver: driver.delete(volumes[-1].id)
        ):
            assert build().disks() == ()
            volumes.append(self.ours(driver)[0])
        driver.delete(volumes[-1].id)

    @requires("supports_snapshots")
    def test_a_revert_that_misses_its_deadline_can_be_retried(
        self, driver: VolumeDriver, stepping: Steps
    ) -> None:
        with self.kept(driver) as (volume, data, snapshot):
            self.overwrite(driver, volume)
            for again in self.after_a_deadline(
                stepping, lambda driver: driver.revert(snapshot)
            ):
                assert not self.harmed(again, volume, data)
                self.overwrite(again, volume)

    # a verb that is repeated while its twin still runs

    def beside_its_twin(
        self, build: Build, stepping: Steps, verb: Verb, written: Callable[[], None]
    ) -> Iterator[None]:
        """Comes back when a verb and its twin have ended, for each step of the twin.

        ``written`` is called as soon as the repeat has succeeded: a host writes. What
        works in this process has no twin: its steps end with its life.
        """
        if stepping.by_lines:
            return
        for step in itertools.count(1):
            twin = Twin(step)
            first = stepping.watched(twin)
            with ThreadPoolExecutor(2) as pool:
                life = pool.submit(_to_its_end, verb, first)
                begun = pool.submit(twin.begun.wait, 60)
                both: list[Future[Any]] = [life, begun]
                wait(both, return_when="FIRST_COMPLETED")
                alone = not twin.begun.is_set()
                twin.begun.set()
                repeat = pool.submit(_succeeds, verb, build())
                early = not wait([repeat], timeout=_AHEAD).not_done
                if early and repeat.result():
                    written()
                twin.go_on()
                if not repeat.result():
                    verb(build())
                if not (early and repeat.result()):
                    written()
            yield
            if alone:
                return

    def test_a_create_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, build: Build, stepping: Steps
    ) -> None:
        volumes = [new_volume(self.size)]

        def written() -> None:
            disk = driver.disk(volumes[-1].id)
            self.fill(driver, disk, self.pattern(volumes[-1]))

        before = driver.capacity()
        for _ in self.beside_its_twin(
            build, stepping, lambda driver: driver.create(volumes[-1]), written
        ):
            assert not self.harmed(driver, volumes[-1], self.pattern(volumes[-1]))
            driver.delete(volumes[-1].id)
            self.settle(driver)
            assert self.same_room(build().capacity(), before)
            volumes.append(new_volume(self.size))

    @requires("supports_snapshots")
    def test_a_create_from_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, build: Build, stepping: Steps
    ) -> None:
        with self.kept(driver) as (origin, data, snapshot):
            volumes = [new_volume(self.size)]
            for _ in self.beside_its_twin(
                build,
                stepping,
                lambda driver: driver.create_from(volumes[-1], snapshot),
                lambda: self.rewrite(driver, volumes[-1]),
            ):
                assert not self.harmed(driver, volumes[-1], self.rewritten())
                assert not self.harmed(driver, origin, data)
                driver.delete(volumes[-1].id)
                self.settle(driver)
                volumes.append(new_volume(self.size))

    def test_a_fill_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, build: Build, stepping: Steps, made: Make
    ) -> None:
        source, targets = made(), [made()]
        disk = driver.disk(source.id)
        self.fill(driver, disk, self.pattern(source))
        if disk.kind not in self.can.fills:
            return
        for _ in self.beside_its_twin(
            build,
            stepping,
            lambda driver: driver.fill(targets[-1], disk),
            lambda: self.rewrite(driver, targets[-1]),
        ):
            assert not self.harmed(driver, targets[-1], self.rewritten())
            driver.delete(targets[-1].id)
            self.settle(driver)
            targets.append(made())

    @requires("supports_snapshots")
    def test_a_revert_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, build: Build, stepping: Steps
    ) -> None:
        with self.kept(driver) as (volume, _, snapshot):
            for _ in self.beside_its_twin(
                build,
                stepping,
                lambda driver: driver.revert(snapshot),
                lambda: self.rewrite(driver, volume),
            ):
                assert not self.harmed(driver, volume, self.rewritten())

    def rewrite(self, driver: VolumeDriver, volume: Volume) -> None:
        """What a host writes that has the volume after the verb."""
        self.fill(driver, driver.disk(volume.id), self.rewritten())

    def rewritten(self) -> bytes:
        """The bytes of ``rewrite``."""
        return self.pattern(Volume(str(uuid.UUID(int=0)), 0)).swapcase()

    # a power cut

    def test_created_and_filled_disks_survive_a_power_cut(
        self, driver: VolumeDriver, build: Build, made: Make, volume: Volume
    ) -> None:
        source, target = made(), made()
        data, disk = self.pattern(source), driver.disk(source.id)
        self.fill(driver, disk, data)
        self.survives(driver, build, "create", [source], data)
        if disk.kind in self.can.fills:
            driver.fill(target, disk)
            self.survives(driver, build, "fill", [source, target], data)

    @requires("supports_snapshots")
    def test_copied_and_reverted_disks_survive_a_power_cut(
        self, driver: VolumeDriver, build: Build, volume: Volume
    ) -> None:
        with self.kept(driver) as (origin, data, snapshot):
            driver.create_from(volume, snapshot)
            self.survives(driver, build, "create_from", [origin, volume], data)
            self.overwrite(driver, origin)
            driver.revert(snapshot)
            self.survives(driver, build, "revert", [origin, volume], data)

    def survives(
        self,
        driver: VolumeDriver,
        build: Build,
        verb: str,
        whole: list[Volume],
        data: bytes,
    ) -> None:
        """The volumes have these bytes after the power was cut."""
        if not self.power_cut(driver):
            return self.not_tried(f"a power cut after {verb}", "override `power_cut`")
        again = build()
        again.check()
        for each in whole:
            assert not self.harmed(again, each, data)


def _has_room(verb: Verb, driver: VolumeDriver) -> bool:
    try:
        verb(driver)
    except NoSpace:
        return False
    return True


def _to_its_end(verb: Verb, driver: VolumeDriver) -> None:
    with contextlib.suppress(Killed, DriverError):  # of a life that nobody asks
        verb(driver)


def _succeeds(verb: Verb, driver: VolumeDriver) -> bool:
    """Whether the repeat succeeded. It may say that it has to be repeated again."""
    try:
        verb(driver)
    except NoSpace:
        raise
    except DriverError:
        return False
    return True
