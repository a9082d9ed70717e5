# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill the node at every step of every operation; the next life sets it right.

A step is a commit to the database or a point in a driver (tests/restart/killing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lunshare.agent.errors import BackendFailed, Exhausted
from lunshare.agent.records import (
    ManageRequest,
    Mode,
    NewAttachment,
    NewSnapshot,
    NewVolume,
    Volume,
)
from lunshare.agent.service.attachments import wanted_state
from lunshare.agent.states import AttachStatus, SnapshotStatus, VolumeStatus
from lunshare.drivers import fake_storage
from lunshare.drivers.errors import NoSpace, TargetFailed
from lunshare.drivers.values import GIB
from tests.node import CTX, Node, host_connector, initiator
from tests.restart.killing import (
    MANY,
    WIPES,
    Killed,
    Killer,
    attach_request,
    let_end,
)

BYTES = b"what the copies are to have"


class Scene:
    """A volume with two attached hosts, and one more for the operation."""

    def __init__(self, node: Node) -> None:
        _choose_from_both(node, False)
        self.volume = node.shared_volume()
        take = node.services.attachments.create
        self.writer = take(CTX, attach_request(self.volume.id, "writer", "rw")).id
        self.reader = take(CTX, attach_request(self.volume.id, "reader", "ro")).id
        for attachment in (self.writer, self.reader):
            node.services.attachments.complete(CTX, attachment)
        self.reserved = take(CTX, NewAttachment(self.volume.id, mode=Mode.RW)).id
        self.lonely = node.plain_volume()
        self.only = take(CTX, attach_request(self.lonely.id, "lonely", "rw")).id
        self.idle = node.plain_volume()
        fake_storage.storage("fake").write(self.idle.id, 0, BYTES)
        self.free = node.plain_volume()
        self.written = node.plain_volume()
        held = fake_storage.storage("fake")
        for offset in (0, GIB - 4096):
            held.write(self.written.id, offset, BYTES)
        held.foreign_disks["somebodys"] = fake_storage.FakeDisk(GIB // 2)
        held.foreign = GIB // 2
        held.foreign_disks["somebodys"].write(0, BYTES)
        self.snapshot = node.services.snapshots.create(
            CTX, NewSnapshot(self.idle.id)
        ).id


def _migrate(node: Node, scene: Scene) -> None:
    _choose_from_both(node, True)
    host = node.services.node.host_of("other")
    node.services.migrator.migrate(CTX, scene.written.id, host)
    let_end(node)


def _retype(node: Node, scene: Scene) -> None:
    """It takes the type's backend, and its sharing."""
    specs = {"volume_backend_name": "other", "multiattach": "<is> True"}
    node.services.types.create(CTX, "other", extra_specs=specs)
    _choose_from_both(node, True)
    node.services.migrator.retype(CTX, scene.written.id, "other", True)
    let_end(node)


def _fails_to_move(node: Node, scene: Scene) -> None:
    error = NoSpace("other", "because of the test")
    with (
        node.driver("other").failures.fail("fill.half", error),
        contextlib.suppress(Exhausted),
    ):
        _migrate(node, scene)
    let_end(node)


def _choose_from_both(node: Node, both: bool) -> None:
    host = node.services.node.host_of("other").partition("#")[0]
    node.services.node.set_service(CTX, host, "cinder-volume", both, None)


Operation = Callable[[Node, Scene], object]


def _delete(node: Node, scene: Scene) -> None:
    node.services.volumes.delete(CTX, scene.idle.id, cascade=True)
    let_end(node)


def _delete_and_wipe(node: Node, scene: Scene) -> None:
    _delete(node, scene)
    node.services.wiper.wipe_disks("fake")


def _delete_snapshot(node: Node, scene: Scene) -> None:
    node.services.snapshots.delete(CTX, scene.snapshot)
    let_end(node)


def _manage(node: Node, scene: Scene) -> None:
    host = node.services.node.host_of("fake")
    node.services.foreign_disks.manage(CTX, ManageRequest(host, "somebodys"))


def _gives_back(node: Node, scene: Scene) -> None:
    """A disk that is managed, and cannot be extended to full GiB."""
    error = NoSpace("fake", "because of the test")
    with (
        node.driver().failures.fail("extend.before", error),
        contextlib.suppress(Exhausted),
    ):
        _manage(node, scene)


def _fails_halfway(node: Node, scene: Scene) -> None:
    """A clone whose undoing is killed as well."""
    error = NoSpace("fake", "because of the test")
    with (
        node.driver().failures.fail("create_from.half", error),
        contextlib.suppress(Exhausted),
    ):
        node.services.volumes.create(CTX, NewVolume(1, source_volid=scene.idle.id))


def _attach_fails(node: Node, scene: Scene) -> None:
    """An attach that the target refuses: no client learns the attachment's id."""
    error = TargetFailed(scene.volume.id, "because of the test")
    with (
        node.target().failures.fail("apply.opened", error),
        contextlib.suppress(BackendFailed),
    ):
        node.services.attachments.create(
            CTX, attach_request(scene.volume.id, "third", "rw")
        )


OPERATIONS: dict[str, Operation] = {
    "create": lambda n, s: n.services.volumes.create(CTX, NewVolume(1, "made")),
    "delete": _delete,
    "snapshot": lambda n, s: n.services.snapshots.create(
        CTX, NewSnapshot(s.volume.id, in_use=True)
    ),
    "delete a snapshot": _delete_snapshot,
    "from a snapshot": lambda n, s: n.services.volumes.create(
        CTX, NewVolume(2, snapshot_id=s.snapshot)
    ),
    "clone": lambda n, s: n.services.volumes.create(
        CTX, NewVolume(2, source_volid=s.idle.id)
    ),
    "failed clone": _fails_halfway,
    "extend": lambda n, s: n.services.extender.extend(CTX, s.idle.id, 2, True),
    "extend in use": lambda n, s: n.services.extender.extend(CTX, s.volume.id, 2, True),
    "revert": lambda n, s: n.services.reverter.revert(CTX, s.idle.id, s.snapshot),
    "delete and wipe": _delete_and_wipe,
    "manage": _manage,
    "manage and give back": _gives_back,
    "unmanage": lambda n, s: n.services.foreign_disks.unmanage(CTX, s.free.id),
    "migrate": _migrate,
    "failed migration": _fails_to_move,
    "retype": _retype,
    "reserve": lambda n, s: n.services.attachments.create(
        CTX, NewAttachment(s.volume.id)
    ),
    "attach": lambda n, s: n.services.attachments.create(
        CTX, attach_request(s.volume.id, "third", "ro")
    ),
    "failed attach": _attach_fails,
    "first attach": lambda n, s: n.services.attachments.create(
        CTX, attach_request(s.idle.id, "first", "rw")
    ),
    "connect": lambda n, s: n.services.attachments.connect(
        CTX, s.reserved, host_connector("third")
    ),
    "other connector": lambda n, s: n.services.attachments.connect(
        CTX, s.reader, host_connector("fourth")
    ),
    "complete": lambda n, s: n.services.attachments.complete(CTX, s.only),
    "detach": lambda n, s: n.services.attachments.delete(CTX, s.reader),
    "last detach": lambda n, s: n.services.attachments.delete(CTX, s.only),
}


def _delete_failed(node: Node) -> None:
    """A creation that failed before the kill shows as error, and can be deleted."""
    for volume in node.services.volumes.list(CTX, MANY):
        if volume.own_status in (VolumeStatus.ERROR, VolumeStatus.ERROR_MANAGING):
            node.services.volumes.delete(CTX, volume.id)
    let_end(node)


def _assert_right(node: Node) -> None:
    """The live target is what the rows ask for; nothing is half-done."""
    rows = node.services.attachments.list(CTX, MANY)
    wanted = {
        (row.volume_id, c.initiator): c.mode
        for volume in {row.volume_id for row in rows}
        for c in wanted_state.connectors([r for r in rows if r.volume_id == volume])
        for row in [next(r for r in rows if r.volume_id == volume)]
    }
    live = {
        (e.volume_id, c.initiator): c.mode
        for e in node.target().observe()
        for c in e.connectors
    }
    assert live == wanted
    volumes = node.services.volumes.list(CTX, MANY)
    there = {
        (name, disk.volume_id): disk.size
        for name in ("fake", "other")
        for disk in node.driver(name).disks()
    }
    assert there == {(v.backend, v.id): v.size * GIB for v in volumes}
    assert {v.own_status for v in volumes} <= {VolumeStatus.AVAILABLE}
    assert {v.intent for v in volumes} == {None}
    for volume in volumes:
        if volume.source_volid or volume.snapshot_id:
            assert fake_storage.storage("fake").read(volume.id, 0, len(BYTES)) == BYTES
    assert node.driver().wipes() == ()
    _assert_nobodys_bytes_are_lost(volumes)
    snapshots = node.services.snapshots.list(CTX, MANY)
    assert {k.status for k in snapshots} <= {SnapshotStatus.AVAILABLE}
    assert set(node.driver().snapshots()) == {k.id for k in snapshots}
    going = {AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING}
    assert not going & {row.status for row in rows}
    failed = [row for row in rows if row.status is AttachStatus.ERROR_ATTACHING]
    assert [row for row in failed if not row.answered] == []


def _assert_nobodys_bytes_are_lost(volumes: list[Volume]) -> None:
    """A foreign disk is a volume, or is still foreign."""
    held = fake_storage.storage("fake")
    foreign = [disk for disk in held.foreign_disks.values() if disk.blocks]
    own = [fake_storage.storage(v.backend).disks[v.id] for v in volumes]
    assert BYTES in [disk.read(0, len(BYTES)) for disk in foreign + own]
    assert held.foreign == sum(disk.size for disk in held.foreign_disks.values())


def _assert_written(node: Node, volume_id: str) -> None:
    """The volume that moves has all its bytes, wherever it is by now."""
    volume = node.services.volumes.get(CTX, volume_id)
    held = fake_storage.storage(volume.backend)
    for offset in (0, GIB - 4096):
        assert held.read(volume_id, offset, len(BYTES)) == BYTES
    assert volume.multiattach == (volume.volume_type == "other")
    assert volume.leaving is None


def _killed_at(path: Path, operation: Operation, step: int) -> bool:
    """Run one life that dies at ``step``, then another; False: it was not reached."""
    fake_storage.reset()
    path.mkdir()
    first = Node(path, backends="fake,other", section=WIPES).start()
    scene = Scene(first)
    session = first.target().login(
        scene.volume.id, initiator("writer"), _auth(first, scene.writer)
    )
    killer = Killer(first, step)
    with contextlib.suppress(Killed):
        operation(first, scene)
    let_end(first)
    second = Node(path, backends="fake,other", section=WIPES).start()
    assert second.outcome.failed == []
    _delete_failed(second)
    for name in ("fake", "other"):
        second.services.wiper.wipe_disks(name)
    _assert_right(second)
    _assert_written(second, scene.written.id)
    session.write(0, b"the host that nothing was asked of")
    assert session.alive
    second.close()
    return killer.fired


def _auth(node: Node, attachment_id: str):
    row = node.services.attachments.get(CTX, attachment_id)
    return wanted_state.connectors([row])[0].auth


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_node_killed_at_any_step_is_consistent_after_its_next_start(
    name: str, tmp_path: Path
) -> None:
    steps = 1
    while _killed_at(tmp_path / str(steps), OPERATIONS[name], steps):
        steps += 1
    # A commit at least; what touches storage has more steps than that.
    assert steps > 1
    print(f"{name}: killed at each of {steps - 1} steps")
