# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host is fenced: all its access, or its writing, to every volume of the node."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from lunshare.agent.model.errors import AgentError, Conflict, Invalid, NotFound
from lunshare.agent.model.records import Attachment, Mode, NewAttachment, Volume
from lunshare.agent.service.attachments import connectors
from lunshare.agent.service.jobs import job_runner
from lunshare.agent.service.jobs.job_runner import THREADS, JobPool
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.fake.fake_storage import Gate
from lunshare.drivers.values import Auth
from tests.stands.node import (
    CTX,
    Node,
    attach,
    host_connector,
    initiator,
    is_counted,
    node_fixture,
)
from tests.stands.waiting import until
from tests.unit.test_mode_change import set_metadata

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA = initiator("alpha"), initiator("beta")
HANGS = DeadlineExceeded("a write in progress", 1.0)

node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    """A volume that alpha and beta write."""
    made: Volume = node.shared_volume()
    for host in ("alpha", "beta"):
        attach(node, made, host)
    return made


def fence(node: Node, host: str = "alpha", writes_only: bool = False):
    return node.services.fences.fence(CTX, host, writes_only)


def unfence(node: Node, host: str = "alpha"):
    return node.services.fences.unfence(CTX, host)


def of(node: Node, volume: Volume, host: str) -> Attachment:
    rows = {
        row.attached_host: row
        for row in node.services.volumes.get(CTX, volume.id).attachments
    }
    return node.services.attachments.get(CTX, rows[host].id)


def test_a_fenced_host_has_no_access_to_any_volume(node: Node, volume: Volume) -> None:
    other = node.plain_volume()
    attach(node, other, "alpha")
    session = node.target().login(volume.id, BETA, auth(of(node, volume, "beta")))
    shown = fence(node)
    assert node.live(volume.id) == {BETA: RW}
    assert node.live(other.id) == {}
    assert (shown.host, shown.status, shown.names) == ("alpha", "fenced", [ALPHA])
    proof = {each.row.volume_id: each for each in shown.volumes}
    assert set(proof) == {volume.id, other.id}
    assert {each.generation for each in shown.volumes} == {1}
    assert all(each.row.fenced_at for each in shown.volumes)
    assert node.services.fences.show(CTX, "alpha") == shown
    assert node.services.fences.list(CTX) == [shown]
    session.write(0, b"nobody else notices it")
    opened = unfence(node)
    assert (opened.status, opened.fence) == ("unfenced", None)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}
    assert node.live(other.id) == {ALPHA: RW}
    assert node.services.fences.list(CTX) == []
    assert fence(node).volumes[0].generation == 2
    assert is_counted(node, CTX.project_id)


def auth(row: Attachment):
    return Auth(str(row.auth_username), str(row.auth_password))


def test_a_host_can_lose_its_writing_only(node: Node, volume: Volume) -> None:
    shown = fence(node, writes_only=True)
    assert (shown.fence, shown.status) == ("writes", "fenced")
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    fence(node)
    assert node.live(volume.id) == {BETA: RW}
    assert fence(node, writes_only=True).fence == "all", "a fence is not weakened"
    assert node.live(volume.id) == {BETA: RW}
    unfence(node)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}
    assert of(node, volume, "alpha").mode is RW


@pytest.mark.parametrize("name", [ALPHA, ALPHA.upper()])
def test_a_host_is_named_by_its_initiator(
    node: Node, volume: Volume, name: str
) -> None:
    assert fence(node, name).host == ALPHA
    assert node.live(volume.id) == {BETA: RW}
    with pytest.raises(Conflict, match="is fenced"):
        attach(node, node.shared_volume(), "alpha")
    unfence(node, name)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}


