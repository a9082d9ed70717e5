# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The writers policy on a complete node: rows, the live target, and the races."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from lunshare.agent.model.errors import BackendFailed, Conflict, Invalid
from lunshare.agent.model.records import (
    Attachment,
    Mode,
    NewAttachment,
    NewVolume,
    Volume,
)
from lunshare.agent.model.states import AttachStatus
from lunshare.drivers.errors import DeadlineExceeded
from lunshare.drivers.writers import MAX_WRITERS, WRITERS
from tests.stands.node import (
    CTX,
    Node,
    attach,
    failing_once,
    host_connector,
    initiator,
    node_fixture,
)

SERVER = "8d5d26c8-5d8d-4a25-8ac1-0c7f6a3f4d01"
OTHER = "8d5d26c8-5d8d-4a25-8ac1-0c7f6a3f4d02"
RO, RW = Mode.RO, Mode.RW

node = node_fixture(forget_storage=True)


def shared(node: Node, **policy: str) -> Volume:
    """A new volume of several hosts with this policy."""
    volume = node.shared_volume()
    set_policy(node, volume, **policy)
    return volume


def set_policy(node: Node, volume: Volume, **policy: str) -> None:
    """Replace the policy; without one, take it away."""
    metadata = {f"lunshare:{key}": text for key, text in policy.items()}
    node.services.metadata.change(CTX, volume.id, lambda _: metadata)


def attach_server(
    node: Node, volume: Volume, host: str, server: str, mode: Mode | None = None
) -> Attachment:
    new = NewAttachment(volume.id, server, mode, host_connector(host))
    return node.services.attachments.create(CTX, new)


def test_a_host_without_a_mode_gets_what_the_list_says(node: Node) -> None:
    volume = shared(node, writers=f"alpha {SERVER}")
    alpha, beta = attach(node, volume, "alpha"), attach(node, volume, "beta")
    server = attach_server(node, volume, "gamma", SERVER)
    assert [row.mode for row in (alpha, beta, server)] == [RW, RO, RW]
    assert (beta.connection_info or {})["access_mode"] == RO
    assert node.live(volume.id) == {
        initiator("alpha"): RW,
        initiator("beta"): RO,
        initiator("gamma"): RW,
    }


def test_rw_that_is_asked_for_and_not_allowed_is_a_conflict_and_leaves_nothing(
    node: Node,
) -> None:
    volume = shared(node, writers="alpha")
    with pytest.raises(Conflict, match=r"lunshare:writers of volume .* does not name"):
        attach(node, volume, "beta", "rw")
    asked = NewAttachment(volume.id, connector=host_connector("beta", mode="rw"))
    with pytest.raises(Conflict, match="does not name beta"):
        node.services.attachments.create(CTX, asked)
    assert node.live(volume.id) == {}
    assert attach(node, volume, "alpha", "rw").mode is RW
    assert attach(node, volume, "beta", "ro").mode is RO


@pytest.mark.parametrize("listed", ["", "nobody-has-this-name"])
def test_a_list_that_is_empty_or_names_nobody_lets_nobody_write(
    node: Node, listed: str
) -> None:
    volume = shared(node, writers=listed)
    assert attach(node, volume, "alpha").mode is RO
    with pytest.raises(Conflict):
        attach(node, volume, "beta", "rw")


def test_max_writers_bounds_them_at_any_moment(node: Node) -> None:
    volume = shared(node, max_writers="1")
    alpha = attach(node, volume, "alpha")
    assert alpha.mode is RW
    assert attach(node, volume, "beta").mode is RO
    with pytest.raises(Conflict, match=f"is 1, and it has 1 rw .*{alpha.id}"):
        attach(node, volume, "gamma", "rw")
    with (
        failing_once(node.target().failures, "apply.before"),
        pytest.raises(BackendFailed),
    ):
        node.services.attachments.delete(CTX, alpha.id)
    assert attach(node, volume, "delta").mode is RO, "alpha may still write"
    node.services.attachments.delete(CTX, alpha.id)
    assert attach(node, volume, "gamma", "rw").mode is RW


def test_a_server_that_migrates_writes_from_both_hosts_and_counts_once(
    node: Node,
) -> None:
    volume = shared(node, writers=SERVER, max_writers="1")
    source = attach_server(node, volume, "alpha", SERVER)
    target = attach_server(node, volume, "beta", SERVER)
    assert source.mode is target.mode is RW
    assert attach_server(node, volume, "gamma", OTHER).mode is RO
    node.services.attachments.delete(CTX, source.id)
    assert node.live(volume.id)[initiator("beta")] == RW


