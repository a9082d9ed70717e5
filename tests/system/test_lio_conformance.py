# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit bound to LIO, with device-mapper's disks and libiscsi hosts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.conformance.fixtures import Host, TargetFixtures, defaults
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.fake.fake_storage import Gate
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Disk
from tests.conformance.iscsi_hosts import RealHost
from tests.stands.waiting import until
from tests.system.lio_node import CONFIGFS, PORT, PREFIX, run
from tests.system.lvm_kit import root
from tests.system.mapper_volumes import MapperVolumes

__all__ = ["root"]
pytestmark = pytest.mark.system

# Not ours by its prefix, though its name ends as ours do.
FOREIGN = "iqn.2001-01.com.other:volume-11111111-2222-4333-8444-555555555555"


@pytest.fixture(scope="module")
def mapper(
    root: Root, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MapperVolumes]:
    """On a node with what the packages set up for the target."""
    Path("/etc/target").mkdir(exist_ok=True)
    run("modprobe", "target_core_mod")
    store = tmp_path_factory.mktemp("disks") / "store"
    driver = MapperVolumes("kit", {"store": store}, root)
    yield driver
    driver.close()


class LioFixtures(TargetFixtures):
    @pytest.fixture
    def volumes(self, mapper: MapperVolumes) -> VolumeDriver:
        return mapper

    @pytest.fixture
    def build(self, root: Root, mapper: MapperVolumes) -> Callable[[], TargetDriver]:
        named = {"target_prefix": PREFIX, "target_port": PORT, "lio_deadline": 4.0}
        options = defaults(LioTarget, **named)
        return lambda: LioTarget("kit", options, root)

    @pytest.fixture
    def host(self) -> Callable[[str], Host]:
        return RealHost

    @pytest.fixture
    def foreign_state(self, target: TargetDriver) -> Iterator[Callable[[], object]]:
        CONFIGFS.joinpath("iscsi").mkdir(exist_ok=True)
        theirs = CONFIGFS / "iscsi" / FOREIGN
        group = theirs / "tpgt_1"
        acl = group / "acls" / "iqn.1994-05.com.example:kit-a"
        for path in (theirs, group, acl):
            path.mkdir()
        yield lambda: live_state(theirs)
        for path in (acl, group, theirs):
            path.rmdir()


def live_state(target: Path) -> list[tuple[str, str]]:
    """Every directory below a target, and the settings that grant access."""
    names = ("enable", "generate_node_acls", "cmdsn_depth", "authentication")
    return sorted(
        (str(path), path.read_text() if path.name in names else "")
        for path in target.rglob("*")
        if path.is_dir() or path.name in names
    )


class TestLio(LioFixtures, TargetContract):
    @contextlib.contextmanager
    def slow_writes(self, disk: Disk) -> Iterator[Gate]:
        """The device is suspended: what the target passes to it stands still."""
        gate, before = Gate(), commands()
        run("dmsetup", "suspend", "--noflush", "--nolockfs", disk.path)

        def resume() -> None:
            until(lambda: gate.open.is_set() or commands() > before)
            gate.reached.set()
            gate.open.wait()
            run("dmsetup", "resume", disk.path)

        thread = threading.Thread(target=resume)
        thread.start()
        try:
            yield gate
        finally:
            gate.open.set()
            thread.join()


def commands() -> int:
    """How many commands the target has passed to disks so far."""
    counts = CONFIGFS.glob("core/*/*/statistics/scsi_lu/num_cmds")
    return sum(int(each.read_text()) for each in counts)
