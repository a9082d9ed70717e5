# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The drivers of the storm pass the kit, with their storage in a separate process.

The fixtures change that storage by calls to its process.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance.fakes import FakeTargetFixtures, FakeVolumeFixtures
from lunshare.drivers.conformance.fixtures import (
    Host,
    Session,
    TargetFixtures,
    VolumeFixtures,
    defaults,
)
from lunshare.drivers.conformance.interruption import Countdown, Killed, OnStep
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.conformance.volume import VolumeContract
from lunshare.drivers.fake.fake_storage import FakeAcl
from lunshare.drivers.values import GIB, Auth, Disk, Mode, Snapshot, Volume
from storm_storage.driver import StormTarget, StormVolumes
from storm_storage.storage_client import StorageClient
from tests.storm.processes import ROOT, Storage


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    started = Storage(tmp_path_factory.mktemp("storm"), ROOT, 1, 0.0)
    yield started
    started.close()


@pytest.fixture
def machine(process: Storage) -> Machine:
    return Machine(StorageClient(process.socket))


class Machine:
    """What hosts and administrators do to the storage."""

    def __init__(self, storage_client: StorageClient) -> None:
        self.storage_client = storage_client

    def __call__(self, verb: str, *given: object) -> Any:
        return self.storage_client.call("machine", None, verb, *given)


def at(driver: Any) -> Machine:
    return Machine(driver.storage_client)


def killed_after(driver: Any, steps: int) -> Any:
    again = type(driver)(driver.name, driver.options, NoRoot())
    at(driver)("die_after", again.key[0], steps)
    return again


class StormVolumeFixtures(FakeVolumeFixtures):
    volume_class = StormVolumes

    @pytest.fixture
    def build(self, name: str, process: Storage) -> Callable[[], VolumeDriver]:
        options = defaults(StormVolumes, storm_socket=process.socket, **self.options)
        return lambda: StormVolumes(name, options, NoRoot())

    @pytest.fixture
    def misconfigured(self, process: Storage) -> VolumeDriver:
        given = {"storm_socket": process.socket, "fake_capacity_gb": 0}
        return StormVolumes("none", defaults(StormVolumes, **given), NoRoot())

    @pytest.fixture
    def full_pool(
        self, name: str, machine: Machine
    ) -> Callable[[], AbstractContextManager[None]]:
        @contextlib.contextmanager
        def full() -> Iterator[None]:
            machine("occupy", name, GIB)
            yield
            machine("occupy", name, -GIB)

        return full

    @pytest.fixture
    def foreign_state(self, name: str, machine: Machine) -> Callable[[], object]:
        machine("put_foreign", name, "lv-root", 4096, {0: b"somebody else's bytes"})
        return lambda: machine("state", name, 4096)["foreign"]

    @pytest.fixture
    def foreign_disk(self, name: str, machine: Machine) -> Callable[[bytes], str]:
        def put(data: bytes) -> str:
            reference = f"disk-{uuid.uuid4()}"
            machine("put_foreign", name, reference, self.size, {0: data})
            return reference

        return put

    @pytest.fixture
    def other_backend(self, name: str, process: Storage) -> Callable[[], VolumeDriver]:
        options = defaults(StormVolumes, storm_socket=process.socket, **self.options)
        return lambda: StormVolumes(f"{name}-beside", options, NoRoot())

    @contextlib.contextmanager
    def held_open_reference(
        self, driver: VolumeDriver, reference: str
    ) -> Iterator[None]:
        at(driver)("hold", driver.name, reference, True)
        try:
            yield
        finally:
            at(driver)("hold", driver.name, reference, False)

    @contextlib.contextmanager
    def failing_storage(self, driver: VolumeDriver, reads: bool) -> Iterator[None]:
        at(driver)("fail", driver.name, reads, True)
        yield
        at(driver)("fail", driver.name, False, False)

    def power_cut(self, driver: VolumeDriver) -> bool:
        return False

    allocated = VolumeFixtures.allocated  # type: ignore[assignment]

    def read(self, driver: VolumeDriver, disk: Disk, offset: int, length: int) -> bytes:
        read: bytes = at(driver)("read", driver.name, disk.volume_id, offset, length)
        return read

    def write(self, driver: VolumeDriver, disk: Disk, offset: int, data: bytes) -> None:
        at(driver)("write", driver.name, disk.volume_id, offset, data)

    def discard(
        self, driver: VolumeDriver, disk: Disk, offset: int, length: int
    ) -> None:
        at(driver)("discard", driver.name, disk.volume_id, offset, length)

    @contextlib.contextmanager
    def held_open(self, driver: VolumeDriver, disk: Disk) -> Iterator[None]:
        at(driver)("hold", driver.name, disk.volume_id, True)
        try:
            yield
        finally:
            at(driver)("hold", driver.name, disk.volume_id, False)

    def watch_steps(self, driver: VolumeDriver, on_step: OnStep) -> VolumeDriver:
        """The storage process counts the steps, so only kills are possible."""
        if isinstance(on_step, Countdown):
            driver = killed_after(driver, on_step.left)
        return driver

    def leave_incomplete_disk(self, driver: VolumeDriver, volume: Volume) -> None:
        with contextlib.suppress(Killed):
            killed_after(driver, 2).create(volume)

    def leave_incomplete_copy(
        self, driver: VolumeDriver, volume: Volume, snapshot: Snapshot
    ) -> None:
        with contextlib.suppress(Killed):
            killed_after(driver, 2).create_from(volume, snapshot)