def test_a_writer_is_evacuated_while_its_old_host_is_dead_and_comes_back(
    node: Node,
) -> None:
    """The old host's row stays until that host is back; the server still writes."""
    volume = shared(node, writers=SERVER, max_writers="1")
    dead = attach_server(node, volume, "alpha", SERVER)
    evacuated = attach_server(node, volume, "beta", SERVER)
    assert evacuated.mode is RW
    node.services.attachments.delete(CTX, dead.id)
    node.services.attachments.delete(CTX, evacuated.id)
    assert attach_server(node, volume, "alpha", OTHER).mode is RO
    assert attach_server(node, volume, "gamma", SERVER).mode is RW, "it came back"


def test_the_connector_of_a_reservation_decides(node: Node) -> None:
    volume = shared(node, writers="alpha")
    create, connect = (
        node.services.attachments.create,
        node.services.attachments.connect,
    )
    reserved = [create(CTX, NewAttachment(volume.id)) for _ in range(2)]
    assert [row.mode for row in reserved] == [None, None]
    opened = [
        connect(CTX, row.id, host_connector(host))
        for row, host in zip(reserved, ("alpha", "beta"), strict=True)
    ]
    assert [row.mode for row in opened] == [RW, RO]
    asked = create(CTX, NewAttachment(volume.id, mode=RW))
    with pytest.raises(Conflict, match="does not name gamma"):
        connect(CTX, asked.id, host_connector("gamma"))
    with pytest.raises(Conflict, match="does not name this attachment"):
        node.services.attachments.complete(CTX, asked.id)
    assert node.services.attachments.get(CTX, asked.id).status is AttachStatus.RESERVED


def test_another_connector_of_a_writer_is_decided_anew(node: Node) -> None:
    volume = shared(node, writers="alpha")
    row = attach(node, volume, "alpha")
    moved = node.services.attachments.connect(CTX, row.id, host_connector("beta"))
    assert moved.mode is RO
    assert node.live(volume.id) == {initiator("beta"): RO}


def test_the_type_has_the_default_and_metadata_narrows_it(node: Node) -> None:
    specs = {"multiattach": "<is> True", WRITERS: "alpha beta", MAX_WRITERS: "2"}
    node.services.types.create(CTX, "with writers", extra_specs=specs)
    new = NewVolume(1, volume_type="with writers")
    volume = node.services.volumes.create(CTX, new)
    assert attach(node, volume, "gamma").mode is RO
    beta = attach(node, volume, "beta")
    assert beta.mode is RW
    node.services.attachments.delete(CTX, beta.id)
    set_policy(node, volume, writers="alpha gamma", max_writers="1000")
    assert attach(node, volume, "beta").mode is RO
    assert attach(node, volume, "delta").mode is RO
    assert attach(node, volume, "alpha").mode is RW


def test_a_policy_that_excludes_a_host_that_may_write_is_a_conflict(node: Node) -> None:
    volume = shared(node)
    alpha, beta = attach(node, volume, "alpha"), attach(node, volume, "beta")
    with pytest.raises(Conflict, match=f"would not allow .{beta.id}.; delete them"):
        set_policy(node, volume, writers="alpha")
    with pytest.raises(Conflict, match=f"{alpha.id}, {beta.id}"):
        set_policy(node, volume, max_writers="1")
    changes = {"metadata": {WRITERS: ""}}
    with pytest.raises(Conflict, match="would not allow"):
        node.services.volumes.update(CTX, volume.id, changes)
    assert node.services.volumes.get(CTX, volume.id).metadata == {}
    set_policy(node, volume, writers="alpha beta", max_writers="2")
    node.services.attachments.delete(CTX, beta.id)
    set_policy(node, volume, writers="alpha", max_writers="1")
    set_policy(node, volume)


def test_a_retype_to_a_policy_that_excludes_a_writer_is_a_conflict(node: Node) -> None:
    specs = {"multiattach": "<is> True", WRITERS: "beta"}
    volume = node.shared_volume()
    node.services.types.create(CTX, "of beta", extra_specs=specs)
    alpha = attach(node, volume, "alpha")
    retype = node.services.migrator.retype
    with pytest.raises(Conflict, match=alpha.id):
        retype(CTX, volume.id, "of beta", on_demand=False)
    assert node.services.volumes.get(CTX, volume.id).volume_type == "multiattach"
    node.services.attachments.delete(CTX, alpha.id)
    retype(CTX, volume.id, "of beta", on_demand=False)
    assert attach(node, volume, "alpha").mode is RO


