# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Write access is handed to another host: never two writers, and a proof of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict, NotFound
from lunshare.agent.model.records import Attachment, Mode, NewAttachment, Page, Volume
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.attachments.handover import NewHandover
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.targets.fake import FakeTarget
from tests.stands.node import CTX, Node, attach, failing_once, initiator, node_fixture

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA = initiator("alpha"), initiator("beta")
MANY = Page(None, 100)
HANGS = DeadlineExceeded("a write in progress", 1.0)

node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    made: Volume = node.shared_volume()
    return made


@pytest.fixture
def alpha(node: Node, volume: Volume) -> Attachment:
    row: Attachment = attach(node, volume, "alpha")
    return row


@pytest.fixture
def beta(node: Node, volume: Volume) -> Attachment:
    row: Attachment = attach(node, volume, "beta", "ro")
    return row


def hand_over(
    node: Node, to: Attachment, source: str | None = None, force: bool = False
):
    new = NewHandover(to.volume_id, to.id, source, force)
    return node.services.handovers.hand_over(CTX, new)


def status(node: Node, volume: Volume) -> str:
    shown = node.services.handovers.show(CTX, volume.id)["handover"]
    return str(shown["status"])


def test_the_writer_is_demoted_and_the_other_one_promoted(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    before = node.services.handovers.show(CTX, volume.id)
    assert (before["fencing_generation"], before["handover"]) == (0, None)
    shown = hand_over(node, beta)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    done = shown["handover"]
    assert (done["status"], done["from"], done["to"]) == ("done", [alpha.id], beta.id)
    assert done["fencing_generation"] == shown["fencing_generation"] == 1
    assert done["started_at"] <= done["fenced_at"] <= done["promoted_at"]
    back = hand_over(node, alpha, beta.id)
    assert back["fencing_generation"] == 2
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}


