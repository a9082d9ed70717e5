# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a start continues with after something has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.operator_records import RecoverRequest
from lunshare.agent.model.records import NewSnapshot, NewVolume, Page
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.drivers.errors import DiskBusy, UnknownDisk, Unsupported
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.fake.fake_storage import Failures
from lunshare.drivers.values import GIB
from tests.stands.node import CTX, Node, attach, host_connector, initiator
from tests.stands.waiting import until

EVERY = Page(None, 100)
#: A client waits until its job is killed, however slow the machine is.
PATIENT = "create_wait = 60"


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Node]:
    fake_storage.reset()
    made = Node(tmp_path, extra=PATIENT).start()
    yield made
    made.close()


def killed_at(failures: Failures, point: str, operation: Callable[[], object]) -> None:
    with failures.fail(point, Killed()), pytest.raises(Killed):
        operation()


def test_a_clone_has_the_bytes_of_its_start_though_its_source_changes(
    first: Node,
) -> None:
    source = first.plain_volume()
    held = fake_storage.storage("fake")
    held.write(source.id, 0, b"then")
    new = NewVolume(None, source_volid=source.id)
    create = first.services.volumes.create
    killed_at(first.driver().failures, "create_from.before", lambda: create(CTX, new))
    second = Node(first.path)  # it has not reconciled yet
    held.write(source.id, 0, b"now!")
    second.services.extender.extend(CTX, source.id, 2, in_use=True)
    assert second.start().outcome.failed == []
    (copy,) = [v for v in second.services.volumes.list(CTX, EVERY) if v.source_volid]
    assert (copy.status, copy.size) == (VolumeStatus.AVAILABLE, 1)
    assert held.read(copy.id, 0, 4) == b"then"
    assert held.disks[copy.id].size == GIB
    assert second.driver().snapshots() == ()
    second.close()


def test_a_complete_clone_is_available_though_its_source_has_grown(
    tmp_path: Path,
) -> None:
    fake_storage.reset()
    section = "fake_clones_at_once = true"
    first = Node(tmp_path, section=section, extra=PATIENT).start()
    source, held = first.plain_volume(), fake_storage.storage("fake")
    new, create = NewVolume(None, source_volid=source.id), first.services.volumes.create
    killed_at(first.driver().failures, "clone.after", lambda: create(CTX, new))
    first.close()
    second = Node(tmp_path, section=section)  # it has not reconciled yet
    second.services.extender.extend(CTX, source.id, 2, in_use=True)
    assert second.start().outcome.failed == []
    (copy,) = [v for v in second.services.volumes.list(CTX, EVERY) if v.source_volid]
    assert (copy.status, copy.size) == (VolumeStatus.AVAILABLE, 1)
    assert held.disks[copy.id].size == GIB
    second.close()


def test_a_refused_step_is_not_proof_that_an_earlier_run_did_nothing(
    first: Node,
) -> None:
    """A revert that a killed daemon started may be incomplete."""
    volume = first.plain_volume()
    snapshot = first.services.snapshots.create(CTX, NewSnapshot(volume.id))
    revert = first.services.reverter.revert
    killed_at(
        first.driver().failures,
        "revert.after",
        lambda: revert(CTX, volume.id, snapshot.id),
    )
    second = Node(first.path)
    busy = DiskBusy(volume.id, "it is open")
    with second.driver().failures.fail("revert.before", busy):
        assert len(second.start().outcome.failed) == 1
    found = second.services.volumes.get(CTX, volume.id)
    assert found.status is VolumeStatus.ERROR
    second.services.reverter.revert(CTX, volume.id, snapshot.id)
    found = second.services.volumes.get(CTX, volume.id)
    assert found.status is VolumeStatus.AVAILABLE
    second.close()


def test_a_snapshot_without_a_row_is_reported_and_not_deleted(first: Node) -> None:
    volume = first.plain_volume()
    snapshot = first.services.snapshots.create(CTX, NewSnapshot(volume.id))
    first.assembly.reconcile.run()
    assert first.services.node.health().unknown == ()
    with first.assembly.database.writing() as connection:
        connection.exec_driver_sql("UPDATE snapshots SET deleted = 1")
    first.assembly.reconcile.run()
    assert first.services.node.health().unknown == (
        f"snapshot {snapshot.id} on backend fake has no row",
    )
    assert first.driver().snapshots() == (snapshot.id,)


