# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Write access with a lease: renewed, ended by the clock, handed to the next writer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from lunshare.agent import boot_clock
from lunshare.agent.db import attachments
from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict, Invalid
from lunshare.agent.model.lease_records import LeaseState, NewLease
from lunshare.agent.model.records import Attachment, Mode, NewAttachment, Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments import lease_terms
from lunshare.agent.service.attachments.handover import NewHandover
from lunshare.agent.service.jobs.job_runner import THREADS, JobPool
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.targets.fake import FakeTarget
from tests.stands.node import CTX, Node, attach, host_connector, initiator, node_fixture
from tests.stands.waiting import until
from tests.unit.test_mode_change import set_metadata

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA, GAMMA = (initiator(name) for name in ("alpha", "beta", "gamma"))
HANGS = DeadlineExceeded("a write in progress", 1.0)
LONG = NewLease(3600)

node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    """A volume with a list of writers."""
    made: Volume = node.shared_volume()
    set_metadata(node, made, writers="beta, alpha, gamma", max_writers="1")
    return made


@pytest.fixture
def alpha(node: Node, volume: Volume) -> Attachment:
    """A host that writes with a lease."""
    row: Attachment = attach(node, volume, "alpha", "ro")
    return give(node, row, LONG)


def give(node: Node, row: Attachment, lease: NewLease) -> Attachment:
    return node.services.mode_changes.change(CTX, row.id, RW, lease=lease).row


def stored(node: Node, row: Attachment) -> Attachment:
    return node.services.attachments.get(CTX, row.id)


def state(node: Node, row: Attachment) -> LeaseState:
    shown = lease_terms.state(stored(node, row))
    assert shown is not None
    return shown


def write(node: Node, row: Attachment, **values: object) -> None:
    with node.assembly.database.writing() as connection:
        attachments.set_values(connection, row.id, **values)


def let_end(node: Node, row: Attachment) -> None:
    """Let the time of its lease be over, as if it had begun earlier."""
    write(node, row, lease_ends=boot_clock.seconds())


def end(node: Node) -> None:
    """Do what the timer does, and wait for its jobs."""
    node.services.leases.end_due()
    until(lambda: not node.assembly.jobs.in_progress(), "the end of the leases")


def handover(node: Node, volume: Volume):
    return node.services.handovers.show(CTX, volume.id)["handover"]


