# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The operations that test_kill kills at each of their steps, and what they need."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from lunshare.agent.db import attachments
from lunshare.agent.model.errors import AgentError, BackendFailed, Exhausted
from lunshare.agent.model.lease_records import NewLease
from lunshare.agent.model.records import (
    ManageRequest,
    ManageSnapshotRequest,
    Mode,
    NewAttachment,
    NewBatch,
    NewSnapshot,
    NewVolume,
)
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments.handover import NewHandover
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import CommandFailed, NoSpace, TargetFailed
from tests.restart.killed_legacy import LEGACY
from tests.restart.killed_quotas import QUOTAS
from tests.restart.killed_scene import Operation, Scene, choose_from_both
from tests.restart.killing import MANY, attach_request, let_end
from tests.stands.node import CTX, Node, host_connector
from tests.stands.waiting import until

FENCED = "fenced"
MANY_HOSTS = ("many-1", "many-2", "many-3")
FORMER = "former"  # the host of the writer that hands over


def _migrate(node: Node, scene: Scene) -> None:
    choose_from_both(node, True)
    host = node.services.node.host_of("other")
    node.services.migrator.migrate(CTX, scene.written.id, host)
    let_end(node)


def _retype(node: Node, scene: Scene) -> None:
    """It takes the type's backend, and its sharing."""
    specs = {"volume_backend_name": "other", "multiattach": "<is> True"}
    node.services.types.create(CTX, "other", extra_specs=specs)
    choose_from_both(node, True)
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


def _delete(node: Node, scene: Scene) -> None:
    node.services.volumes.delete(CTX, scene.idle.id, cascade=True)
    let_end(node)


def _delete_unplaced(node: Node, scene: Scene) -> None:
    unplaced = node.services.volumes.create(CTX, NewVolume(10**6))
    node.services.volumes.delete(CTX, unplaced.id)


def _delete_and_wipe(node: Node, scene: Scene) -> None:
    _delete(node, scene)
    node.services.wiper.wipe_disks("fake")


def _delete_snapshot(node: Node, scene: Scene) -> None:
    node.services.snapshots.delete(CTX, scene.snapshot)
    let_end(node)


def _manage(node: Node, scene: Scene) -> None:
    host = node.services.node.host_of("fake")
    node.services.managed_disks.manage(CTX, ManageRequest(host, "somebodys"))


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


def _change_of_connector_fails(node: Node, scene: Scene) -> None:
    """The old host is closed, the new one is refused."""
    error = TargetFailed(scene.volume.id, "because of the test")
    with (
        node.target().failures.fail("apply.created", error),
        contextlib.suppress(BackendFailed),
    ):
        node.services.attachments.connect(CTX, scene.reader, host_connector("fourth"))


def _force_detach(node: Node, scene: Scene) -> None:
    """A detach that fails after it has closed the access."""
    error = TargetFailed(scene.volume.id, "because of the test")
    with (
        node.target().failures.fail("apply.after", error),
        contextlib.suppress(BackendFailed),
    ):
        node.services.attachments.delete(CTX, scene.reader)
    node.services.status_resetter.force_detach(CTX, scene.volume.id, scene.reader)


def _reset(node: Node, scene: Scene) -> None:
    """The host of a volume is detached by a reset."""
    asked = Reset("available", "detached")
    node.services.status_resetter.reset(CTX, scene.lonely.id, asked)


def _snapshot_fails(node: Node, scene: Scene) -> None:
    error = CommandFailed(("lvcreate",), 5, "because of the test")
    with (
        node.driver().failures.fail("create_snapshot.after", error),
        contextlib.suppress(BackendFailed),
    ):
        new = NewSnapshot(scene.volume.id, in_use=True)
        node.services.snapshots.create(CTX, new)


