# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of ``clone``, which needs no temporary snapshot (``clones_at_once``)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.conformance.ability_claims import requires
from lunshare.drivers.conformance.copies import CopyCase
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.interruption import Kill
from lunshare.drivers.conformance.shared_pool import OtherBackend, SharedPoolContract
from lunshare.drivers.conformance.volume_bytes import Create
from lunshare.drivers.errors import NoSpace, UnknownDisk
from lunshare.drivers.values import Volume

Build = Callable[[], VolumeDriver]
FullPool = Callable[[], AbstractContextManager[None]]
Kills = Callable[..., Iterator[Kill[VolumeDriver]]]


class CloneContract(SharedPoolContract):
    """One test for each behaviour. Those of ``copies`` clone as well."""

    @requires("clones_at_once")
    def test_a_clone_of_a_smaller_source_adds_zeros(self, case: CopyCase) -> None:
        size, larger = case.disk.size, new_volume(2 * self.size)
        disk = case.driver.clone(larger, case.origin)
        assert disk.size >= larger.size
        assert disk == case.driver.disk(larger.id)
        assert not case.difference(larger, case.data)
        added = self.read(case.driver, disk, size, 2 * self.size - size)
        assert added.count(0) == len(added)
        assert case.disk.size == size
        case.driver.delete(larger.id)

    @requires("clones_at_once")
    def test_a_retried_clone_changes_nothing(self, case: CopyCase) -> None:
        """The clone has the bytes of now, not those of a snapshot of its source."""
        case.snapshot()
        newer = case.overwrite(case.origin)
        disk = case.driver.clone(case.volume, case.origin)
        assert not case.difference(case.volume, newer)
        self.write_pattern(case.driver, disk, case.data)
        assert case.driver.clone(case.volume, case.origin) == disk
        assert not case.difference(case.volume, case.data)

    @requires("clones_at_once")
    def test_a_clone_of_an_unknown_source_fails(
        self, driver: VolumeDriver, volume: Volume
    ) -> None:
        unknown = Volume(str(uuid.uuid4()), self.size)
        with pytest.raises(UnknownDisk) as raised:
            driver.clone(volume, unknown)
        assert raised.value.volume_id == unknown.id
        assert driver.disks() == ()

    @requires("clones_at_once")
    def test_a_clone_of_another_backends_volume_fails(
        self,
        driver: VolumeDriver,
        other_backend: OtherBackend,
        create_volume: Create,
        volume: Volume,
    ) -> None:
        driver.clone(volume, create_volume())
        driver.delete(volume.id)
        before = driver.disks()
        with self.volume_of_other_backend(other_backend) as found:
            if found is None:
                return
            with pytest.raises(UnknownDisk):
                driver.clone(volume, found[0])
            assert driver.disks() == before

    @requires("clones_at_once")
    def test_a_clone_in_a_full_pool_leaves_nothing(
        self, case: CopyCase, full_pool: FullPool
    ) -> None:
        case.driver.clone(case.volume, case.origin)
        case.driver.delete(case.volume.id)
        with full_pool():
            with pytest.raises(NoSpace):
                case.driver.clone(case.volume, case.origin)
            assert case.volume_ids() == [case.origin.id]
        case.driver.clone(case.volume, case.origin)
        assert not case.difference(case.volume, case.data)

    @requires("clones_at_once")
    def test_a_killed_clone_is_finished_by_a_retry(
        self, driver: VolumeDriver, create_volume: Create, kills: Kills
    ) -> None:
        source, data = self.volume_with_bytes(driver, create_volume)
        for kill in kills():
            volume = new_volume(2 * self.size)
            again = kill.call_and_retry("clone", volume, source)
            assert again.disk(volume.id).size >= volume.size
            assert not self.volume_difference(again, volume, data)
            assert not self.volume_difference(again, source, data)
            again.delete(volume.id)

    @requires("clones_at_once")
    def test_a_clone_can_be_retried_while_the_first_call_runs(
        self, driver: VolumeDriver, retried: Any, create_volume: Create
    ) -> None:
        source, data = self.volume_with_bytes(driver, create_volume)
        volumes = [new_volume(self.size)]
        for _ in retried(
            lambda driver: driver.clone(volumes[-1], source),
            lambda: self.rewrite(driver, volumes[-1]),
        ):
            assert not self.volume_difference(driver, volumes[-1], self.rewritten())
            assert not self.volume_difference(driver, source, data)
            driver.delete(volumes[-1].id)
            volumes.append(new_volume(self.size))

    @requires("clones_at_once")
    def test_a_clone_that_meets_an_io_error_can_be_retried(
        self,
        driver: VolumeDriver,
        create_volume: Create,
        after_errors: Any,
        volume: Volume,
    ) -> None:
        source, data = self.volume_with_bytes(driver, create_volume)
        driver.clone(volume, source)
        driver.delete(volume.id)
        for again in after_errors("clone", lambda driver: driver.clone(volume, source)):
            assert not self.volume_difference(again, volume, data)
            assert not self.volume_difference(again, source, data)
            again.delete(volume.id)
            assert again.disks() == (again.disk(source.id),)

    @requires("clones_at_once")
    def test_a_clone_survives_a_power_cut(self, case: CopyCase, build: Build) -> None:
        case.driver.clone(case.volume, case.origin)
        self.survives_power_cut(
            case.driver, build, "clone", [case.origin, case.volume], case.data
        )
