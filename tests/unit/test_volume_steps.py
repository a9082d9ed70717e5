# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the work of an operation ends where something else has, or had, the volume."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from lunshare.agent.model.errors import (
    BackendFailed,
    BackendUnavailable,
    Conflict,
    Exhausted,
)
from lunshare.agent.model.records import NewSnapshot, NewVolume, Page, Volume
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.drivers.errors import CommandFailed, DiskBusy, NoSpace
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB, Auth
from tests.stands.node import CTX, Node, attach, initiator, is_counted
from tests.stands.waiting import until

EVERY = Page(None, 100)
BROKEN = CommandFailed(("lvconvert",), 5, "because of the test")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    fake_storage.reset()
    section = "fake_deadline = 0.3"
    made = Node(tmp_path, "volume_lock_timeout = 0.1", "fake,other", section).start()
    choose_other(made, False)
    yield made
    made.close()


def choose_other(node: Node, enabled: bool) -> str:
    """Return host@backend#pool of the other backend, which may be chosen or not."""
    host = node.services.node.host_of("other")
    service = host.partition("#")[0]
    node.services.node.set_service(CTX, service, "cinder-volume", enabled, None)
    return host


def snapshot_of(node: Node, volume: Volume) -> str:
    return node.services.snapshots.create(CTX, NewSnapshot(volume.id)).id


def start_extend(node: Node, volume: Volume) -> None:
    node.services.extender.extend(CTX, volume.id, 2, in_use=True)


def start_unmanage(node: Node, volume: Volume) -> None:
    node.services.managed_disks.unmanage(CTX, volume.id)


def start_migration(node: Node, volume: Volume) -> None:
    node.services.migrator.migrate(CTX, volume.id, choose_other(node, True))


RUNNING: dict[VolumeStatus, Callable[[Node, Volume], None]] = {
    VolumeStatus.EXTENDING: start_extend,
    VolumeStatus.UNMANAGING: start_unmanage,
    VolumeStatus.MAINTENANCE: start_migration,
}


def own_status(node: Node, volume: Volume) -> VolumeStatus:
    return node.services.volumes.get(CTX, volume.id).own_status


@pytest.mark.parametrize("running", RUNNING)
def test_an_accepted_operation_on_a_busy_volume_is_not_refused(
    node: Node, running: VolumeStatus
) -> None:
    """A 409 would mean that nothing happens, but the next reconcile does it."""
    volume = node.plain_volume()
    with node.assembly.reconcile._locks.volume(volume.id, "the test"):
        RUNNING[running](node, volume)
        assert own_status(node, volume) is running
    node.assembly.reconcile.run()
    until(lambda: is_finished(node, volume))


def is_finished(node: Node, volume: Volume) -> bool:
    left = node.services.volumes.list(CTX, EVERY)
    return [v.own_status for v in left if v.id == volume.id] in ([], ["available"])


def test_an_accepted_revert_of_a_busy_volume_is_not_refused(node: Node) -> None:
    volume = node.plain_volume()
    snapshot = snapshot_of(node, volume)
    fake_storage.storage("fake").write(volume.id, 0, b"later bytes")
    with node.assembly.reconcile._locks.volume(volume.id, "the test"):
        node.services.reverter.revert(CTX, volume.id, snapshot)
        assert own_status(node, volume) is VolumeStatus.REVERTING
    node.assembly.reconcile.run()
    until(lambda: is_finished(node, volume))
    assert fake_storage.storage("fake").read(volume.id, 0, 5) == bytes(5)


def test_a_cancelled_create_does_not_say_that_it_created_the_volume(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("INFO"),
        ThreadPoolExecutor(1) as client,
        node.driver().failures.hold("create.after") as gate,
    ):
        client.submit(node.services.volumes.create, CTX, NewVolume(1))
        assert gate.reached.wait(10)
        (volume,) = node.services.volumes.list(CTX, EVERY)
        node.services.volumes.delete(CTX, volume.id, force=True)
        gate.open.set()
    node.assembly.reconcile.run()
    until(lambda: not node.services.volumes.list(CTX, EVERY))
    until(lambda: f"volume deleted: volume={volume.id}" in caplog.text)
    assert "volume created" not in caplog.text
    assert node.driver().disks() == ()
    # The reconcile may have counted the row before the job deleted it.
    node.services.node.refresh()
    assert node.services.node._provisioned.read("fake") == (0, 0)