def test_another_name_of_the_same_initiator_is_fenced_too(
    node: Node, volume: Volume
) -> None:
    """The kernel knows initiators only."""
    other = node.plain_volume()
    named = {**host_connector("alpha").sent, "host": "alpha.example"}
    new = NewAttachment(other.id, connector=connectors.parse(named))
    node.services.attachments.create(CTX, new)
    fence(node)
    assert node.live(other.id) == {}
    third = NewAttachment(node.plain_volume().id, connector=connectors.parse(named))
    with pytest.raises(Conflict, match=r"alpha\.example.* is fenced"):
        node.services.attachments.create(CTX, third)


def test_a_host_that_is_named_like_an_initiator_is_found_in_any_case(
    node: Node,
) -> None:
    other, name = node.plain_volume(), "IQN.1994-05.com.example:Name-Of-Alpha"
    named = {**host_connector("alpha").sent, "host": name}
    new = NewAttachment(other.id, connector=connectors.parse(named))
    node.services.attachments.create(CTX, new)
    assert len(fence(node, name).volumes) == 1
    assert node.live(other.id) == {}


def test_a_fence_of_an_initiator_takes_no_other_whoever_says_so(
    node: Node, volume: Volume
) -> None:
    """A member can name his host as the initiator of one host, and be another."""
    lie = {**host_connector("beta").sent, "host": ALPHA}
    new = NewAttachment(node.shared_volume().id, connector=connectors.parse(lie))
    node.services.attachments.create(CTX, new)
    assert fence(node, ALPHA).names == []
    assert node.live(volume.id) == {BETA: RW}


def test_a_host_that_os_attach_names_otherwise_is_fenced_by_both_names(
    node: Node,
) -> None:
    """A member chooses this name; the connector still has that of the host."""
    actions = node.services.legacy
    for name in ("alpha", "web-server"):
        other = node.plain_volume()
        actions.initialize(CTX, other.id, host_connector("alpha"))
        actions.attach(CTX, other.id, "/x", instance=None, host="web-server", mode=None)
        shown = fence(node, name)
        assert [access.row.volume_id for access in shown.volumes] == [other.id]
        assert node.live(other.id) == {}
        unfence(node, name)
        actions.terminate(CTX, other.id, host_connector("alpha"))
        actions.detach(CTX, other.id, None)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\x00"])
def test_a_host_gets_no_name_that_cannot_be_fenced(node: Node, name: str) -> None:
    plain = node.plain_volume()
    with pytest.raises(Invalid, match="host_name must be"):
        node.services.legacy.attach(
            CTX, plain.id, "/x", instance=None, host=name, mode=None
        )


def test_an_unknown_host_cannot_attach_later(node: Node, volume: Volume) -> None:
    shown = fence(node, "gamma")
    assert (shown.status, shown.volumes) == ("fenced", [])
    with pytest.raises(Conflict) as refusal:
        attach(node, volume, "gamma", "ro")
    assert refusal.value.message == (
        "connector: host gamma is fenced (since"
        f" {shown.since.isoformat()}), and gets no access; an administrator can"
        " unfence gamma"
    )
    assert node.live(volume.id).keys() == {ALPHA, BETA}
    assert unfence(node, "gamma").status == "unfenced"
    attach(node, volume, "gamma", "ro")


def test_fenced_twice_and_unfenced_twice(node: Node, volume: Volume) -> None:
    first = fence(node)
    again = fence(node)
    assert (again.status, again.since) == ("fenced", first.since)
    assert [each.generation for each in again.volumes] == [1]
    for _ in range(2):
        assert unfence(node).status == "unfenced"
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}
    with pytest.raises(NotFound, match="alpha"):
        node.services.fences.show(CTX, "alpha")


def test_storage_that_hangs_is_pending_and_never_fenced(
    node: Node, volume: Volume
) -> None:
    set_metadata(node, volume, max_writers="2")
    with node.target().failures.fail("apply.before", HANGS):
        shown = fence(node)
        assert shown.status == "fence pending"
        assert "a write in progress" in shown.volumes[0].reason
        assert fence(node).status == "fence pending", "repeated"
        assert node.services.fences.show(CTX, "alpha").status == "fence pending"
        node.assembly.reconcile.run()
        assert node.services.fences.show(CTX, "alpha").status == "fence pending"
    assert attach(node, volume, "gamma").mode is RO, "its write may still land"
    node.assembly.reconcile.run()
    assert node.services.fences.show(CTX, "alpha").status == "fenced"
    assert attach(node, volume, "delta").mode is RW


