# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a share as LUNs: the kit's target half, extends, restarts, a dead server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.conformance.fixtures import MIB, Host, TargetFixtures, defaults
from lunshare.drivers.conformance.shared_volume import SharedVolume
from lunshare.drivers.conformance.target import TargetContract
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import DiskKind, Mode
from tests.conformance.iscsi_hosts import RealHost
from tests.conformance.nfs_kit import share_options
from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Traffic, block, write_protected
from tests.system.kernel import Live
from tests.system.lio_node import CONFIGFS, PORT, PREFIX, HelperProcess, run
from tests.system.nfs_fixtures import helper, root, server
from tests.system.nfs_server import BASE, NfsServer
from tests.system.test_lio_conformance import FOREIGN, live_state
from tests.system.volumes import MakeDaemon, MakeHost

__all__ = ["helper", "root", "server"]
pytestmark = pytest.mark.system

DEADLINE = 2
IN_TIME = 6 * DEADLINE


class FileFixtures(TargetFixtures):
    """LIO's fileio on files of a share, with libiscsi's hosts."""

    @pytest.fixture
    def volumes(self, root: Root, server: NfsServer) -> VolumeDriver:
        Path("/etc/target").mkdir(exist_ok=True)
        run("modprobe", "target_core_mod")
        driver = NfsVolumes("kit", share_options(server.share, str(BASE)), root)
        driver.check()
        return driver

    @pytest.fixture
    def build(self, root: Root, volumes: VolumeDriver) -> Callable[[], TargetDriver]:
        options = defaults(LioTarget, target_prefix=PREFIX, target_port=PORT)
        return lambda: LioTarget("kit", options, root)

    @pytest.fixture
    def host(self) -> Callable[[str], Host]:
        return RealHost

    @pytest.fixture
    def foreign_state(self, target: TargetDriver) -> Iterator[Callable[[], object]]:
        CONFIGFS.joinpath("iscsi").mkdir(exist_ok=True)
        theirs = CONFIGFS / "iscsi" / FOREIGN
        paths = [theirs, theirs / "tpgt_1"]
        for path in paths:
            path.mkdir()
        yield lambda: live_state(theirs)
        for path in reversed(paths):
            path.rmdir()


class TestFiles(FileFixtures, TargetContract):
    def test_restart_of_the_helper_changes_nothing(
        self,
        helper: HelperProcess,
        build: Callable[[], TargetDriver],
        shared_volume: SharedVolume,
    ) -> None:
        """The kernel got a descriptor of the helper process that has ended."""
        assert shared_volume.disk.kind is DiskKind.FILE
        shared_volume.apply(a=Mode.RW, b=Mode.RO)
        session = shared_volume.login("a")
        helper.stop()
        helper.start()
        assert build().apply(shared_volume.export(a=Mode.RW, b=Mode.RO)) == ()
        session.write(0, block("after") * 8)
        assert session.alive


@pytest.fixture
def filer(daemon: MakeDaemon, server: NfsServer) -> Api:
    """A daemon with a backend on LVM and one on NFS."""
    often = {"backend_stats_polling_interval": 1, "reconcile_interval": 1}
    backend = {
        "volume_driver": "nfs",
        "nas_host": server.share.host,
        "nas_share_path": server.share.path,
        "nas_mount_options": server.share.options,
        "nfs_timeout": DEADLINE,
        "lio_deadline": DEADLINE,
    }
    enabled = {"enabled_backends": "lvm,nfs", **often}
    started = daemon(node=enabled, others={"nfs": backend}).start()
    named = {"multiattach": "<is> True", "volume_backend_name": "nfs"}
    asked = {"volume_type": {"name": "nfs", "extra_specs": named}}
    started.api.must("POST", "/v3/types", asked)
    return started.api


def test_many_hosts_share_a_file_each_in_its_own_mode(
    filer: Api, host: MakeHost, server: NfsServer
) -> None:
    volume = filer.volume(shared=False, volume_type="nfs")
    writer, reader = host("writer"), host("reader")
    one = writer.login(filer.attach(volume, writer)["connection_info"])
    two = reader.login(filer.attach(volume, reader, "ro")["connection_info"])
    one.write(0, block("from the writer"))
    assert two.read(0) == block("from the writer")
    assert write_protected(two)
    file = server.path / f"volume-{volume}"
    assert file.stat().st_size == 1024 * MIB
    with file.open("rb") as held:
        assert held.read(15) == b"from the writer"
    assert file.stat().st_mode & 0o777 == 0o600


def test_dead_server_affects_only_its_own_volumes(
    filer: Api, host: MakeHost, server: NfsServer
) -> None:
    theirs = filer.volume(shared=False, volume_type="nfs")
    sound = filer.volume()
    stays, waits, other = host("stays"), host("waits"), host("other")
    elsewhere = stays.login(filer.attach(sound, stays)["connection_info"])
    session = waits.login(filer.attach(theirs, waits)["connection_info"])
    session.write(0, block("before"))
    with Traffic(elsewhere, "rw") as traffic:
        with server.silent():
            until(lambda: down(filer))
            started = time.monotonic()
            assert filer.create(theirs, other)[0] in (500, 503)
            assert time.monotonic() - started < IN_TIME
            started = time.monotonic()
            for _ in range(2):
                created = filer.attach(sound, other, "ro")
                assert filer.detach(created["id"])[0] == 200
            assert filer.status(theirs)
            assert time.monotonic() - started < IN_TIME
            traffic.wait_for_progress()
        until(lambda: not down(filer), seconds=90)
        traffic.wait_for_progress()
    assert session.read(0) == block("before")
    session.write(0, block("after"))
    assert not Live(theirs).gone


def down(api: Api) -> bool:
    problems = api.call("GET", "/readyz")[1]["problems"]
    return any("backend nfs is down" in each for each in problems)
