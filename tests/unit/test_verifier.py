# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Targets are compared with rows: drift is found, counted and put right, or left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lunshare.agent.db import volumes
from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.operator_records import Verdict, Verification
from lunshare.agent.model.records import Mode, Volume
from lunshare.drivers.drifts import DriftKind
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.fake.fake_storage import FakeAcl
from lunshare.drivers.values import Auth
from tests.stands.node import CTX, Node, attach, initiator, node_fixture
from tests.stands.waiting import until

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA, EVE = map(initiator, ("alpha", "beta", "eve"))
HANGS = DeadlineExceeded("a write in progress", 1.0)

node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    """A volume that alpha writes and beta reads."""
    made: Volume = node.shared_volume()
    attach(node, made, "alpha", "rw")
    attach(node, made, "beta", "ro")
    node.assembly.reconcile.run()
    return made


@pytest.fixture
def reporting(tmp_path: Path) -> Iterator[Node]:
    """A node that only reports."""
    made = Node(tmp_path, extra="drift = report").start()
    yield made
    made.close()


def verify(
    node: Node, volume: Volume | None = None, repair: bool = False
) -> list[Verification]:
    ident = None if volume is None else volume.id
    return node.services.verifier.verify(CTX, ident, repair)


def acls(node: Node, volume: Volume) -> dict[str, FakeAcl]:
    return node.target().storage.exports[volume.id]


def let_eve_in(node: Node, volume: Volume) -> None:
    acl = FakeAcl("", None)
    acl.mode = RW
    acls(node, volume)[EVE] = acl


def let_beta_write(node: Node, volume: Volume) -> None:
    acls(node, volume)[BETA].mode = RW


def stop_alpha(node: Node, volume: Volume) -> None:
    acls(node, volume)[ALPHA].mode = RO


def forget_alpha(node: Node, volume: Volume) -> None:
    del acls(node, volume)[ALPHA]


def change_secret(node: Node, volume: Volume) -> None:
    acls(node, volume)[BETA].auth = Auth("guest", "guessed-by-guest")


CHANGES: dict[str, tuple[Callable[[Node, Volume], None], DriftKind, str]] = {
    "eve": (let_eve_in, DriftKind.WIDER, EVE),
    "mode": (let_beta_write, DriftKind.WIDER, BETA),
    "narrower": (stop_alpha, DriftKind.NARROWER, ALPHA),
    "missing": (forget_alpha, DriftKind.NARROWER, ALPHA),
    "secret": (change_secret, DriftKind.CREDENTIAL, BETA),
}


def counted(node: Node, kind: DriftKind) -> float:
    name = f'lunshare_drift_total{{kind="{kind}"}} '
    lines = node.services.metrics.page().decode().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return float(line.removeprefix(name))


@pytest.mark.parametrize("name", CHANGES)
def test_drift_is_found_counted_once_and_put_right(
    node: Node, volume: Volume, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    change, kind, host = CHANGES[name]
    assert [each.verdict for each in verify(node)] == [Verdict.CLEAN]
    change(node, volume)
    for _ in range(2):
        (found,) = verify(node, volume)
        assert (found.verdict, found.remaining) == (Verdict.DRIFT, found.drift)
        assert [(each.kind, each.initiator) for each in found.drift] == [(kind, host)]
    assert counted(node, kind) == 1
    logged = [record.getMessage() for record in caplog.records]
    assert sum(text.startswith("drift: ") and host in text for text in logged) == 1
    assert not any("guessed" in text for text in logged)
    (repaired,) = verify(node, volume, repair=True)
    assert (repaired.verdict, repaired.drift) == (Verdict.REPAIRED, found.drift)
    assert [each.verdict for each in verify(node)] == [Verdict.CLEAN]
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}


@pytest.mark.parametrize("name", CHANGES)
def test_a_reconcile_puts_drift_right_and_counts_it(
    node: Node, volume: Volume, name: str
) -> None:
    change, kind, _ = CHANGES[name]
    change(node, volume)
    result = node.assembly.reconcile.run()
    assert result.changed
    assert result.failed == []
    assert counted(node, kind) == 1
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}
    assert [each.verdict for each in verify(node)] == [Verdict.CLEAN]


@pytest.mark.parametrize("name", CHANGES)
def test_a_node_that_only_reports_leaves_drift_and_names_it(
    reporting: Node, name: str
) -> None:
    change, kind, _ = CHANGES[name]
    volume = reporting.shared_volume()
    attach(reporting, volume, "alpha", "rw")
    attach(reporting, volume, "beta", "ro")
    reporting.assembly.reconcile.run()
    change(reporting, volume)
    before = reporting.live(volume.id)
    for _ in range(2):
        reporting.assembly.reconcile.run()
        assert reporting.live(volume.id) == before
        (sentence,) = reporting.services.node.health().failed
        assert volume.id in sentence
        assert f"drift: {kind}" in sentence
    assert counted(reporting, kind) == 1
    (repaired,) = verify(reporting, volume, repair=True)
    assert repaired.verdict is Verdict.REPAIRED
    reporting.assembly.reconcile.run()
    assert reporting.services.node.health().failed == ()