def test_a_write_in_progress_has_landed_before_its_host_is_fenced(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, section="fake_deadline = 0.3").start()
    shared = node.shared_volume()
    set_metadata(node, shared, max_writers="1")
    row, beta = attach(node, shared, "alpha"), attach(node, shared, "beta")
    session = node.target().login(shared.id, ALPHA, auth(row))
    lands = Gate()
    node.target().storage.slow[shared.id] = lands
    acl = node.target().storage.exports[shared.id][ALPHA]
    with ThreadPoolExecutor(1) as writer, contextlib.ExitStack() as opened:
        opened.callback(lands.open.set)
        written = writer.submit(session.write, 0, b"frozen")
        until(lambda: acl.writes_in_progress, "it began")
        for _ in range(2):
            shown = fence(node)
            assert "did not finish" in str(shown.volumes[0].reason)
            with pytest.raises(Conflict, match="max_writers"):
                node.services.mode_changes.change(CTX, beta.id, RW)
        lands.open.set()
        with contextlib.suppress(ConnectionError):
            written.result()
    assert fence(node).status == "fenced"
    node.services.mode_changes.change(CTX, beta.id, RW)
    assert node.live(shared.id) == {BETA: RW}
    with pytest.raises(ConnectionError):
        session.write(0, b"thawed")
    node.close()


def test_the_state_survives_a_restart(node: Node, volume: Volume) -> None:
    with node.target().failures.fail("apply.before", HANGS):
        fence(node)
    assert node.live(volume.id)[ALPHA] == RW
    again = Node(node.path).start()
    assert again.live(volume.id) == {BETA: RW}
    assert again.services.fences.show(CTX, "alpha").status == "fenced"
    assert again.services.fences.show(CTX, "alpha").volumes[0].generation == 1
    again.close()


def test_one_volume_that_hangs_does_not_delay_the_others(
    node: Node, volume: Volume
) -> None:
    others = [node.plain_volume() for _ in range(3)]
    for each in others:
        attach(node, each, "alpha")
    with node.assembly.locks.volume(volume.id, "something that hangs"):
        shown = node.services.fences.fence(CTX, "alpha", seconds=2.0)
        assert [node.live(each.id) for each in others] == [{}, {}, {}]
        pending = {v.row.volume_id for v in shown.volumes if v.reason}
        assert (shown.status, pending) == ("fence pending", {volume.id})
    show = node.services.fences.show
    until(lambda: show(CTX, "alpha").status == "fenced", "the rest")
    assert node.live(volume.id) == {BETA: RW}


def test_a_fence_waits_for_no_disk_that_is_being_created(
    node: Node, volume: Volume
) -> None:
    """Their threads are others; eight creates that hang delayed it for ever."""
    count = job_runner.THREADS[job_runner.JobPool.DISKS]
    with (
        ThreadPoolExecutor(count) as clients,
        node.driver().failures.hold("create.before") as gate,
    ):
        for _ in range(count):
            clients.submit(node.plain_volume)
        until(gate.reached.is_set)
        until(lambda: node.assembly.jobs.in_progress()["fake", True] == count)
        assert fence(node).status == "fenced"


def test_an_attach_that_was_first_is_closed_again(node: Node, volume: Volume) -> None:
    other = node.shared_volume()
    with (
        ThreadPoolExecutor(2) as clients,
        node.target().failures.hold("apply.created") as gate,
    ):
        attached = clients.submit(attach, node, other, "alpha")
        until(gate.reached.is_set)
        fenced = clients.submit(fence, node)
        until(lambda: bool(node.services.fences.list(CTX)), "its intent")
        gate.open.set()
        attached.result()
        assert fenced.result().status == "fenced"
    assert node.live(other.id) == {}
    assert {v.row.volume_id for v in fenced.result().volumes} == {volume.id, other.id}