class StormSession:
    """A session in the storage process."""

    def __init__(self, machine: Machine, number: int, serial: str) -> None:
        self._machine, self._number, self.serial = machine, number, serial

    def _ask(self, verb: str, *given: object) -> Any:
        return self._machine("session", self._number, verb, *given)

    @property
    def size(self) -> int:
        return int(self._ask("size"))

    @property
    def alive(self) -> bool:
        return bool(self._ask("alive"))

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._ask("read", offset, length))

    def write(self, offset: int, data: bytes) -> None:
        self._ask("write", offset, data)

    def close(self) -> None:
        self._ask("close")


class StormHost:
    def __init__(self, initiator: str, target: StormTarget) -> None:
        self.initiator, self._target = initiator, target

    def login(self, connection: Mapping[str, Any]) -> Session:
        auth = None
        if "auth_method" in connection:
            auth = Auth(connection["auth_username"], connection["auth_password"])
        volume_id = self._target.volume_of(connection["target_iqn"])
        machine = at(self._target)
        number = machine("login", self._target.name, volume_id, self.initiator, auth)
        return StormSession(machine, number, volume_id)


class StormTargetFixtures(FakeTargetFixtures):
    target_class = StormTarget

    @pytest.fixture
    def volumes(self, name: str, process: Storage) -> VolumeDriver:
        options = defaults(StormVolumes, storm_socket=process.socket)
        return StormVolumes(name, options, NoRoot())

    @pytest.fixture
    def build(self, name: str, process: Storage) -> Callable[[], TargetDriver]:
        options = defaults(StormTarget, storm_socket=process.socket)
        return lambda: StormTarget(name, options, NoRoot())

    def watch_steps(self, target: TargetDriver, on_step: OnStep) -> TargetDriver:
        if isinstance(on_step, Countdown):
            target = killed_after(target, on_step.left)
        return target

    slow_writes = TargetFixtures.slow_writes  # type: ignore[assignment]

    @pytest.fixture
    def host(self, target: TargetDriver) -> Callable[[str], Host]:
        assert isinstance(target, StormTarget)
        return lambda initiator: StormHost(initiator, target)

    @pytest.fixture
    def foreign_state(self, name: str, machine: Machine) -> Callable[[], object]:
        acl = FakeAcl("", None)
        acl.mode = Mode.RW
        theirs = {"iqn.2001-01.com.other:a": acl}
        machine("put_foreign_export", name, "backup-of-somebody", theirs)
        return lambda: machine("foreign_exports", name)


class TestStormThick(StormVolumeFixtures, VolumeContract):
    pass


class TestStormThin(StormVolumeFixtures, VolumeContract):
    options = {"fake_thin": True, "fake_capacity_gb": 1}


class TestStormWiped(StormVolumeFixtures, VolumeContract):
    options = {"fake_thin": False, "fake_capacity_gb": 1, "fake_wipe": True}


class TestStormTarget(StormTargetFixtures, TargetContract):
    pass