def test_the_readonly_flag_wins(node: Node) -> None:
    volume = shared(node, writers="alpha")
    node.services.metadata.set_readonly(CTX, volume.id, True)
    assert attach(node, volume, "alpha", "rw").mode is RO


def test_actions_of_a_volume_obey_it(node: Node) -> None:
    volume = shared(node, writers=f"alpha {SERVER}")
    legacy = node.services.legacy
    connected = legacy.initialize(CTX, volume.id, host_connector("beta"))
    assert connected.mode is RO
    with pytest.raises(Conflict, match="does not name"):
        legacy.attach(CTX, volume.id, "/dev/vdb", instance=OTHER, host=None, mode=RW)
    assert node.live(volume.id) == {initiator("beta"): RO}
    legacy.attach(CTX, volume.id, "/dev/vdb", instance=SERVER, host=None, mode=RW)
    assert node.live(volume.id) == {initiator("beta"): RW}


@pytest.mark.parametrize(
    ("key", "text"), [("writers", "a;b"), ("max_writers", "-1"), ("max_writers", "all")]
)
def test_a_policy_without_meaning_is_refused_wherever_it_is_written(
    node: Node, key: str, text: str
) -> None:
    items = {f"lunshare:{key}": text}
    volume = node.shared_volume()
    kind = node.services.types.create(CTX, "plain")
    why = f"lunshare:{key} .* is not valid"
    with pytest.raises(Invalid, match=why):
        set_policy(node, volume, **{key: text})
    with pytest.raises(Invalid, match=why):
        node.services.volumes.update(CTX, volume.id, {"metadata": items})
    with pytest.raises(Invalid, match=why):
        node.services.volumes.create(CTX, NewVolume(1, metadata=items))
    with pytest.raises(Invalid, match=why):
        node.services.types.create(CTX, "another", extra_specs=items)
    with pytest.raises(Invalid, match=why):
        node.services.types.set_specs(CTX, kind.id, items)


def test_a_restart_keeps_what_was_decided(node: Node) -> None:
    volume = shared(node, writers="alpha", max_writers="1")
    for host in ("alpha", "beta"):
        attach(node, volume, host)
    before = node.live(volume.id)
    node.start()
    assert node.live(volume.id) == before


@pytest.mark.parametrize("round_", range(10))
def test_a_policy_written_in_the_moment_of_attaches_is_never_broken(
    node: Node, round_: int
) -> None:
    """Two hosts and two policies at once: whatever won, the rows obey the metadata."""
    volume = node.shared_volume()
    steps: list[Callable[[], object]] = [
        lambda: attach(node, volume, "alpha", "rw"),
        lambda: attach(node, volume, "beta"),
        lambda: set_policy(node, volume, writers="beta"),
        lambda: set_policy(node, volume, max_writers="1"),
    ]
    start = Barrier(len(steps))

    def run(step: Callable[[], object]) -> bool:
        start.wait()
        try:
            step()
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(len(steps)) as pool:
        results = list(pool.map(run, steps))
    metadata = node.services.volumes.get(CTX, volume.id).metadata
    writing = {name for name, mode in node.live(volume.id).items() if mode == RW}
    assert results[1], "a host that names no mode always gets in"
    if metadata.get(WRITERS):
        assert writing <= {initiator("beta")}
    if metadata.get(MAX_WRITERS):
        assert len(writing) <= 1
    assert any(results)


def test_os_attach_ro_counts_as_a_writer_until_its_writes_have_landed(
    node: Node,
) -> None:
    volume, legacy = shared(node, max_writers="1"), node.services.legacy
    legacy.initialize(CTX, volume.id, host_connector("alpha"))
    hangs = DeadlineExceeded("a write in progress", 1.0)
    failures = node.target().failures
    failing = (
        failures.fail("apply.before", hangs),
        failures.fail("remove.before", hangs),
    )
    with failing[0], failing[1], pytest.raises(BackendFailed):
        legacy.attach(CTX, volume.id, "/dev/vdb", instance=None, host=None, mode=RO)
    assert node.live(volume.id) == {initiator("alpha"): RW}
    with pytest.raises(Conflict, match="max_writers"):
        attach(node, volume, "beta", "rw")
    node.assembly.reconcile.run()
    assert attach(node, volume, "beta", "rw").mode is RW
