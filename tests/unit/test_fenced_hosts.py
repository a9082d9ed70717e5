# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What else is asked of a host that is fenced, and of its volumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict
from lunshare.agent.model.records import NewSnapshot, Volume
from lunshare.agent.service.attachments import connectors
from lunshare.agent.service.attachments.handover import NewHandover
from tests.stands.node import CTX, Node, attach, host_connector, initiator
from tests.unit.test_fencing import (
    ALPHA,
    BETA,
    HANGS,
    RO,
    RW,
    fence,
    node,
    of,
    unfence,
    volume,
)
from tests.unit.test_mode_change import set_metadata

__all__ = ["node", "volume"]


def test_a_fenced_host_is_detached(node: Node, volume: Volume) -> None:
    row = of(node, volume, "alpha")
    fence(node)
    node.services.attachments.delete(CTX, row.id)
    assert node.live(volume.id) == {BETA: RW}
    assert node.services.fences.show(CTX, "alpha").volumes == []
    with pytest.raises(Conflict, match="is fenced"):
        attach(node, volume, "alpha")


def test_a_detach_that_hangs_is_a_fence_that_hangs(node: Node, volume: Volume) -> None:
    row = of(node, volume, "alpha")
    with node.target().failures.fail("apply.before", HANGS):
        with pytest.raises(BackendFailed):
            node.services.attachments.delete(CTX, row.id)
        assert fence(node).status == "fence pending"
    node.assembly.reconcile.run()
    shown = node.services.fences.show(CTX, "alpha")
    assert (shown.status, shown.volumes) == ("fenced", [])


@pytest.mark.parametrize("writes_only", [True, False])
def test_the_mode_of_a_fenced_host(
    node: Node, volume: Volume, writes_only: bool
) -> None:
    row, change = of(node, volume, "alpha"), node.services.mode_changes.change
    fence(node, writes_only=writes_only)
    with pytest.raises(Conflict, match="is fenced"):
        change(CTX, row.id, RW)
    assert change(CTX, row.id, RO).pending is None
    unfence(node)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_a_fenced_host_is_not_handed_the_write_access(
    node: Node, volume: Volume
) -> None:
    alpha, beta = of(node, volume, "alpha"), of(node, volume, "beta")
    hand_over = node.services.handovers.hand_over
    fence(node)
    with pytest.raises(Conflict, match="is fenced"):
        hand_over(CTX, NewHandover(volume.id, alpha.id))
    done = hand_over(CTX, NewHandover(volume.id, beta.id))
    assert done["handover"]["from"] == [alpha.id]
    unfence(node)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_a_follower_that_is_fenced_meanwhile_ends_the_handover(
    node: Node, volume: Volume
) -> None:
    gamma = attach(node, volume, "gamma", "ro")
    with node.target().failures.fail("apply.closed", HANGS):
        pending = node.services.handovers.hand_over(
            CTX, NewHandover(volume.id, gamma.id)
        )
        assert pending["handover"]["status"] == "fence pending"
        fence(node, "gamma")
    node.assembly.reconcile.run()
    shown = node.services.handovers.show(CTX, volume.id)["handover"]
    assert (shown["status"], "is fenced" in shown["reason"]) == ("failed", True)
    assert RW not in node.live(volume.id).values()


def test_the_survivor_writes_and_the_host_comes_back_as_a_reader(
    node: Node, volume: Volume
) -> None:
    change = node.services.mode_changes.change
    change(CTX, of(node, volume, "beta").id, RO)
    set_metadata(node, volume, max_writers="1")
    with pytest.raises(Conflict, match="max_writers"):
        change(CTX, of(node, volume, "beta").id, RW)
    fence(node)
    change(CTX, of(node, volume, "beta").id, RW)
    opened = unfence(node)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    assert of(node, volume, "alpha").mode is RO
    assert opened.volumes[0].row.mode is RO


def test_a_policy_that_names_no_fenced_host_is_taken(
    node: Node, volume: Volume
) -> None:
    fence(node)
    set_metadata(node, volume, writers="beta")
    unfence(node)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_an_open_attachment_is_not_connected_again(node: Node, volume: Volume) -> None:
    row = of(node, volume, "alpha")
    fence(node)
    for host in ("alpha", "gamma"):
        sent = {**host_connector("alpha").sent, "host": host}
        with pytest.raises(Conflict, match="is fenced"):
            node.services.attachments.connect(CTX, row.id, connectors.parse(sent))
    assert node.live(volume.id) == {BETA: RW}


def test_an_attachment_gets_another_host_instead(node: Node, volume: Volume) -> None:
    row = of(node, volume, "alpha")
    fence(node)
    node.services.attachments.connect(CTX, row.id, host_connector("gamma"))
    assert node.live(volume.id) == {initiator("gamma"): RW, BETA: RW}
    assert node.services.fences.show(CTX, "alpha").volumes == []


@pytest.mark.parametrize("reserved", [True, False])
def test_the_legacy_actions_refuse_a_fenced_host(node: Node, reserved: bool) -> None:
    plain, actions = node.plain_volume(), node.services.legacy
    fence(node)
    if reserved:
        actions.reserve(CTX, plain.id)
    with pytest.raises(Conflict, match="is fenced"):
        actions.initialize(CTX, plain.id, host_connector("alpha"))
    with pytest.raises(Conflict, match="is fenced"):
        actions.attach(CTX, plain.id, "/dev/x", instance=None, host="alpha", mode=None)
    assert node.live(plain.id) == {}


def test_a_legacy_attachment_is_fenced(node: Node) -> None:
    plain, actions = node.plain_volume(), node.services.legacy
    actions.initialize(CTX, plain.id, host_connector("alpha"))
    fence(node)
    assert node.live(plain.id) == {}
    with pytest.raises(Conflict, match="is fenced"):
        actions.initialize(CTX, plain.id, host_connector("alpha"))
    for mode in (None, RO):
        with pytest.raises(Conflict, match="is fenced"):
            actions.attach(CTX, plain.id, "/x", instance=None, host=None, mode=mode)
    unfence(node)
    assert node.live(plain.id) == {ALPHA: RW}
    fence(node)
    actions.terminate(CTX, plain.id, host_connector("alpha"))
    assert node.live(plain.id) == {}


def test_a_volume_of_a_fenced_host_is_neither_reverted_nor_moved(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, backends="fake,other").start()
    plain = node.plain_volume()
    snapshot = node.services.snapshots.create(CTX, NewSnapshot(plain.id))
    attach(node, plain, "alpha")
    fence(node)
    backend = {"fake": "other", "other": "fake"}[plain.backend]
    host = node.services.node.host_of(backend)
    for refused in (
        lambda: node.services.migrator.migrate(CTX, plain.id, host),
        lambda: node.services.reverter.revert(CTX, plain.id, snapshot.id),
        lambda: node.services.volumes.delete(CTX, plain.id),
    ):
        with pytest.raises(AgentError, match=r"in-use|attach|host"):
            refused()
    unfence(node)
    live = [e for e in node.target(plain.backend).observe() if e.connectors]
    assert [e.volume_id for e in live] == [plain.id]
    node.close()


def test_the_target_of_a_fenced_host_is_as_the_database_says(
    node: Node, volume: Volume
) -> None:
    def problems() -> list[str]:
        lines = node.services.hosts.list(CTX, volume.id)
        return [line.problem for line in lines if line.initiator == ALPHA]

    with node.target().failures.fail("apply.before", HANGS):
        fence(node)
        assert problems() == ["still open (rw) in the target"]
    fence(node)
    assert problems() == [""]
