# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kit on a real NFS server, and failures of servers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.conformance.volume import VolumeContract
from lunshare.drivers.errors import DeadlineExceeded, DiskBusy, Misconfigured, NoSpace
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.values import Snapshot, Volume
from tests.conformance.nfs_kit import share_options
from tests.stands.waiting import until
from tests.system.daemons import HELPER_SOCKET
from tests.system.lio_node import run
from tests.system.nfs_fixtures import NfsFixtures, helper, root, server
from tests.system.nfs_server import BASE, NfsServer

__all__ = ["helper", "root", "server"]
pytestmark = pytest.mark.system

SIZE = 4 * MIB
Build = Callable[..., NfsVolumes]


class TestSparse(NfsFixtures, VolumeContract):
    pass


class TestPreallocated(NfsFixtures, VolumeContract):
    options = {"nfs_sparsed_volumes": False}


@pytest.fixture
def build(root: Root, server: NfsServer) -> Build:
    def created(root: Root = root, **given: Any) -> NfsVolumes:
        options = share_options(server.share, str(BASE), **given)
        driver = NfsVolumes("test", options, root)
        driver.check()
        return driver

    return created


def snapshot_of(volume: Volume) -> Snapshot:
    return Snapshot(str(uuid.uuid4()), volume.id, volume.size)


def test_installed_helper_mounts_in_the_nodes_own_namespace(build: Build) -> None:
    """Through its unit's sandbox: this process sees its mounts."""
    driver = build()
    point = driver.options["nfs_mount_point_base"]
    [path] = Path(point).iterdir()
    run("umount", str(path))
    assert not os.path.ismount(path)
    installed, volume = Helper(HELPER_SOCKET), new_volume(SIZE)
    installed_driver = build(root=installed, nfs_sparsed_volumes=False)
    assert os.path.ismount(path)
    disk = installed_driver.create(volume)
    assert Path(disk.path).stat().st_blocks * 512 == SIZE
    installed_driver.delete(volume.id)
    installed.close()
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    [line] = [line for line in lines if str(path) in line]
    always = {"nosuid", "nodev", "noexec", "nosymfollow"}
    assert always <= set(line.split()[5].split(","))