def _cancel_create(node: Node, scene: Scene) -> None:
    """A clone that hangs, and is deleted by force."""
    new = NewVolume(1, source_volid=scene.idle.id)
    with (
        ThreadPoolExecutor(1) as client,
        node.driver().failures.hold("create_from.half") as gate,
    ):
        made = client.submit(node.services.volumes.create, CTX, new)
        until(lambda: gate.reached.is_set() or made.done())
        for volume in node.services.volumes.list(CTX, MANY):
            if volume.own_status is VolumeStatus.CREATING:
                node.services.volumes.delete(CTX, volume.id, force=True)
    let_end(node)
    with contextlib.suppress(AgentError):
        made.result()


def _unmanage_snapshot(node: Node, scene: Scene) -> None:
    node.services.managed_snapshots.unmanage(CTX, scene.snapshot)


def _manage_snapshot(node: Node, scene: Scene) -> None:
    _unmanage_snapshot(node, scene)
    new = ManageSnapshotRequest(scene.idle.id, f"unmanaged-{scene.snapshot}")
    node.services.managed_snapshots.manage(CTX, new)


def _snapshot_is_not_managed(node: Node, scene: Scene) -> None:
    """A manage that fails: the foreign snapshot is as it was."""
    error = CommandFailed(("lvrename",), 5, "because of the test")
    with (
        node.driver().failures.fail("manage_snapshot.after", error),
        contextlib.suppress(BackendFailed),
    ):
        _manage_snapshot(node, scene)


def _attach_many(node: Node, scene: Scene) -> list[str]:
    new = NewBatch(scene.volume.id, "killed", [*map(host_connector, MANY_HOSTS)])
    return [row.id for row in node.services.batches.attach(CTX, new)]


def _attach_of_many_fails(node: Node, scene: Scene) -> None:
    error = TargetFailed(scene.volume.id, "because of the test")
    with (
        node.target().failures.fail("apply.opened", error),
        contextlib.suppress(BackendFailed),
    ):
        _attach_many(node, scene)


def _detach_many(node: Node, scene: Scene) -> None:
    many = _attach_many(node, scene)
    node.services.batches.detach(CTX, scene.volume.id, [*many, scene.reader])


def _promotion_fails(node: Node, scene: Scene) -> None:
    failure = TargetFailed("v", "because of the test")
    failing = node.target().failures.fail("apply.opened", failure)
    with failing, contextlib.suppress(BackendFailed):
        node.services.mode_changes.change(CTX, scene.reader, Mode.RW)


def _hand_over(node: Node, scene: Scene, force: bool) -> None:
    """From another writer, so that the one with a session notices nothing."""
    take = node.services.attachments.create
    former = take(CTX, attach_request(scene.volume.id, FORMER, "rw")).id
    new = NewHandover(scene.volume.id, scene.reader, former, force)
    node.services.handovers.hand_over(CTX, new)


def _lend(node: Node, scene: Scene, then_next: bool = False) -> str:
    """Give another host write access with a lease; return its attachment."""
    policy = {"lunshare:writers": f"{FORMER}, reader, writer"}
    node.services.metadata.change(CTX, scene.volume.id, lambda _: policy)
    new = attach_request(scene.volume.id, FORMER, "ro")
    row = node.services.attachments.create(CTX, new)
    lease = NewLease(3600, then_next)
    node.services.mode_changes.change(CTX, row.id, Mode.RW, lease=lease)
    return row.id


def _renew(node: Node, scene: Scene) -> None:
    node.services.leases.renew(CTX, _lend(node, scene))


def _end_lease(node: Node, scene: Scene, then_next: bool) -> None:
    row = _lend(node, scene, then_next)
    with node.assembly.database.writing() as connection:
        attachments.set_values(connection, row, lease_ends=0.0)
    node.services.leases.end(scene.volume.id)


def _end_fails(node: Node, scene: Scene) -> None:
    error = TargetFailed(scene.volume.id, "because of the test")
    with node.target().failures.fail("apply.closed", error):
        _end_lease(node, scene, then_next=True)


def _fence(node: Node, host: str = "lonely", writes_only: bool = False) -> None:
    """Another host than the one with a session."""
    node.services.fences.fence(CTX, host, writes_only)
    let_end(node)


