# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Failure points of the fake drivers, which restart and fault tests use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lunshare.drivers.conformance.fixtures import MIB, defaults, new_volume
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import CommandFailed, UnknownDisk
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Connector, Disk, Export, Mode, Snapshot

HOST = "iqn.1994-05.com.example:host1"


class Killed(BaseException):
    pass


@pytest.fixture
def volumes(request: pytest.FixtureRequest) -> FakeVolumes:
    return FakeVolumes(request.node.name, defaults(FakeVolumes), NoRoot())


@pytest.fixture
def target(request: pytest.FixtureRequest) -> FakeTarget:
    return FakeTarget(request.node.name, defaults(FakeTarget), NoRoot())


def export(disk: Disk, mode: Mode) -> Export:
    return Export(disk.volume_id, disk, (Connector(HOST, mode, "attachment"),))


def test_every_failure_point_is_passed(target):
    options = defaults(FakeVolumes, fake_wipe=True, fake_clones_at_once=True)
    volumes = FakeVolumes(target.name, options, NoRoot())
    passed: list[str] = []
    volumes.failures.watch(passed.append)
    target.failures.watch(passed.append)
    volume = new_volume(MIB)
    volumes.check()
    target.check()
    disk = volumes.create(volume)
    for mode in (Mode.RW, Mode.RO):
        target.apply(export(disk, mode))
    target.observe()
    target.remove(volume.id)
    target.admit("192.0.2.1", True)
    volumes.extend(volume)
    volumes.disk(volume.id)
    volumes.disks()
    volumes.capacity()
    snapshot = Snapshot(new_volume(MIB).id, volume.id, MIB)
    volumes.create_snapshot(snapshot)
    volumes.create_from(new_volume(MIB), snapshot)
    volumes.clone(new_volume(MIB), volume)
    volumes.revert(snapshot)
    volumes.unmanage_snapshot(snapshot)
    volumes.manage_snapshot(snapshot, volumes.manageable_snapshots()[0].reference)
    volumes.delete_snapshot(snapshot.id)
    volumes.fill(volume, volumes.disk(volume.id))
    volumes.unmanage(volume.id)
    volumes.manage(volume, volumes.manageable()[0].reference)
    volumes.delete(volume.id)
    volumes.wipe(volumes.wipes()[0].name, MIB)
    assert set(passed) == {*FakeVolumes.POINTS, *FakeTarget.POINTS}


def test_unknown_failure_point_is_refused(volumes):
    with (
        pytest.raises(KeyError, match=r"create\.before"),
        volumes.failures.fail("create.never", Killed()),
    ):
        pass


def test_failure_point_fails_until_its_block_ends(volumes):
    volume = new_volume(MIB)
    with volumes.failures.fail("create.half", Killed()):
        for _ in range(2):
            with pytest.raises(Killed):
                volumes.create(volume)
        with pytest.raises(UnknownDisk):
            volumes.disk(volume.id)
    assert volumes.create(volume) == volumes.disk(volume.id)


@pytest.mark.parametrize(
    ("point", "live"),
    [("apply.exported", []), ("apply.created", [Mode.RO]), ("apply.opened", [Mode.RW])],
)
def test_killed_apply_stops_at_the_failure_point(volumes, target, point, live):
    disk = volumes.create(new_volume(MIB))
    with target.failures.fail(point, Killed()), pytest.raises(Killed):
        target.apply(export(disk, Mode.RW))
    (found,) = target.observe()
    assert [connector.mode for connector in found.connectors] == live


def test_held_call_does_not_block_other_calls(volumes, target):
    first, second = (volumes.create(new_volume(MIB)) for _ in range(2))
    target.apply(export(second, Mode.RW))
    session = target.login(second.volume_id, HOST)
    with ThreadPoolExecutor(1) as pool:
        with target.failures.hold("apply.created") as gate:
            held = pool.submit(target.apply, export(first, Mode.RW))
            assert gate.reached.wait(10)
            session.write(0, b"writes ")
            assert session.read(0, 7) == b"writes "
            assert target.apply(export(second, Mode.RW)) == ()
            assert not held.done()
        assert len(held.result(10)) == 2


def test_reset_removes_all_storage(volumes):
    volumes.create(new_volume(MIB))
    second = FakeVolumes(volumes.name, volumes.options, NoRoot())
    assert len(second.disks()) == 1
    fake_storage.reset()
    assert FakeVolumes(volumes.name, volumes.options, NoRoot()).disks() == ()


def test_fill_verifies_what_it_wrote(volumes, request):
    """It fails if a write is lost, so the caller does not delete the source."""
    other = FakeVolumes(f"{request.node.name}-other", defaults(FakeVolumes), NoRoot())
    volume = new_volume(MIB)
    disk = volumes.create(volume)
    volumes.storage.write(volume.id, 0, b"some bytes")
    other.create(volume)

    def lose(point: str) -> None:
        if point == "fill.half":
            other.storage.write(volume.id, MIB - 4096, b"not the source's")

    other.failures.watch(lose)
    with pytest.raises(CommandFailed, match="bytes of the copy differ"):
        other.fill(volume, disk)