def test_every_writer_leaves_where_none_is_named(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    gamma = attach(node, volume, "gamma")
    hand_over(node, beta)
    assert node.live(volume.id) == {ALPHA: RO, gamma.initiator: RO, BETA: RW}
    assert node.services.handovers.show(CTX, volume.id)["fencing_generation"] == 2


def test_force_removes_the_access_of_a_dead_host(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    assert hand_over(node, beta, alpha.id, force=True)["handover"]["status"] == "done"
    assert node.live(volume.id) == {BETA: RW}
    with pytest.raises(NotFound):
        node.services.attachments.get(CTX, alpha.id)


@pytest.mark.parametrize("force", [False, True])
def test_nobody_is_promoted_while_a_write_hangs(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment, force: bool
) -> None:
    gamma = attach(node, volume, "gamma", "ro")
    with node.target().failures.fail("apply.closed", HANGS):
        pending = hand_over(node, beta, alpha.id, force)["handover"]
    assert (pending["status"], pending["promoted_at"]) == ("fence pending", None)
    assert "a write in progress" in pending["reason"]
    assert node.live(volume.id)[BETA] == RO
    for to, source in ((gamma, None), (gamma, alpha.id)):
        with pytest.raises(Conflict, match="has a handover that is pending"):
            hand_over(node, to, source)
    if not force:
        with pytest.raises(Conflict, match="has a handover that is pending"):
            node.services.mode_changes.change(CTX, alpha.id, RW)
    node.assembly.reconcile.run()
    assert status(node, volume) == "done"
    assert node.live(volume.id)[BETA] == RW


def test_a_writer_that_hangs_keeps_no_other_one_writing(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    gamma = attach(node, volume, "gamma")
    with failing_once(node.target().failures, "apply.before"):
        assert hand_over(node, beta)["handover"]["status"] == "fence pending"
    assert list(node.live(volume.id).values()).count(RW) == 1
    rows = {row.id: row.is_fencing for row in node.services.attachments.list(CTX, MANY)}
    assert sorted((rows[alpha.id], rows[gamma.id])) == [False, True]
    assert hand_over(node, beta)["handover"]["status"] == "done"


def test_the_same_request_goes_on(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta, alpha.id)
    assert hand_over(node, beta, alpha.id)["handover"]["status"] == "done"


def test_a_follower_that_is_refused_leaves_no_writer(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    error = TargetFailed("v", "because of the test")
    failing = node.target().failures.fail("apply.opened", error)
    with failing, pytest.raises(BackendFailed):
        hand_over(node, beta)
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
    assert status(node, volume) == "failed"
    assert hand_over(node, beta, None)["handover"]["status"] == "done"


def test_a_follower_that_is_detached_meanwhile_ends_it(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta)
    node.services.attachments.delete(CTX, beta.id)
    node.assembly.reconcile.run()
    assert status(node, volume) == "failed"
    assert node.live(volume.id) == {ALPHA: RO}


def test_two_at_once_have_one_winner(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    gamma = attach(node, volume, "gamma", "ro")
    barrier = Barrier(2)

    def race(to: Attachment) -> str:
        barrier.wait()
        try:
            return str(hand_over(node, to, alpha.id)["handover"]["to"])
        except Conflict as error:
            return error.message

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(race, (beta, gamma)))
    (winner,) = [r for r in results if r in (beta.id, gamma.id)]
    assert [r for r in results if "does not have volume" in r]
    assert list(node.live(volume.id).values()).count(RW) == 1
    assert node.services.attachments.get(CTX, winner).mode is RW


def test_the_policy_counts_those_who_leave_only_until_they_have_left(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    policy = {"lunshare:writers": "alpha, beta", "lunshare:max_writers": "1"}
    node.services.metadata.change(CTX, volume.id, lambda _: policy)
    hand_over(node, beta)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    gamma = attach(node, volume, "gamma", "ro")
    with pytest.raises(Conflict, match="does not name gamma"):
        hand_over(node, gamma)
    assert node.live(volume.id)[BETA] == RW, "nothing was begun"


def test_what_makes_no_sense_begins_nothing(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    reserved = node.services.attachments.create(CTX, NewAttachment(volume.id))
    other = attach(node, node.shared_volume(), "alpha", "ro")
    for to, source, why in (
        (alpha, alpha.id, "name another attachment"),
        (alpha, None, "does not have volume"),
        (alpha, beta.id, "does not have volume"),
        (reserved, None, "is reserved"),
        (beta, other.id, "could not be found"),
    ):
        with pytest.raises(AgentError, match=why):
            hand_over(node, to, source)
    new = NewHandover(volume.id, other.id)
    with pytest.raises(NotFound):
        node.services.handovers.hand_over(CTX, new)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}
    assert node.services.handovers.show(CTX, volume.id)["fencing_generation"] == 0


def test_the_generation_counts_each_loss_of_write_access(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    def generation() -> int:
        return int(node.services.handovers.show(CTX, volume.id)["fencing_generation"])

    node.services.attachments.delete(CTX, beta.id)
    assert generation() == 0, "a reader"
    node.services.mode_changes.change(CTX, alpha.id, RO)
    assert generation() == 1
    node.services.mode_changes.change(CTX, alpha.id, RW)
    node.services.attachments.delete(CTX, alpha.id)
    assert generation() == 2


def test_while_it_is_pending_nobody_else_may_write(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    """Not even who follows, by another request: a write may still land."""
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta, alpha.id)
    with pytest.raises(Conflict, match="has a handover that is pending"):
        node.services.mode_changes.change(CTX, beta.id, RW)
    with pytest.raises(Conflict, match="has a handover that is pending"):
        attach(node, volume, "gamma", "rw")
    attach(node, volume, "gamma", "ro")
    assert RW not in (node.live(volume.id)[BETA], node.live(volume.id).get("gamma"))
    node.assembly.reconcile.run()
    node.services.mode_changes.change(CTX, alpha.id, RW)


def test_only_the_same_request_goes_on(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    """All writers are more than the one that leaves; and removed is more than ro."""
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta, alpha.id)
    for source, force in ((None, False), (alpha.id, True)):
        with pytest.raises(Conflict, match="has a handover that is pending"):
            hand_over(node, beta, source, force)


def test_it_ends_with_the_attachment_of_who_follows(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    """Also where no reconcile looks at the volume, which has no host any more."""
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta)
    for row in (beta, alpha):
        node.services.attachments.delete(CTX, row.id)
    ended = node.services.handovers.show(CTX, volume.id)["handover"]
    assert ended["status"] == "failed"
    assert beta.id in ended["reason"]
    attach(node, volume, "gamma", "rw")


def test_a_target_that_ends_no_session_hands_nothing_over(
    node: Node,
    volume: Volume,
    alpha: Attachment,
    beta: Attachment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    abilities = replace(FakeTarget.ABILITIES, fences=False)
    monkeypatch.setattr(FakeTarget, "abilities", abilities)
    for force in (False, True):
        with pytest.raises(Conflict, match="does not end a host's access"):
            hand_over(node, beta, alpha.id, force)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}


def test_a_host_with_two_attachments_leaves_with_both(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    """It has one ACL: it writes as long as one of them says rw."""
    other = attach(node, volume, "alpha")
    for force in (False, True):
        with pytest.raises(Conflict, match=other.id):
            hand_over(node, beta, alpha.id, force)
    done = hand_over(node, beta)["handover"]
    assert (done["status"], set(done["from"])) == ("done", {alpha.id, other.id})
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_a_detach_that_has_failed_is_finished(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    failures = node.target().failures
    with failures.fail("apply.closed", HANGS), pytest.raises(BackendFailed):
        node.services.attachments.delete(CTX, alpha.id)
    row = node.services.attachments.get(CTX, alpha.id)
    assert row.status is AttachStatus.ERROR_DETACHING
    assert hand_over(node, beta)["handover"]["status"] == "done"
    assert node.live(volume.id) == {BETA: RW}


def test_who_follows_waits_for_a_volume_in_an_error(
    node: Node, volume: Volume, alpha: Attachment, beta: Attachment
) -> None:
    with node.target().failures.fail("apply.closed", HANGS):
        hand_over(node, beta)
    node.services.attachments.complete(CTX, beta.id)
    reset = node.services.status_resetter.reset
    reset(CTX, volume.id, Reset(status=VolumeStatus.ERROR))
    node.assembly.reconcile.run()
    waits = node.services.handovers.show(CTX, volume.id)["handover"]
    assert waits["status"] == "promoting"
    assert "must be available" in waits["reason"]
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
    reset(CTX, volume.id, Reset(status=VolumeStatus.IN_USE))
    node.assembly.reconcile.run()
    assert status(node, volume) == "done"
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