def _unfence(node: Node, host: str = "lonely") -> None:
    node.services.fences.fence(CTX, host)
    node.services.fences.unfence(CTX, host)
    let_end(node)


def _fence_attached(node: Node, scene: Scene) -> None:
    """Its intent is committed while the target opens the access."""
    new = attach_request(scene.volume.id, FENCED, "rw")
    with (
        ThreadPoolExecutor(2) as clients,
        node.target().failures.hold("apply.created") as gate,
    ):
        attached = clients.submit(node.services.attachments.create, CTX, new)
        until(lambda: gate.reached.is_set() or attached.done())
        fenced = clients.submit(_fence, node, FENCED)
        until(lambda: fenced.done() or node.services.fences.list(CTX))
        gate.open.set()
        for job in (attached, fenced):
            with contextlib.suppress(AgentError):
                job.result()


def _unfence_reader(node: Node, scene: Scene) -> None:
    """While it was fenced, the policy has become one that does not name it."""
    take = node.services.attachments.create
    take(CTX, attach_request(scene.volume.id, FENCED, "rw"))
    node.services.fences.fence(CTX, FENCED)
    policy = {"lunshare:writers": "writer"}
    with contextlib.suppress(AgentError):  # it is pending, for its job was killed
        node.services.metadata.change(CTX, scene.volume.id, lambda _: policy)
    node.services.fences.unfence(CTX, FENCED)
    let_end(node)


def _fence_fails(node: Node, scene: Scene) -> None:
    error = TargetFailed(scene.volume.id, "because of the test")
    with node.target().failures.fail("apply.closed", error):
        _fence(node)


OPERATIONS: dict[str, Operation] = {
    **LEGACY,
    **QUOTAS,
    "unmanage a snapshot": _unmanage_snapshot,
    "manage a snapshot": _manage_snapshot,
    "failed manage of a snapshot": _snapshot_is_not_managed,
    "reset": _reset,
    "create": lambda n, s: n.services.volumes.create(CTX, NewVolume(1, "made")),
    "create that no pool can hold": lambda n, s: n.services.volumes.create(
        CTX, NewVolume(10**6)
    ),
    "delete what no pool can hold": _delete_unplaced,
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
    "unmanage": lambda n, s: n.services.managed_disks.unmanage(CTX, s.free.id),
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
    "attach of many": _attach_many,
    "failed attach of many": _attach_of_many_fails,
    "detach of many": _detach_many,
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
    "demote": lambda n, s: n.services.mode_changes.change(CTX, s.only, Mode.RO),
    "demote at once": lambda n, s: n.services.mode_changes.change(
        CTX, s.only, Mode.RO, drain=False
    ),
    "promote": lambda n, s: n.services.mode_changes.change(CTX, s.reader, Mode.RW),
    "failed promotion": _promotion_fails,
    "handover": lambda n, s: _hand_over(n, s, force=False),
    "forced handover": lambda n, s: _hand_over(n, s, force=True),
    "lease": _lend,
    "renewal of a lease": _renew,
    "end of a lease": lambda n, s: _end_lease(n, s, then_next=False),
    "end of a lease, then the next": lambda n, s: _end_lease(n, s, then_next=True),
    "failed end of a lease": _end_fails,
    "fence": lambda n, s: _fence(n),
    "fence of writing": lambda n, s: _fence(n, writes_only=True),
    "fence of a host that is being attached": _fence_attached,
    "unfence": lambda n, s: _unfence(n),
    "unfence that ends as a reader": _unfence_reader,
    "failed fence": _fence_fails,
    "detach": lambda n, s: n.services.attachments.delete(CTX, s.reader),
    "last detach": lambda n, s: n.services.attachments.delete(CTX, s.only),
    "failed change of connector": _change_of_connector_fails,
    "forced detach": _force_detach,
    "failed snapshot": _snapshot_fails,
    "cancelled clone": _cancel_create,
}