def test_what_differs_at_a_start_is_put_right_also_by_a_node_that_reports(
    reporting: Node,
) -> None:
    volume = reporting.shared_volume()
    attach(reporting, volume, "alpha", "rw")
    reporting.target().remove(volume.id)  # as a reboot
    reporting.assembly.reconcile.run()
    assert reporting.live(volume.id) == {ALPHA: RW}
    assert counted(reporting, DriftKind.NARROWER) == 0


def test_what_an_operation_has_not_finished_is_no_drift(
    node: Node, volume: Volume
) -> None:
    with node.target().failures.fail("apply.before", HANGS):
        fence = node.services.fences.fence(CTX, "beta")
        assert fence.status == "fence pending"
        with pytest.raises(Exception, match="in progress"):
            attach(node, volume, "gamma")
    (found,) = verify(node, volume)
    assert found.verdict is Verdict.CLEAN
    assert node.live(volume.id)[BETA] == RO
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RW}
    assert [each.verdict for each in verify(node)] == [Verdict.CLEAN]
    assert {kind: counted(node, kind) for kind in DriftKind} == dict.fromkeys(
        DriftKind, 0
    )


def test_a_busy_volume_and_one_that_fails_do_not_stop_the_others(
    node: Node, volume: Volume
) -> None:
    other = node.plain_volume()
    attach(node, other, "alpha")
    node.assembly.reconcile.run()
    let_eve_in(node, other)
    began = time.monotonic()
    with node.assembly.reconcile._locks.volume(volume.id, "a long detach"):
        found = {each.volume_id: each for each in verify(node, repair=True)}
    assert time.monotonic() - began < 5
    assert found[volume.id].verdict is Verdict.UNVERIFIED
    assert "a long detach" in found[volume.id].problem
    assert found[other.id].verdict is Verdict.REPAIRED
    with node.target().failures.fail("observe", TargetFailed(volume.id, "broken")):
        assert {each.verdict for each in verify(node)} == {Verdict.UNVERIFIED}
    assert {each.verdict for each in verify(node)} == {Verdict.CLEAN}


def test_a_reconcile_applies_also_what_it_could_not_compare(
    node: Node, volume: Volume
) -> None:
    let_beta_write(node, volume)
    with node.target().failures.fail("observe", TargetFailed(volume.id, "broken")):
        node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}


def find_row(node: Node, volume: Volume) -> Volume | None:
    with node.assembly.database.reading() as connection:
        return volumes.get_row(connection, volume.id)


def test_a_volume_that_is_deleted_meanwhile_is_left_out(node: Node) -> None:
    first, last = sorted(
        (node.shared_volume(), node.shared_volume()), key=lambda volume: volume.id
    )
    attach(node, first, "alpha")
    row = attach(node, last, "beta")
    with (
        ThreadPoolExecutor(1) as threads,
        node.target().failures.hold("observe") as gate,
    ):
        verified = threads.submit(verify, node)
        assert gate.reached.wait(60)
        node.services.attachments.delete(CTX, row.id)
        node.services.volumes.delete(CTX, last.id)
        until(lambda: find_row(node, last) is None)
        gate.open.set()
        assert [each.volume_id for each in verified.result(60)] == [first.id]


def test_a_repair_that_fails_says_so_and_leaves_the_drift(
    node: Node, volume: Volume
) -> None:
    let_beta_write(node, volume)
    with node.target().failures.fail("apply.before", HANGS):
        (found,) = verify(node, volume, repair=True)
    assert found.verdict is Verdict.DRIFT
    assert "in progress" in found.problem
    assert verify(node, volume, repair=True)[0].verdict is Verdict.REPAIRED


def test_attach_detach_and_fence_beside_it_are_never_drift(
    node: Node, volume: Volume
) -> None:
    over = threading.Event()
    found: list[Verification] = []

    def look() -> None:
        while not over.is_set():
            found.extend(verify(node))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(20):
            row = attach(node, volume, "gamma", "ro")
            node.services.attachments.delete(CTX, row.id)
            node.services.fences.fence(CTX, "beta")
            node.services.fences.unfence(CTX, "beta")
    finally:
        over.set()
        thread.join(30)
    drifted = [each for each in found if each.drift]
    assert found
    assert not drifted, drifted[0]


def test_a_volume_that_does_not_exist_is_refused(node: Node) -> None:
    with pytest.raises(NotFound):
        node.services.verifier.verify(CTX, "6b1f5a52-31c2-4f0e-9f39-5a5c0b8b3c11")


def test_hosts_show_when_their_target_was_last_right(
    node: Node, volume: Volume
) -> None:
    def shown() -> set[object]:
        lines = node.services.hosts.list(CTX, volume.id)
        return {line.verified_at for line in lines}

    (before,) = shown()
    assert before is not None
    let_beta_write(node, volume)
    verify(node)
    assert shown() == {before}
    verify(node, repair=True)
    (after,) = shown()
    assert after not in (before, None)


def test_a_start_compares_nothing_and_the_next_reconcile_does(
    node: Node, volume: Volume
) -> None:
    """The listener waits for the first one."""
    let_beta_write(node, volume)
    again = Node(node.path)
    points: list[str] = []
    again.target().failures.watch(points.append)
    again.start()
    assert points.count("observe") == 1  # of all targets
    assert again.live(volume.id) == {ALPHA: RW, BETA: RO}
    assert {host.verified_at for host in again.services.hosts.list(CTX)} == {None}
    again.assembly.reconcile.run()
    assert None not in {host.verified_at for host in again.services.hosts.list(CTX)}
    again.close()
