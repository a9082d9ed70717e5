# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill the node at every step of every operation; the next start repairs it.

A step is a commit to the database or a point in a driver (tests/restart/killing).
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from lunshare.agent.model.records import Attachment, Volume
from lunshare.agent.model.states import (
    WANTED,
    AttachStatus,
    FenceKind,
    SnapshotStatus,
    VolumeStatus,
)
from lunshare.agent.service.attachments import lease_terms, wanted_state
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.restart.killed_operations import FORMER, MANY_HOSTS, OPERATIONS
from tests.restart.killed_quotas import OTHER
from tests.restart.killed_scene import BYTES, Operation, Scene, choose_from_both
from tests.restart.killing import GUARDED, MANY, Killed, Killer, let_end
from tests.stands.node import CTX, Node, initiator, is_counted
from tests.stands.waiting import until


def _delete_failed(node: Node) -> None:
    """A creation that failed before the kill shows as error, and can be deleted.

    An offer is withdrawn.
    """
    for offer in node.services.transfers.list(CTX, MANY):
        node.services.transfers.delete(CTX, offer.id)
    for snapshot in node.services.snapshots.list(CTX, MANY):
        if snapshot.status is SnapshotStatus.ERROR:
            node.services.snapshots.delete(CTX, snapshot.id)
    for volume in node.services.volumes.list(CTX, MANY):
        if volume.own_status in (VolumeStatus.ERROR, VolumeStatus.ERROR_MANAGING):
            node.services.volumes.delete(CTX, volume.id)
    # Not let_end: it leaves jobs without a thread to the next start, and the old disk
    # of a migration is deleted in a job of its own.
    until(lambda: not node.assembly.jobs.in_progress(), "the jobs of the start")


def _assert_consistent(node: Node) -> None:
    """The live target is what the rows ask for; nothing is half-done."""
    rows = node.services.attachments.list(CTX, MANY)
    wanted = {
        (row.volume_id, c.initiator): c.mode
        for volume in {row.volume_id for row in rows}
        for c in wanted_state.list_accesses([r for r in rows if r.volume_id == volume])
        for row in [next(r for r in rows if r.volume_id == volume)]
    }
    live = {
        (e.volume_id, c.initiator): c.mode
        for e in node.target().observe()
        for c in e.connectors
    }
    assert live == wanted
    _assert_admitted(node, rows)
    pair = {initiator(FORMER), initiator("reader")}
    writers = [key for key, mode in live.items() if mode == "rw" and key[1] in pair]
    assert len(writers) <= 1
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
    _assert_foreign_bytes_remain(volumes)
    for project in (CTX.project_id, OTHER.project_id):
        assert is_counted(node, project)
    snapshots = node.services.snapshots.list(CTX, MANY)
    assert {k.status for k in snapshots} <= {SnapshotStatus.AVAILABLE}
    assert set(node.driver().snapshots()) == {k.id for k in snapshots}
    going = {AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING}
    assert not going & {row.status for row in rows}
    assert {row.former_initiator for row in rows} <= {None}
    assert not [row for row in rows if lease_terms.is_due(row)]
    assert {f.status for f in node.services.fences.list(CTX)} <= {"fenced"}
    fenced = {f.host for f in node.services.fences.list(CTX)}
    assert {row.attached_host for row in rows if row.fence} <= fenced
    failed = [row for row in rows if row.status is AttachStatus.ERROR_ATTACHING]
    assert [row for row in failed if not row.answered] == []


def _assert_all_or_none(node: Node, scene: Scene) -> None:
    """The hosts of a batch are there together."""
    live = node.live(scene.volume.id)
    assert len([name for name in MANY_HOSTS if initiator(name) in live]) in (0, 3)


def _assert_admitted(node: Node, rows: list[Attachment]) -> None:
    """The hosts that have access reach the portals, and no others."""
    for name in ("fake", "other"):
        wanted = {
            (row.connector or {})["ip"]
            for row in rows
            if row.initiator
            and row.status in WANTED
            and row.fence is not FenceKind.ALL
            and _backend(node, row) == name
        }
        assert node.target(name).storage.admitted == wanted


def _backend(node: Node, row: Attachment) -> str:
    return node.services.volumes.get(CTX, row.volume_id).backend


def _assert_foreign_bytes_remain(volumes: list[Volume]) -> None:
    """A foreign disk is a volume, or is still foreign."""
    held = fake_storage.storage("fake")
    foreign = [disk for disk in held.foreign_disks.values() if disk.blocks]
    own = [fake_storage.storage(v.backend).disks[v.id] for v in volumes]
    assert BYTES in [disk.read(0, len(BYTES)) for disk in foreign + own]
    assert held.foreign == sum(
        disk.size
        for disk in (*held.foreign_disks.values(), *held.foreign_snapshots.values())
    )
    # The same for a snapshot that was unmanaged.
    for name in held.foreign_snapshots:
        assert name.removeprefix("unmanaged-") not in held.snapshots


