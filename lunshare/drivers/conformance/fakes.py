# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit bound to the fake drivers: a complete example for a driver's author.

The tests of the kit replace ``volume_class`` and ``target_class`` by broken fakes.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.conformance.fixtures import (
    MIB,
    Host,
    Session,
    TargetFixtures,
    VolumeFixtures,
    defaults,
)
from lunshare.drivers.conformance.interruption import OnStep
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import FakeAcl, FakeDisk, Gate, storage
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Auth, Disk, Mode, Snapshot, Volume

_ROOT: Root = NoRoot()


class FakeVolumeFixtures(VolumeFixtures):
    """Disks in memory, thin or thick."""

    volume_class: type[FakeVolumes] = FakeVolumes
    options: Mapping[str, Any] = {"fake_thin": False, "fake_capacity_gb": 1}
    size = 4 * MIB

    @pytest.fixture
    def name(self) -> str:
        """The name of the backend; each test has its own storage."""
        return f"kit-{uuid.uuid4()}"

    @pytest.fixture
    def build(self, name: str) -> Callable[[], VolumeDriver]:
        options = defaults(self.volume_class, **self.options)
        return lambda: self.volume_class(name, options, _ROOT)

    @pytest.fixture
    def misconfigured(self) -> VolumeDriver:
        options = defaults(self.volume_class, fake_capacity_gb=0)
        return self.volume_class("kit-misconfigured", options, _ROOT)

    @pytest.fixture
    def full_pool(self, name: str) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            store = storage(name)
            store.foreign += 1024**3
            yield
            store.foreign -= 1024**3

        return full

    @pytest.fixture
    def foreign_state(self, name: str) -> Callable[[], object]:
        store, disk = storage(name), FakeDisk(4096)
        disk.write(0, b"somebody else's bytes")
        store.foreign, store.foreign_disks["lv-root"] = disk.size, disk
        return lambda: [
            (key, found.size, found.read(0, 4096))
            for key, found in store.foreign_disks.items()
        ]

    @pytest.fixture
    def foreign_disk(self, name: str) -> Callable[[bytes], str]:
        def put(data: bytes) -> str:
            store, reference = storage(name), f"disk-{uuid.uuid4()}"
            store.foreign_disks[reference] = disk = FakeDisk(self.size)
            disk.write(0, data)
            store.foreign += self.size
            return reference

        return put

    def read(self, driver: VolumeDriver, disk: Disk, offset: int, length: int) -> bytes:
        return storage(driver.name).read(disk.volume_id, offset, length)

    def write(self, driver: VolumeDriver, disk: Disk, offset: int, data: bytes) -> None:
        storage(driver.name).write(disk.volume_id, offset, data)

    def discard(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        storage(driver.name).discard(disk.volume_id, offset, length)

    def block_sizes(self, driver: VolumeDriver, disk: Disk) -> tuple[int, int]:
        return 512, 4096

    @pytest.fixture
    def other_backend(self, name: str) -> Callable[[], VolumeDriver]:
        options = defaults(FakeVolumes, **self.options)
        return lambda: FakeVolumes(f"{name}-beside", options, _ROOT)

    @contextlib.contextmanager
    def held_open(self, driver: VolumeDriver, disk: Disk) -> Iterator[None]:
        store = storage(driver.name)
        store.open.add(disk.volume_id)
        try:
            yield
        finally:
            store.open.remove(disk.volume_id)

    @contextlib.contextmanager
    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> Iterator[None]:
        store = storage(driver.name)
        store.open.add(reference)
        try:
            yield
        finally:
            store.open.remove(reference)

    def held_open_snapshot(
        self, driver: VolumeDriver, reference: str
    ) -> AbstractContextManager[None]:
        return self.held_open_reference(driver, reference)

    def lose_snapshot(self, driver: VolumeDriver, snapshot: Snapshot) -> None:
        storage(driver.name).snapshots[snapshot.id].lost = True

    def power_cut(self, driver: VolumeDriver) -> bool:
        storage(driver.name).power_cut()
        return True

    @contextlib.contextmanager
    def failing_storage(self, driver: VolumeDriver, reads: bool) -> Iterator[None]:
        store = storage(driver.name)
        store.fails_reads, store.fails_writes = reads, True
        yield
        store.fails_reads = store.fails_writes = False

    def allocated(self, driver: VolumeDriver, disk: Disk) -> int:
        return storage(driver.name).disks[disk.volume_id].allocated

    def watch_steps(self, driver: VolumeDriver, on_step: OnStep) -> VolumeDriver:
        assert isinstance(driver, FakeVolumes)
        driver.failures.watch(on_step)
        return driver

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        assert isinstance(driver, FakeVolumes)
        killed = KeyboardInterrupt("killed")
        with (
            driver.failures.fail("create_from.half", killed),
            contextlib.suppress(KeyboardInterrupt),
        ):
            driver.create_from(volume, snapshot)

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        assert isinstance(driver, FakeVolumes)
        killed = KeyboardInterrupt("killed")
        with (
            driver.failures.fail("create.half", killed),
            contextlib.suppress(KeyboardInterrupt),
        ):
            driver.create(volume)


class FakeHost:
    """An initiator of a ``FakeTarget``."""

    def __init__(self, initiator: str, target: FakeTarget) -> None:
        self.initiator, self._target = initiator, target

    def login(self, connection: Mapping[str, Any]) -> Session:
        auth = None
        if "auth_method" in connection:
            auth = Auth(connection["auth_username"], connection["auth_password"])
        volume_id = self._target.volume_of(connection["target_iqn"])
        return self._target.login(volume_id, self.initiator, auth)


class FakeTargetFixtures(TargetFixtures):
    """Exports in memory."""

    target_class: type[FakeTarget] = FakeTarget
    options: Mapping[str, Any] = {}
    deadline = 0.6

    @pytest.fixture
    def name(self) -> str:
        """The name of the backend; each test has its own storage."""
        self.backend = f"kit-{uuid.uuid4()}"
        return self.backend

    @pytest.fixture
    def volumes(self, name: str) -> VolumeDriver:
        return FakeVolumes(name, defaults(FakeVolumes), _ROOT)

    @pytest.fixture
    def build(self, name: str) -> Callable[[], TargetDriver]:
        overrides = {"fake_deadline": self.deadline, **self.options}
        options = defaults(self.target_class, **overrides)
        return lambda: self.target_class(name, options, _ROOT)

    def watch_steps(self, target: TargetDriver, on_step: OnStep) -> TargetDriver:
        assert isinstance(target, FakeTarget)
        target.failures.watch(on_step)
        return target

    @contextlib.contextmanager
    def slow_writes(self, disk: Disk) -> Iterator[Gate]:
        store, gate = storage(self.backend), Gate()
        store.slow[disk.volume_id] = gate
        yield gate
        del store.slow[disk.volume_id]

    @pytest.fixture
    def host(self, target: TargetDriver) -> Callable[[str], Host]:
        assert isinstance(target, FakeTarget)
        return lambda initiator: FakeHost(initiator, target)

    @pytest.fixture
    def foreign_state(self, name: str) -> Callable[[], object]:
        store = storage(name)
        acl = FakeAcl("", None)
        acl.mode = Mode.RW
        store.foreign_exports["backup-of-somebody"] = {"iqn.2001-01.com.other:a": acl}
        return lambda: [
            (export, initiator, acl.mode, acl.sessions)
            for export, acls in store.foreign_exports.items()
            for initiator, acl in acls.items()
        ]