def test_a_refused_revert_is_an_error_when_a_reconcile_ran_the_first_attempt(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reconcile starts the job right after the commit, before the request does."""
    volume = node.plain_volume()
    snapshot = snapshot_of(node, volume)
    failures, revert = node.driver().failures, node.services.reverter.revert
    database = node.assembly.database
    writing, commits = database.writing, itertools.count(1)

    @contextlib.contextmanager
    def reconcile_after_first_commit() -> Iterator[sa.Connection]:
        with writing() as connection:
            yield connection
        if next(commits) == 1:
            with failures.fail("revert.after", BROKEN):
                node.assembly.reconcile.run()
                until(lambda: own_status(node, volume) is VolumeStatus.ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(database, "writing", reconcile_after_first_commit)
        revert(CTX, volume.id, snapshot)
    busy = DiskBusy(volume.id, "because of the test")
    with failures.fail("revert.before", busy), pytest.raises(Conflict):
        revert(CTX, volume.id, snapshot)
    assert own_status(node, volume) is VolumeStatus.ERROR


@pytest.mark.parametrize("goes", ["source", "clone"])
def test_a_complete_clone_and_its_source_do_not_need_each_other(
    node: Node, goes: str
) -> None:
    """Whatever else failed: the extend of a clone is not a part of its creation."""
    source = node.plain_volume()
    new = NewVolume(None, source_volid=source.id)
    clone = node.services.volumes.create(CTX, new)
    with (
        node.driver().failures.fail("extend.before", BROKEN),
        pytest.raises(BackendFailed),
    ):
        start_extend(node, clone)
    gone, other = (source, clone) if goes == "source" else (clone, source)
    with node.assembly.reconcile._locks.volume(other.id, "the test"):
        node.services.volumes.delete(CTX, gone.id)
        until(lambda: is_deleted(node, gone))


def is_deleted(node: Node, volume: Volume) -> bool:
    return volume.id not in {v.id for v in node.services.volumes.list(CTX, EVERY)}


def test_extend_touches_no_host_whose_detach_fails(node: Node) -> None:
    """Its writes hang, and each close of its access fails at the deadline."""
    volume = node.shared_volume()
    keeps, leaves = attach(node, volume, "keeps"), attach(node, volume, "leaves")
    node.services.attachments.complete(CTX, keeps.id)
    info = leaves.connection_info
    auth = Auth(info["auth_username"], info["auth_password"])
    session = node.target().login(volume.id, initiator("leaves"), auth)
    gate = fake_storage.storage("fake").slow[volume.id] = fake_storage.Gate()
    with ThreadPoolExecutor(1) as host:
        writes = host.submit(session.write, 0, b"hangs")
        assert gate.reached.wait(10)
        try:
            with pytest.raises(BackendUnavailable):
                node.services.attachments.delete(CTX, leaves.id)
            node.services.extender.extend(CTX, volume.id, 2, in_use=True)
            attach(node, volume, "comes")
        finally:
            gate.open.set()
        assert isinstance(writes.exception(10), ConnectionError)
    found = node.services.volumes.get(CTX, volume.id)
    assert (found.own_status, found.size) == (VolumeStatus.AVAILABLE, 2)
    node.assembly.reconcile.run()
    assert set(node.live(volume.id)) == {initiator("keeps"), initiator("comes")}


def test_a_refused_extend_has_the_size_that_a_failed_one_gave_the_disk(
    node: Node,
) -> None:
    """Hosts may have seen it. A smaller size could be given away twice."""
    volume, failures = node.plain_volume(), node.driver().failures
    extend = node.services.extender.extend
    with failures.fail("extend.after", BROKEN), pytest.raises(BackendFailed):
        extend(CTX, volume.id, 3, in_use=True)
    full = NoSpace("fake", "because of the test")
    with failures.fail("extend.before", full), pytest.raises(Exhausted):
        extend(CTX, volume.id, 5, in_use=True)
    found = node.services.volumes.get(CTX, volume.id)
    assert node.driver().disk(volume.id).size == 3 * GIB
    assert (found.own_status, found.size) == (VolumeStatus.AVAILABLE, 3)
    assert is_counted(node, CTX.project_id)


def test_a_refused_unmanage_is_no_proof_that_the_disk_is_still_there(
    node: Node,
) -> None:
    """An attempt before it failed after its effect."""
    volume, failures = node.plain_volume(), node.driver().failures
    unmanage = node.services.managed_disks.unmanage
    with failures.fail("unmanage.after", BROKEN), pytest.raises(BackendFailed):
        unmanage(CTX, volume.id)
    busy = DiskBusy(volume.id, "because of the test")
    with failures.fail("unmanage.before", busy), pytest.raises(BackendFailed):
        unmanage(CTX, volume.id)
    assert own_status(node, volume) is VolumeStatus.ERROR_UNMANAGING
    unmanage(CTX, volume.id)
    assert is_deleted(node, volume)


def test_a_refused_unmanage_is_no_proof_that_the_snapshot_is_still_there(
    node: Node,
) -> None:
    volume, failures = node.plain_volume(), node.driver().failures
    snapshot = snapshot_of(node, volume)
    unmanage = node.services.managed_snapshots.unmanage
    with failures.fail("unmanage_snapshot.after", BROKEN), pytest.raises(BackendFailed):
        unmanage(CTX, snapshot)
    busy = DiskBusy(volume.id, "because of the test")
    with failures.fail("unmanage_snapshot.before", busy), pytest.raises(Conflict):
        unmanage(CTX, snapshot)
    (found,) = node.services.snapshots.list(CTX, EVERY)
    assert found.status is SnapshotStatus.UNMANAGING
    unmanage(CTX, snapshot)
    assert node.services.snapshots.list(CTX, EVERY) == []