def test_the_temporary_snapshot_of_a_clone_in_progress_is_not_an_orphan(
    first: Node,
) -> None:
    source = first.plain_volume()
    new = NewVolume(None, source_volid=source.id)
    create = first.services.volumes.create
    with (
        ThreadPoolExecutor(1) as client,
        first.driver().failures.hold("create_from.before") as gate,
    ):
        client.submit(create, CTX, new)
        assert gate.reached.wait(10)
        first.assembly.reconcile.run()
        assert first.services.node.health().unknown == ()
        gate.open.set()


@pytest.mark.parametrize("completed", [False, True])
def test_a_third_connector_closes_the_two_of_an_interrupted_change(
    first: Node, completed: bool
) -> None:
    """Before the first reconcile, which may be late: the row names two initiators."""
    volume = first.shared_volume()
    attach(first, volume, "other")
    row = attach(first, volume, "a")
    connect = first.services.attachments.connect
    killed_at(
        first.target().failures,
        "apply.before",
        lambda: connect(CTX, row.id, host_connector("b")),
    )
    second = Node(first.path)  # it has not reconciled yet
    if completed:
        second.services.attachments.complete(CTX, row.id)
    second.services.attachments.connect(CTX, row.id, host_connector("c"))
    assert second.live(volume.id) == {initiator("other"): "rw", initiator("c"): "rw"}
    second.close()


def test_a_start_finishes_a_detach_though_another_host_cannot_be_opened(
    first: Node,
) -> None:
    volume = first.shared_volume()
    attach(first, volume, "stays")
    row = attach(first, volume, "goes")
    detach = first.services.attachments.delete
    killed_at(first.target().failures, "apply.before", lambda: detach(CTX, row.id))
    second = Node(first.path)
    with second.driver().failures.fail("disk", UnknownDisk(volume.id)):
        assert len(second.start().outcome.failed) == 1
    assert second.live(volume.id) == {initiator("stays"): "rw"}
    with pytest.raises(NotFound):
        second.services.attachments.get(CTX, row.id)
    second.close()


def test_a_volume_is_deleted_with_a_snapshot_that_its_driver_could_not_create(
    first: Node,
) -> None:
    """A driver without snapshots cannot delete one either."""
    volume = first.plain_volume()
    create = first.services.snapshots.create
    failures = first.driver().failures
    new = NewSnapshot(volume.id)
    killed_at(failures, "create_snapshot.before", lambda: create(CTX, new))
    second = Node(first.path)
    fail, unable = second.driver().failures.fail, Unsupported("a snapshot", "none")
    with fail("create_snapshot.before", unable), fail("delete_snapshot.before", unable):
        second.start()
        (row,) = second.services.snapshots.list(CTX, EVERY)
        assert row.status is SnapshotStatus.ERROR
        second.services.volumes.delete(CTX, volume.id, cascade=True)
        until(lambda: not second.services.volumes.list(CTX, EVERY))
    second.close()


def test_a_migration_whose_source_is_gone_keeps_the_copy(tmp_path: Path) -> None:
    """A database that was saved during the migration, and restored after it.

    The row says that the bytes are still on the old backend, whose disk was deleted.
    The copy was deleted as what the failed migration had left: no disk was left at all.
    """
    fake_storage.reset()
    first = Node(tmp_path, backends="one,two", extra=PATIENT).start()
    volume = first.plain_volume()
    old, new = ("one", "two") if volume.backend == "one" else ("two", "one")
    fake_storage.storage(old).write(volume.id, 0, b"bytes")
    host = first.services.node.host_of(new)
    migrate = first.services.migrator.migrate
    failures = first.driver(new).failures
    killed_at(failures, "fill.after", lambda: migrate(CTX, volume.id, host))
    first.close()
    del fake_storage.storage(old).disks[volume.id]
    second = Node(tmp_path, backends="one,two").start()
    until(lambda: not second.assembly.jobs.in_progress())
    assert fake_storage.storage(new).read(volume.id, 0, 5) == b"bytes"
    found = second.services.volumes.get(CTX, volume.id)
    assert (found.status, found.backend) == (VolumeStatus.AVAILABLE, old)
    # The way out: the row is deleted, and the disk gets another one.
    second.assembly.reconcile.run()
    assert any(volume.id in each for each in second.services.node.health().unknown)
    second.services.volumes.delete(CTX, volume.id)
    until(lambda: not second.services.volumes.list(CTX, EVERY))
    second.services.orphans.recover(CTX, RecoverRequest(volume.id))
    assert fake_storage.storage(new).read(volume.id, 0, 5) == b"bytes"
    second.close()
