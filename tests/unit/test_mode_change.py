# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host's mode changes while it has the volume: the row, the target, the fence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lunshare.agent.model.errors import BackendFailed, Conflict, NotFound
from lunshare.agent.model.records import Attachment, Mode, NewAttachment, Volume
from lunshare.agent.service.driver_values import driver_volume
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Connector
from tests.stands.node import (
    CTX,
    Node,
    attach,
    failing_once,
    host_connector,
    initiator,
    is_counted,
    node_fixture,
)
from tests.stands.waiting import until

RO, RW = Mode.RO, Mode.RW
ALPHA, BETA = initiator("alpha"), initiator("beta")
HANGS = DeadlineExceeded("a write in progress", 1.0)

node = node_fixture(forget_storage=True)


@pytest.fixture
def volume(node: Node) -> Volume:
    """A volume that beta reads."""
    made = node.shared_volume()
    attach(node, made, "beta", "ro")
    return made


def change(node: Node, row: Attachment, mode: Mode, drain: bool = True):
    return node.services.mode_changes.change(CTX, row.id, mode, drain)


def stored(node: Node, row: Attachment) -> Attachment:
    return node.services.attachments.get(CTX, row.id)


def set_metadata(node: Node, volume: Volume, **policy: str) -> None:
    metadata = {f"lunshare:{key}": text for key, text in policy.items()}
    node.services.metadata.change(CTX, volume.id, lambda _: metadata)


def test_a_writer_becomes_a_reader_and_a_writer_again(
    node: Node, volume: Volume
) -> None:
    row = attach(node, volume, "alpha")
    changed = change(node, row, RO)
    assert changed.pending is None
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
    assert stored(node, row).mode is RO
    assert (changed.row.connection_info or {})["access_mode"] == RO
    assert (changed.row.connection_info or {})["auth_password"]
    again = change(node, row, RW)
    assert node.live(volume.id) == {ALPHA: RW, BETA: RO}
    assert (again.row.connection_info or {})["access_mode"] == RW
    assert stored(node, row).former_initiator is None
    assert is_counted(node, CTX.project_id)


def test_repeated_changes_nothing(node: Node, volume: Volume) -> None:
    row = attach(node, volume, "alpha")
    for mode in (RW, RW, RO, RO):
        assert change(node, row, mode).pending is None
        assert node.live(volume.id)[ALPHA] == mode


def test_storage_that_hangs_is_pending_and_never_fenced(
    node: Node, volume: Volume
) -> None:
    set_metadata(node, volume, max_writers="1")
    row = attach(node, volume, "alpha")
    with node.target().failures.fail("apply.closed", HANGS):
        assert "each reconcile tries again" in str(change(node, row, RO).pending)
        assert attach(node, volume, "gamma").mode is RO, "alpha's write may still land"
        with pytest.raises(Conflict, match="max_writers"):
            attach(node, volume, "delta", "rw")
    node.assembly.reconcile.run()
    assert stored(node, row).former_initiator is None
    assert change(node, row, RO).pending is None
    assert attach(node, volume, "epsilon", "rw").mode is RW


def test_a_node_that_starts_again_finishes_the_fence(
    node: Node, volume: Volume
) -> None:
    row = attach(node, volume, "alpha")
    with node.target().failures.fail("apply.before", HANGS):
        assert change(node, row, RO).pending
        assert change(node, row, RO).pending, "repeated"
    assert node.live(volume.id)[ALPHA] == RW, "the target has done nothing yet"
    node.start()
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
    assert stored(node, row).former_initiator is None


def test_a_fence_that_hangs_keeps_no_other_one_waiting(
    node: Node, volume: Volume
) -> None:
    rows = [attach(node, volume, host) for host in ("alpha", "gamma")]
    with node.target().failures.fail("apply.before", HANGS):
        assert all(change(node, row, RO).pending for row in rows)
    with (
        failing_once(node.target().failures, "apply.before"),
        pytest.raises(BackendFailed),
    ):
        node.services.mode_changes.finish(volume.id)
    assert [*node.live(volume.id).values()].count(RW) == 1


def test_immediate_says_that_writes_may_land_and_fences_in_the_background(
    node: Node, volume: Volume
) -> None:
    row = attach(node, volume, "alpha")
    assert "background" in str(change(node, row, RO, drain=False).pending)
    until(lambda: stored(node, row).former_initiator is None, "it is fenced")
    assert node.live(volume.id) == {ALPHA: RO, BETA: RO}