def test_no_program_follows_a_link_in_place_of_a_volume(
    build: Build, server: NfsServer, tmp_path: Path
) -> None:
    """Not only the helper: under Cinder qemu-img and chown run as root on the path."""
    driver, volume, secret = build(), new_volume(SIZE), tmp_path / "secret"
    path = driver.create(volume).path
    assert Path(path).read_bytes() == bytes(SIZE)
    secret.write_bytes(b"of root")
    file = server.path / Path(path).name
    file.unlink()
    file.symlink_to(secret)
    until(lambda: os.path.islink(path))
    for command in (["cat", path], ["chown", "root", path], ["qemu-img", "info", path]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Too many levels of symbolic links" in done.stderr
    file.unlink()


def test_snapshot_is_a_clone_that_uses_no_space(
    build: Build, server: NfsServer
) -> None:
    driver, volume = build(), new_volume(64 * MIB)
    Path(driver.create(volume).path).write_bytes(os.urandom(64 * MIB))
    os.sync()
    before, snapshot = driver.capacity().free, snapshot_of(volume)
    driver.create_snapshot(snapshot)
    assert before - driver.capacity().free < MIB
    driver.delete_snapshot(snapshot.id)
    driver.delete(volume.id)
    server.wait_for_free_space()


def test_server_copies_when_clones_are_off(build: Build) -> None:
    """NFS 4.2 COPY: the bytes do not pass through this node."""
    driver, volume = build(nfs_clone=False), new_volume(SIZE)
    data = os.urandom(SIZE)
    Path(driver.create(volume).path).write_bytes(data)
    snapshot = snapshot_of(volume)
    driver.create_snapshot(snapshot)
    path = Path(driver.disk(volume.id).path).with_name(snapshot.name)
    assert path.read_bytes() == data
    driver.delete_snapshot(snapshot.id)
    driver.delete(volume.id)


def test_server_with_nfs_41_gets_zeros_and_copies(
    build: Build, server: NfsServer, root: Root
) -> None:
    """No ALLOCATE and no CLONE: zeros allocate the space, snapshots are copies."""
    point = server.share.point(str(BASE))
    with contextlib.suppress(AssertionError):
        run("umount", point)
    old = build(nas_mount_options="vers=4.1", nfs_sparsed_volumes=False)
    volume = new_volume(SIZE)
    disk = old.create(volume)
    assert Path(disk.path).read_bytes() == bytes(SIZE)
    assert (server.path / volume.name).stat().st_blocks * 512 >= SIZE
    Path(disk.path).write_bytes(b"4.1".ljust(SIZE, b"."))
    grown = {"name": volume.name, "size": 2 * SIZE, "preallocate": True}
    with pytest.raises(DeadlineExceeded):
        root.call("share.extend", timeout=0, point=point, **grown)
    until(lambda: old.disk(volume.id) == disk)
    snapshot = snapshot_of(volume)
    old.create_snapshot(snapshot)
    old.revert(snapshot)
    assert Path(disk.path).read_bytes() == b"4.1".ljust(SIZE, b".")
    old.delete_snapshot(snapshot.id)
    old.delete(volume.id)
    run("umount", point)


def test_dead_server_is_reported_in_time_and_recovers(
    build: Build, server: NfsServer
) -> None:
    driver, volume = build(nfs_timeout=2.0), new_volume(SIZE)
    path = Path(driver.create(volume).path)
    path.write_bytes(b"before".ljust(SIZE, b"."))
    os.sync()
    with server.silent():
        started = time.monotonic()
        with pytest.raises(Misconfigured, match="did not answer within 2 seconds"):
            driver.check()
        with pytest.raises(DeadlineExceeded):
            driver.create(new_volume(SIZE))
        with pytest.raises(DeadlineExceeded):
            driver.capacity()
        assert time.monotonic() - started < 30
    until(lambda: works(driver), seconds=90)
    assert path.read_bytes() == b"before".ljust(SIZE, b".")
    patient = build(nfs_timeout=60.0)  # locks are answered after the grace time
    for disk in patient.disks():
        patient.delete(disk.volume_id)


def works(driver: NfsVolumes) -> bool:
    try:
        driver.check()
    except (Misconfigured, DeadlineExceeded):
        return False
    return True


def test_read_only_export_is_reported(build: Build, server: NfsServer) -> None:
    driver = build()
    with server.exported("ro", "no_root_squash"):
        with pytest.raises(Misconfigured, match="is read-only") as raised:
            driver.check()
        assert "read-write" in raised.value.remedy
    driver.check()


def test_root_squash_is_reported_only_where_it_prevents_writes(
    build: Build, server: NfsServer
) -> None:
    driver = build()
    with server.exported("rw", "root_squash"):
        with pytest.raises(Misconfigured, match="is denied") as raised:
            driver.check()
        assert "no_root_squash" in raised.value.remedy
        server.path.chmod(0o777)
        driver.check()
        volume = new_volume(SIZE)
        driver.create(volume)
        assert driver.extend(Volume(volume.id, 2 * SIZE)).size == 2 * SIZE
        driver.delete(volume.id)
        server.path.chmod(0o755)
    driver.check()


def test_full_server_closes_the_pool_and_leaves_nothing(
    build: Build, server: NfsServer
) -> None:
    driver = build(nfs_sparsed_volumes=False)
    with server.full():
        driver.check()
        assert "nearly full" in driver.capacity().closed
        with pytest.raises(NoSpace):
            driver.create(new_volume(SIZE))
    assert list(server.path.iterdir()) == []


def test_stale_share_is_mounted_again(build: Build, server: NfsServer) -> None:
    driver, volume = build(), new_volume(SIZE)
    driver.create(volume)
    with server.another():
        with pytest.raises(Misconfigured, match="is stale"):
            driver.create(new_volume(SIZE))
        driver.check()
        assert [disk.volume_id for disk in driver.disks()] == [volume.id]
    with pytest.raises(Misconfigured, match="is stale"):
        driver.disks()
    driver.check()
    assert [disk.volume_id for disk in driver.disks()] == [volume.id]
    driver.delete(volume.id)


def test_disk_that_qemu_has_open_is_not_changed(build: Build) -> None:
    """Its lock is on the server, so every node sees it."""
    driver, volume = build(), new_volume(SIZE)
    line = ["qemu-io", "-f", "raw", driver.create(volume).path]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe) as qemu:
        assert qemu.stdout
        assert qemu.stdout.read(len("qemu-io>")) == b"qemu-io>"
        for call in (driver.delete, driver.unmanage):
            with pytest.raises(DiskBusy, match="QEMU"):
                call(volume.id)
        qemu.terminate()
    driver.delete(volume.id)