def _assert_written(node: Node, volume_id: str) -> None:
    """A migrated volume has all its bytes, on whichever backend it is."""
    volume = node.services.volumes.get(CTX, volume_id)
    held = fake_storage.storage(volume.backend)
    for offset in (0, GIB - 4096):
        assert held.read(volume_id, offset, len(BYTES)) == BYTES
    assert volume.multiattach == (volume.volume_type == "other")
    assert volume.stale_backend is None


def _new_node(path: Path, section: str = GUARDED) -> Node:
    # A client waits for its job, however slow a busy machine is (4.6 s were seen).
    wait = "create_wait = 60"
    return Node(path, backends="fake,other", section=section, extra=wait)


def _assert_next_start_repairs(
    path: Path, scene: Scene, section: str = GUARDED
) -> None:
    node = _new_node(path, section).start()
    assert node.outcome.failed == []
    _delete_failed(node)
    for name in ("fake", "other"):
        node.services.wiper.wipe_disks(name)
    _assert_consistent(node)
    _assert_all_or_none(node, scene)
    _assert_written(node, scene.written.id)
    node.close()


def _killed_at(
    path: Path, operation: Operation, step: int, section: str = GUARDED
) -> bool:
    """Run a node that is killed at ``step``, then another; False: no such step."""
    fake_storage.reset()
    path.mkdir()
    first = _new_node(path, section).start()
    scene = Scene(first)
    session = first.target().login(
        scene.volume.id, initiator("writer"), _auth(first, scene.writer)
    )
    killer = Killer(first, step)
    with contextlib.suppress(Killed):
        operation(first, scene)
    let_end(first)
    _assert_next_start_repairs(path, scene, section)
    session.write(0, b"the host that nothing was asked of")
    assert session.alive
    return killer.fired


#: Each with the step after its intent is committed. They work on different volumes, or
#: beside each other on one.
_BEGUN: tuple[tuple[Operation, int], ...] = (
    (OPERATIONS["other connector"], 2),
    (OPERATIONS["last detach"], 2),
    (OPERATIONS["clone"], 2),
    (OPERATIONS["extend in use"], 2),
    (OPERATIONS["unmanage"], 2),
    (
        lambda n, s: n.services.migrator.migrate(
            CTX, s.written.id, n.services.node.host_of("other")
        ),
        4,
    ),
)


def _begin_all(node: Node) -> Scene:
    scene, killer = Scene(node), Killer(node, sys.maxsize)
    choose_from_both(node, True)
    for operation, step in _BEGUN:
        killer.left = step
        with contextlib.suppress(Killed):
            operation(node, scene)
    let_end(node)
    assert {v.own_status for v in node.services.volumes.list(CTX, MANY)} == {
        VolumeStatus.AVAILABLE,
        VolumeStatus.CREATING,
        VolumeStatus.EXTENDING,
        VolumeStatus.UNMANAGING,
        VolumeStatus.MAINTENANCE,
    }
    return scene


def _killed_again_at(path: Path, step: int) -> bool:
    """Whether the start after many operations in progress was killed at ``step``."""
    fake_storage.reset()
    path.mkdir()
    scene = _begin_all(_new_node(path).start())
    second = _new_node(path)
    killer = Killer(second, step)
    with contextlib.suppress(Killed):
        second.start()
    let_end(second)
    _assert_next_start_repairs(path, scene)
    return killer.fired


def _auth(node: Node, attachment_id: str):
    row = node.services.attachments.get(CTX, attachment_id)
    return wanted_state.list_accesses([row])[0].auth


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


def test_a_killed_clone_without_a_snapshot_is_consistent(tmp_path: Path) -> None:
    section, clone = f"{GUARDED}\nfake_clones_at_once = true", OPERATIONS["clone"]
    steps = 1
    while _killed_at(tmp_path / str(steps), clone, steps, section):
        steps += 1
    assert steps > 4  # the intent, the three points of ``clone``, the status


def test_a_start_that_is_killed_is_finished_by_the_next_one(tmp_path: Path) -> None:
    step = 1
    while _killed_again_at(tmp_path / str(step), step):
        step += 5  # its jobs run beside each other, so the steps differ in each run
    assert step > 5 * len(_BEGUN)
    print(f"killed at {step // 5} steps")