def test_a_promotion_that_fails_is_taken_back(node: Node, volume: Volume) -> None:
    (row,) = [attach(node, volume, "alpha", "ro")]
    for point in ("apply.before", "apply.opened", "apply.after"):
        failure = TargetFailed("v", "because of the test")
        with node.target().failures.fail(point, failure), pytest.raises(BackendFailed):
            change(node, row, RW)
        assert stored(node, row).mode is RO
        node.assembly.reconcile.run()
        assert node.live(volume.id) == {ALPHA: RO, BETA: RO}
        assert stored(node, row).former_initiator is None
    assert change(node, row, RW).row.mode is RW


def test_a_promotion_passes_the_policy_and_the_flag(node: Node, volume: Volume) -> None:
    set_metadata(node, volume, writers="alpha", max_writers="1")
    alpha, gamma = (attach(node, volume, host, "ro") for host in ("alpha", "gamma"))
    with pytest.raises(Conflict, match="does not name gamma"):
        change(node, gamma, RW)
    change(node, alpha, RW)
    set_metadata(node, volume, max_writers="1")
    with pytest.raises(Conflict, match=f"max_writers .*{alpha.id}"):
        change(node, gamma, RW)
    change(node, alpha, RO)
    change(node, gamma, RW)
    assert node.live(volume.id) == {ALPHA: RO, initiator("gamma"): RW, BETA: RO}


def test_a_readonly_volume_has_no_writers(node: Node) -> None:
    volume = node.shared_volume()
    node.services.metadata.set_readonly(CTX, volume.id, True)
    row = attach(node, volume, "alpha")
    with pytest.raises(Conflict, match="is readonly"):
        change(node, row, RW)


def test_what_is_not_open_is_a_conflict(node: Node, volume: Volume) -> None:
    reserved = node.services.attachments.create(CTX, NewAttachment(volume.id))
    with pytest.raises(Conflict, match="is reserved; the mode of"):
        change(node, reserved, RW)
    legacy = node.services.legacy.initialize(CTX, volume.id, host_connector("gamma"))
    with pytest.raises(Conflict, match="os-initialize_connection"):
        change(node, legacy, RO)
    row = attach(node, volume, "alpha")
    failures = node.target().failures
    with failures.fail("apply.before", HANGS), pytest.raises(BackendFailed):
        node.services.attachments.delete(CTX, row.id)
    with pytest.raises(Conflict, match="is error_detaching"):
        change(node, row, RO)
    node.services.attachments.delete(CTX, row.id)
    with pytest.raises(NotFound):
        change(node, row, RO)


def test_another_attachment_of_the_initiator_keeps_the_mode(
    node: Node, volume: Volume
) -> None:
    first, second = (attach(node, volume, "alpha") for _ in range(2))
    with pytest.raises(Conflict, match=f"rw by attachment {second.id}"):
        change(node, first, RO)
    assert node.live(volume.id)[ALPHA] == RW
    node.services.attachments.delete(CTX, second.id)
    assert change(node, first, RO).pending is None


def test_a_detach_ends_what_a_fence_has_left(node: Node, volume: Volume) -> None:
    row = attach(node, volume, "alpha")
    with node.target().failures.fail("apply.before", HANGS):
        assert change(node, row, RO).pending
    node.services.attachments.delete(CTX, row.id)
    assert node.live(volume.id) == {BETA: RO}


def test_the_repeated_request_closes_what_the_target_has_got_open(
    node: Node, volume: Volume
) -> None:
    row = attach(node, volume, "alpha", "ro")
    drifted = Connector(ALPHA, RW, row.id)
    drivers = node.assembly.backends["fake"].drivers
    drivers.apply(driver_volume(volume), (drifted,), {ALPHA})
    assert node.live(volume.id)[ALPHA] == RW
    assert change(node, row, RO).pending is None
    assert node.live(volume.id)[ALPHA] == RO


def test_a_host_is_fenced_whatever_the_status_of_the_volume(
    node: Node, volume: Volume
) -> None:
    row = attach(node, volume, "alpha")
    node.services.status_resetter.reset(CTX, volume.id, Reset(status="error"))
    assert change(node, row, RO).pending is None
    assert node.live(volume.id)[ALPHA] == RO
    with pytest.raises(Conflict, match="must be available"):
        change(node, row, RW)


def test_a_target_that_ends_no_session_can_not_say_that_a_host_is_fenced(
    node: Node, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = attach(node, volume, "alpha")
    abilities = replace(FakeTarget.ABILITIES, fences=False)
    monkeypatch.setattr(FakeTarget, "abilities", abilities)
    with pytest.raises(Conflict, match="does not end a host's access"):
        change(node, row, RO)
    assert stored(node, row).mode is RW