def test_a_target_that_ends_no_access_is_pending(tmp_path: Path) -> None:
    share = Node(tmp_path, section="fake_enforces = false").start()
    shared = share.shared_volume()
    attach(share, shared, "alpha")
    for writes_only in (True, False):
        shown = fence(share, writes_only=writes_only)
        assert shown.status == "fence pending"
        assert "does not end a host's access" in shown.volumes[0].reason
    assert share.start().outcome.failed == []
    assert share.services.fences.show(CTX, "alpha").status == "fence pending"
    share.close()


def test_portals_are_closed_to_a_fenced_host(tmp_path: Path) -> None:
    guarded = Node(tmp_path, section="fake_firewall = true").start()
    shared = guarded.shared_volume()
    row, reader = attach(guarded, shared, "alpha"), attach(guarded, shared, "beta")
    address = (row.connector or {})["ip"]
    fence(guarded)
    assert guarded.target().storage.admitted == {(reader.connector or {})["ip"]}
    unfence(guarded)
    assert address in (guarded.target().storage.admitted or ())
    guarded.close()


def test_two_fences_of_one_host_are_two(node: Node, volume: Volume) -> None:
    fence(node, "alpha")
    fence(node, ALPHA, writes_only=True)
    unfence(node, "alpha")
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    assert node.services.fences.show(CTX, ALPHA).status == "fenced"
    unfence(node, ALPHA)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}


def test_an_unfence_that_fails_is_repeated(node: Node, volume: Volume) -> None:
    fence(node)
    with node.target().failures.fail("apply.created", TargetFailed("v", "a test")):
        opened = unfence(node)
    assert (opened.status, "a test" in opened.volumes[0].reason) == ("pending", True)
    assert node.live(volume.id)[ALPHA] == RO
    assert unfence(node).status == "unfenced"
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}


def test_an_unfence_that_fails_is_finished_by_a_reconcile(
    node: Node, volume: Volume
) -> None:
    fence(node)
    with node.target().failures.fail("apply.created", TargetFailed("v", "a test")):
        assert unfence(node).status == "pending"
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}


def test_many_fences_and_unfences_at_once_end_as_the_rows_say(
    node: Node, volume: Volume
) -> None:
    barrier = Barrier(6)

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(4):
            with contextlib.suppress(AgentError):
                fence(node, ("alpha", ALPHA, "beta")[number % 3], number > 2)
            with contextlib.suppress(AgentError):
                unfence(node, ("alpha", ALPHA, "beta")[number % 3])

    with ThreadPoolExecutor(6) as clients:
        list(clients.map(work, range(6)))
    assert node.services.fences.list(CTX) == []
    until(lambda: not node.assembly.jobs.in_progress(), "all jobs")
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RW, BETA: RW}
    assert {of(node, volume, host).fence for host in ("alpha", "beta")} == {None}


def test_many_fences_that_one_volume_holds_up_delay_no_other_host(node: Node) -> None:
    """Each had a thread of its own, which waited for the lock of the same volume."""
    hung, other = node.shared_volume(), node.shared_volume()
    names = [f"lost{number}" for number in range(2 * THREADS[JobPool.ACCESS])]
    for name in names:
        attach(node, hung, name)
    attach(node, other, "alpha")
    with node.target().failures.hold("apply.closed") as gate:
        for name in names:
            node.services.fences.fence(CTX, name, seconds=0)
        until(gate.reached.is_set, "the first fence")
        node.services.fences.fence(CTX, "alpha", seconds=0)
        until(lambda: ALPHA not in node.live(other.id), "the other", seconds=2)
        gate.open.set()
    until(lambda: not node.assembly.jobs.in_progress(), "the fences")
    assert node.live(hung.id) == {}
    for name in (*names, "alpha"):
        assert node.services.fences.show(CTX, name).status == "fenced"