def test_a_lease_counts_from_the_moment_it_is_given(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    shown = state(node, alpha)
    assert (shown.ttl, shown.then, shown.status) == (3600, None, "running")
    assert 3590 < shown.seconds_left <= 3600
    assert node.live(volume.id) == {ALPHA: RW}
    end(node)
    assert node.live(volume.id) == {ALPHA: RW}


def test_the_holder_is_fenced_at_the_end(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    generation = node.services.handovers.show(CTX, volume.id)["fencing_generation"]
    let_end(node, alpha)
    assert state(node, alpha).status == "fence pending", "the target still lets it"
    end(node)
    assert node.live(volume.id) == {ALPHA: RO}
    row, shown = stored(node, alpha), state(node, alpha)
    assert (row.mode, row.former_initiator) == (RO, None)
    assert (shown.status, shown.seconds_left) == ("ended", 0)
    assert shown.ended_at
    grown = node.services.handovers.show(CTX, volume.id)["fencing_generation"]
    assert grown == generation + 1


def test_a_renewal_lets_it_last_from_now(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    write(node, alpha, lease_ends=boot_clock.seconds() + 60)
    node.services.leases.renew(CTX, alpha.id)
    assert state(node, alpha).seconds_left > 3590
    node.services.leases.renew(CTX, alpha.id, 100)
    shown = state(node, alpha)
    assert (shown.ttl, shown.seconds_left <= 100) == (100, True)


def test_a_real_second_is_a_second(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    """By the timer of the daemon; nothing calls what ends it."""
    node.assembly.timers["leases"].start()
    give(node, alpha, NewLease(1))
    given = boot_clock.seconds()
    until(lambda: node.live(volume.id) == {ALPHA: RO}, "the end of the lease")
    assert 0.9 < boot_clock.seconds() - given < 2


def test_what_is_over_is_not_renewed(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    """Whether or not the timer has seen it, and not even by a new lease."""
    let_end(node, alpha)
    for again in (
        lambda: node.services.leases.renew(CTX, alpha.id),
        lambda: give(node, alpha, LONG),
        lambda: node.services.mode_changes.change(CTX, alpha.id, RW),
    ):
        with pytest.raises(Conflict, match="has a lease that has ended"):
            again()
    end(node)
    assert node.live(volume.id) == {ALPHA: RO}
    with pytest.raises(Conflict, match="has a lease that has ended"):
        node.services.leases.renew(CTX, alpha.id)
    give(node, alpha, LONG)
    assert node.live(volume.id) == {ALPHA: RW}
    assert state(node, alpha).status == "running"


def test_a_renewal_and_the_end_have_one_winner(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    """Each time, what the renewal was told is what the host may."""
    for _ in range(20):
        give(node, alpha, LONG)
        write(node, alpha, lease_ends=boot_clock.seconds() + 0.003)
        barrier = Barrier(2)

        def renew(barrier: Barrier = barrier) -> bool:
            barrier.wait()
            try:
                node.services.leases.renew(CTX, alpha.id)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(1) as pool:
            renewed = pool.submit(renew)
            barrier.wait()
            end(node)
            won = renewed.result()
        end(node)
        assert node.live(volume.id) == {ALPHA: RW if won else RO}


def test_two_renewals_at_once(node: Node, alpha: Attachment) -> None:
    barrier = Barrier(2)

    def renew(_: int) -> None:
        barrier.wait()
        node.services.leases.renew(CTX, alpha.id)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(renew, range(2)))
    assert state(node, alpha).seconds_left > 3590


def test_a_write_that_hangs_is_pending_and_never_ended(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    let_end(node, alpha)
    with node.target().failures.fail("apply.closed", HANGS):
        end(node)
    assert state(node, alpha).status == "fence pending"
    assert attach(node, volume, "beta").mode is RO, "alpha's write may still land"
    node.assembly.reconcile.run()
    assert state(node, alpha).status == "ended"


@pytest.mark.parametrize(
    ("holder", "others", "follower"),
    [
        ("alpha", ("beta", "gamma"), "gamma"),
        ("gamma", ("alpha", "beta"), "beta"),
        ("beta", ("gamma",), "gamma"),
    ],
)
def test_the_next_of_the_list_is_promoted(
    node: Node, volume: Volume, holder: str, others: tuple[str, ...], follower: str
) -> None:
    """The list is beta, alpha, gamma; the last is followed by the first."""
    set_metadata(node, volume, writers="beta, alpha, gamma, delta", max_writers="1")
    rows = {name: attach(node, volume, name, "ro") for name in (*others, holder, "x")}
    give(node, rows[holder], NewLease(3600, then_next=True))
    let_end(node, rows[holder])
    end(node)
    live = node.live(volume.id)
    assert {name for name, mode in live.items() if mode == RW} == {initiator(follower)}
    done = handover(node, volume)
    assert (done["status"], done["to"]) == ("done", rows[follower].id)
    assert done["from"] == [rows[holder].id]
    assert stored(node, rows[follower]).lease is None


def test_nobody_is_promoted_while_a_write_hangs(node: Node, volume: Volume) -> None:
    row, beta = (attach(node, volume, name, "ro") for name in ("alpha", "beta"))
    give(node, row, NewLease(3600, then_next=True))
    let_end(node, row)
    with node.target().failures.fail("apply.closed", HANGS):
        end(node)
    pending = handover(node, volume)
    assert (pending["status"], pending["to"]) == ("fence pending", beta.id)
    assert "a write in progress" in pending["reason"]
    assert state(node, row).status == "fence pending"
    assert node.live(volume.id)[BETA] == RO
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_nobody_follows_where_nobody_may(node: Node, volume: Volume) -> None:
    row = attach(node, volume, "alpha", "ro")
    attach(node, volume, "other", "ro")
    beta = attach(node, volume, "beta", "ro")
    node.services.fences.fence(CTX, "beta")
    give(node, row, NewLease(3600, then_next=True))
    let_end(node, row)
    end(node)
    assert RW not in node.live(volume.id).values()
    assert handover(node, volume) is None
    assert stored(node, beta).mode is RO


def test_who_follows_waits_for_an_operation_of_the_volume(
    node: Node, volume: Volume
) -> None:
    row, beta = (attach(node, volume, name, "ro") for name in ("alpha", "beta"))
    node.services.attachments.complete(CTX, beta.id)
    give(node, row, NewLease(3600, then_next=True))
    reset = node.services.status_resetter.reset
    reset(CTX, volume.id, Reset(status=VolumeStatus.ERROR))
    let_end(node, row)
    end(node)
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
    assert handover(node, volume)["status"] == "promoting"
    reset(CTX, volume.id, Reset(status=VolumeStatus.IN_USE))
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}


def test_a_host_of_two_attachments_loses_both(node: Node) -> None:
    """It has one ACL: it would write by the other one."""
    made = node.shared_volume()
    row, other = (attach(node, made, "alpha") for _ in range(2))
    give(node, row, LONG)
    let_end(node, row)
    end(node)
    assert node.live(made.id) == {ALPHA: RO}
    assert {stored(node, each).mode for each in (row, other)} == {RO}


@pytest.mark.parametrize("way", ["mode", "handover", "detach"])
def test_a_host_that_gives_it_up_has_no_lease(
    node: Node, volume: Volume, alpha: Attachment, way: str
) -> None:
    beta = attach(node, volume, "beta", "ro")
    if way == "mode":
        node.services.mode_changes.change(CTX, alpha.id, RO)
    elif way == "handover":
        node.services.handovers.hand_over(CTX, NewHandover(volume.id, beta.id))
    else:
        node.services.attachments.delete(CTX, alpha.id)
    with pytest.raises(AgentError, match=r"has ended|could not be found"):
        node.services.leases.renew(CTX, alpha.id)
    end(node)
    assert node.live(volume.id)[BETA] == (RW if way == "handover" else RO)


def test_a_detach_that_hangs_is_not_renewed(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    attach(node, volume, "gamma", "ro")
    failing = node.target().failures.fail("apply.closed", HANGS)
    with failing, pytest.raises(BackendFailed):
        node.services.attachments.delete(CTX, alpha.id)
    with pytest.raises(Conflict, match="is error_detaching"):
        node.services.leases.renew(CTX, alpha.id)
    let_end(node, alpha)
    with node.target().failures.fail("apply.before", HANGS):
        end(node)
    assert attach(node, volume, "beta").mode is RO, "alpha's write may still land"
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {BETA: RO, GAMMA: RO}


def test_the_lease_of_a_fenced_host(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    """It ends while the host is fenced, so an unfence does not let it write."""
    node.services.fences.fence(CTX, "alpha")
    with pytest.raises(Conflict, match="is fenced"):
        node.services.leases.renew(CTX, alpha.id)
    let_end(node, alpha)
    end(node)
    node.services.fences.unfence(CTX, "alpha")
    assert node.live(volume.id) == {ALPHA: RO}


def test_a_connector_that_is_being_replaced_is_no_longer_lease(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    """Killed while it was replaced, the row names two initiators; both are closed."""
    set_metadata(node, volume, writers="beta, alpha")
    beta = attach(node, volume, "beta", "ro")
    give(node, alpha, NewLease(3600, then_next=True))
    write(node, alpha, initiator=GAMMA, former_initiator=ALPHA)
    let_end(node, alpha)
    end(node)
    assert node.live(volume.id) == {GAMMA: RO, BETA: RO}
    assert stored(node, alpha).former_initiator is None
    assert stored(node, beta).mode is RO


def test_another_connector_keeps_the_lease(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    node.services.attachments.connect(CTX, alpha.id, host_connector("gamma"))
    assert state(node, alpha).status == "running"
    let_end(node, alpha)
    end(node)
    assert node.live(volume.id) == {GAMMA: RO}


def test_an_attach_that_failed_is_not_repeated_as_a_writer(
    node: Node, volume: Volume, alpha: Attachment
) -> None:
    failure = TargetFailed("v", "because of the test")
    failing = node.target().failures.fail("apply.opened", failure)
    with failing, pytest.raises(BackendFailed):
        node.services.attachments.connect(CTX, alpha.id, host_connector("gamma"))
    let_end(node, alpha)
    end(node)
    node.services.attachments.connect(CTX, alpha.id, host_connector("gamma"))
    assert node.live(volume.id) == {GAMMA: RO}


def test_a_promotion_that_fails_leaves_no_lease(node: Node, volume: Volume) -> None:
    row = attach(node, volume, "alpha", "ro")
    failure = TargetFailed("v", "because of the test")
    failing = node.target().failures.fail("apply.opened", failure)
    with failing, pytest.raises(BackendFailed):
        give(node, row, LONG)
    node.assembly.reconcile.run()
    with pytest.raises(Conflict, match="has ended"):
        node.services.leases.renew(CTX, row.id)


def test_the_mode_rw_without_a_lease_changes_none(
    node: Node, alpha: Attachment
) -> None:
    node.services.mode_changes.change(CTX, alpha.id, RW)
    assert state(node, alpha).status == "running"


def test_what_has_no_lease(
    node: Node, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = attach(node, volume, "alpha", "ro")
    reserved = node.services.attachments.create(CTX, NewAttachment(volume.id))
    change = node.services.mode_changes.change
    with pytest.raises(Invalid, match=r"attachment\.lease: only the mode rw"):
        change(CTX, row.id, RO, lease=LONG)
    with pytest.raises(Conflict, match="is reserved"):
        give(node, reserved, LONG)
    for each in (row, reserved):
        with pytest.raises(Conflict, match="has no lease"):
            node.services.leases.renew(CTX, each.id)
    set_metadata(node, volume)
    with pytest.raises(Conflict, match=r"lease\.then: .* has no lunshare:writers"):
        give(node, row, NewLease(60, then_next=True))
    for lacking in ("enforces_read_only", "fences"):
        abilities = replace(FakeTarget.ABILITIES, **{lacking: False})
        monkeypatch.setattr(FakeTarget, "abilities", abilities)
        with pytest.raises(Conflict, match="does not e"):
            give(node, row, LONG)
    monkeypatch.undo()
    assert node.live(volume.id) == {ALPHA: RO}
    assert (stored(node, row).mode, stored(node, row).lease) == (RO, None)


def test_while_a_handover_is_pending_no_other_one_begins(
    node: Node, volume: Volume
) -> None:
    set_metadata(node, volume, writers="alpha, beta, gamma, delta")
    names = ("alpha", "beta", "gamma", "delta")
    first, second, third, fourth = (attach(node, volume, n, "ro") for n in names)
    node.services.mode_changes.change(CTX, fourth.id, RW)
    give(node, first, NewLease(60, then_next=True))
    with node.target().failures.fail("apply.closed", HANGS):
        new = NewHandover(volume.id, third.id, fourth.id)
        node.services.handovers.hand_over(CTX, new)
        node.services.leases.renew(CTX, first.id)
        let_end(node, first)
        end(node)
    assert handover(node, volume)["to"] == third.id
    node.assembly.reconcile.run()
    assert node.live(volume.id)[GAMMA] == RW
    assert node.live(volume.id)[ALPHA] == RO
    assert stored(node, second).mode is RO


def test_the_volume_of_a_hung_host_keeps_no_other_lease_running(node: Node) -> None:
    volumes = [node.shared_volume() for _ in range(2)]
    rows = [attach(node, each, "alpha") for each in volumes]
    for row in rows:
        give(node, row, LONG)
        let_end(node, row)
    with node.target().failures.hold("apply.closed") as gate:
        node.services.leases.end_due()
        until(gate.reached.is_set, "the first end")
        until(
            lambda: RO in [node.live(each.id)[ALPHA] for each in volumes], "the other"
        )
        gate.open.set()
    end(node)
    assert [node.live(each.id) for each in volumes] == [{ALPHA: RO}] * 2


def test_many_holders_of_a_hung_volume_keep_no_other_lease_running(node: Node) -> None:
    """Each of them had a job of its own, which waited for the lock of the volume.

    So they had every thread that ends leases, and fences hosts.
    """
    hung, other = node.shared_volume(), node.shared_volume()
    names = [f"holder{number}" for number in range(2 * THREADS[JobPool.ACCESS])]
    rows = [attach(node, hung, name) for name in names]
    rows.append(attach(node, other, "alpha"))
    for row in rows:
        give(node, row, LONG)
        let_end(node, row)
    with node.target().failures.hold("apply.closed") as gate:
        node.services.leases.end_due()
        until(gate.reached.is_set, "the first end")
        until(lambda: node.live(other.id)[ALPHA] is RO, "the other", seconds=2)
        gate.open.set()
    end(node)
    assert {*node.live(hung.id).values()} == {RO}
