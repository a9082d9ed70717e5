# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that change between a client's read and its turn: the present row decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import attachments
from lunshare.agent.db.schema import SNAPSHOTS
from lunshare.agent.model.errors import BackendFailed, Conflict, Invalid, NotFound
from lunshare.agent.model.records import (
    HostConnector,
    Mode,
    NewAttachment,
    NewSnapshot,
    RequestContext,
)
from lunshare.drivers.errors import TargetFailed
from tests.stands.node import (
    CTX,
    Node,
    attach,
    host_connector,
    initiator,
    node_fixture,
    rows,
)
from tests.stands.waiting import until

FAILED = TargetFailed("v", "because of the test")
FOREIGN = RequestContext("eve", "another", False, "req-eve", ("member",))


node = node_fixture(forget_storage=True)


def test_a_forced_detach_closes_the_host_that_has_it_now(node: Node):
    """The host is exchanged while the forced detach waits for the volume."""
    volume = node.plain_volume()
    row = attach(node, volume, "a")
    locks = node.services.attachments._locks
    with ThreadPoolExecutor(1) as pool:
        with locks.volume(volume.id, "the test"):
            forced = pool.submit(
                node.services.status_resetter.force_detach, CTX, volume.id, row.id
            )
            changed: Any = locks._limits[volume.id]._changed
            until(lambda: bool(changed._waiters))
            exchange(node, row.id)
            node.target().failures.watch(refuse)
        with pytest.raises(Conflict, match="still has an access"):
            forced.result(20)
    node.target().failures.watch(lambda _: None)
    (left,) = rows(node)
    assert left.initiator == initiator("b")


def refuse(point: str) -> None:
    """The target changes nothing."""
    if not point.startswith("observe"):
        raise FAILED


def exchange(node: Node, attachment_id: str) -> None:
    """Give the attachment to host b, as a connect commits and applies it."""
    access = node.services.attachments._access
    with node.assembly.database.writing() as connection:
        attachments.set_values(connection, attachment_id, initiator=initiator("b"))
        found = attachments.get(connection, attachment_id)
    assert found is not None
    volume = node.services.volumes.get(CTX, found.volume_id)
    access.apply(volume)


def test_a_foreign_project_does_not_wait_for_a_volume(node: Node):
    """The error of a volume in use names it, and the host that it is attached to."""
    volume = node.plain_volume()
    legacy, host = node.services.legacy, host_connector("e")
    locks = node.services.attachments._locks
    new = NewAttachment(volume.id, connector=host)
    asked = (
        lambda: node.services.attachments.create(FOREIGN, new),
        lambda: legacy.unreserve(FOREIGN, volume.id),
        lambda: legacy.initialize(FOREIGN, volume.id, host),
        lambda: legacy.attach(
            FOREIGN, volume.id, "/dev/vdb", instance=None, host="e", mode=None
        ),
    )
    with (
        locks.volume(volume.id, "the attach of host secret"),
        ThreadPoolExecutor(1) as pool,
    ):
        for each in asked:
            with pytest.raises(NotFound):
                pool.submit(each).result(20)


def test_terminate_of_a_replaced_host_leaves_the_other(node: Node):
    volume = node.plain_volume()
    legacy, a = node.services.legacy, host_connector("a")
    legacy.reserve(CTX, volume.id)
    row = legacy.initialize(CTX, volume.id, a)
    other: HostConnector = host_connector("b")
    node.target().failures.watch(refuse)
    with pytest.raises(BackendFailed):
        node.services.attachments.connect(CTX, row.id, other)
    node.target().failures.watch(lambda _: None)
    legacy.terminate(CTX, volume.id, a)
    (left,) = rows(node)
    assert left.initiators == (initiator("b"),)
    assert node.live(volume.id) == {}


def test_a_snapshot_that_another_project_got_meanwhile_is_not_unmanaged(node: Node):
    owner = RequestContext("anna", CTX.project_id, False, "req-anna", ("member",))
    volume = node.plain_volume()
    row = node.services.snapshots.create(owner, NewSnapshot(volume.id))
    database = node.assembly.database
    group: Any = database._group
    with ThreadPoolExecutor(1) as pool:
        with database.writing() as connection:
            asked = pool.submit(node.services.managed_snapshots.unmanage, owner, row.id)
            until(lambda: bool(group._waiting))
            moved = sa.update(SNAPSHOTS).where(SNAPSHOTS.c.id == row.id)
            connection.execute(moved.values(project_id="another"))
        with pytest.raises(NotFound):
            asked.result(20)
    assert node.driver().snapshots() == (row.id,)


def test_a_volume_is_not_made_readonly_while_a_failed_host_may_write(node: Node):
    """The volume is available again, and the access of its attach is not closed."""
    volume = node.plain_volume()
    opened: list[str] = []
    row = node.services.attachments.create(CTX, NewAttachment(volume.id))

    def open_and_fail(point: str) -> None:
        if point == "apply.opened" or opened:
            opened.append(point)
            raise FAILED

    node.target().failures.watch(open_and_fail)
    with pytest.raises(BackendFailed):
        node.services.attachments.connect(CTX, row.id, host_connector("a"))
    node.target().failures.watch(lambda _: None)
    assert node.live(volume.id) == {initiator("a"): Mode.RW}
    with pytest.raises(Invalid, match="may still be open"):
        node.services.metadata.set_readonly(CTX, volume.id, readonly=True)
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {}
    node.services.metadata.set_readonly(CTX, volume.id, readonly=True)


def test_os_attach_of_a_volume_that_is_deleted_by_force_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    """A reservation without a host does not hold the volume against the delete."""
    volume, database = node.plain_volume(), node.assembly.database
    legacy, writing, commits = node.services.legacy, database.writing, [1]

    @contextlib.contextmanager
    def delete_after_first_commit() -> Iterator[sa.Connection]:
        with writing() as connection:
            yield connection
        if commits and commits.pop():
            node.services.volumes.force_delete(CTX, volume.id)

    monkeypatch.setattr(database, "writing", delete_after_first_commit)
    with pytest.raises(Conflict, match="has just changed"):
        legacy.attach(CTX, volume.id, "/dev/vdb", instance=None, host="a", mode=None)
