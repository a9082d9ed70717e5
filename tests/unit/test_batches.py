# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Many hosts of a volume at once: all of them, or none."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.db import purge
from lunshare.agent.db.attachments import MANY_ROWS, MAX_OF_VOLUME, MAX_ROWS
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.errors import (
    AgentError,
    BackendFailed,
    Conflict,
    Invalid,
    NotFound,
)
from lunshare.agent.model.records import (
    Attachment,
    Mode,
    NewAttachment,
    NewBatch,
    Volume,
)
from lunshare.agent.model.states import AttachStatus
from lunshare.agent.service.attachments.handover import NewHandover
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import Auth
from tests.stands.node import (
    CTX,
    Node,
    attach,
    failing_once,
    host_connector,
    initiator,
    node_fixture,
    rows,
)
from tests.stands.waiting import until
from tests.unit.test_attachments import _count_more, _multiply

RO, RW = Mode.RO, Mode.RW
NAMES = ("alpha", "beta", "gamma", "delta")
REFUSED = TargetFailed("v", "because of the test")

node = node_fixture(forget_storage=True, section="fake_firewall = true")


@pytest.fixture
def volume(node: Node) -> Volume:
    made: Volume = node.shared_volume()
    return made


def batch(volume: Volume, *names: str, key: str = "key", mode: Mode | None = RO):
    return NewBatch(volume.id, key, [host_connector(name) for name in names], mode)


def attach_all(node: Node, volume: Volume, *names: str, **more) -> list[Attachment]:
    made: list[Attachment] = node.services.batches.attach(
        CTX, batch(volume, *(names or NAMES), **more)
    )
    return made


def ids(made: list[Attachment]) -> list[str]:
    return [row.id for row in made]


def test_a_target_that_is_made_anew_has_few_lines_in_the_log(
    node: Node, volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    attach_all(node, volume, *(f"host{number}" for number in range(30)))
    node.target().remove(volume.id)
    changed = node.assembly.reconcile.run().changed
    assert len(changed) >= 30
    texts = [record.getMessage() for record in caplog.records]
    lines = [text for text in texts if text.startswith("reconcile changed: volume")]
    assert len(lines) == 21
    assert lines[-1].endswith(f"volume {volume.id}: {len(changed) - 20} more")


def test_all_addresses_are_admitted_and_closed_in_one_call(
    node: Node, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = [], FakeTarget.admit_each

    def admit_each(target: FakeTarget, addresses: dict[str, bool]) -> bool:
        calls.append(sorted(addresses.values()))
        return real(target, addresses)

    monkeypatch.setattr(FakeTarget, "admit_each", admit_each)
    made = attach_all(node, volume)
    node.services.batches.detach(CTX, volume.id, ids(made)[:-1])
    assert calls == [[True] * 4, [False] * 3]
    assert node.target().storage.admitted == {(made[-1].connector or {})["ip"]}


def test_all_hosts_get_access_and_credentials_of_their_own(
    node: Node, volume: Volume
) -> None:
    made = attach_all(node, volume)
    assert node.live(volume.id) == dict.fromkeys(map(initiator, NAMES), RO)
    assert [row.initiator for row in made] == [*map(initiator, NAMES)]
    assert {row.status for row in made} == {AttachStatus.ATTACHED}
    secrets = set()
    for row in made:
        info = row.connection_info or {}
        auth = Auth(info["auth_username"], info["auth_password"])
        node.target().login(volume.id, str(row.initiator), auth)
        secrets.add(auth)
        kept = node.services.attachments.get(CTX, row.id)
        assert (kept.connection_info, kept.mode) == (info, RO)
    assert len(secrets) == len(NAMES)
    admitted = {(row.connector or {})["ip"] for row in made}
    assert node.target().storage.admitted == admitted


def test_a_connector_may_name_the_mode_where_the_request_names_none(
    node: Node, volume: Volume
) -> None:
    hosts = [host_connector("alpha", mode="ro"), host_connector("beta")]
    node.services.batches.attach(CTX, NewBatch(volume.id, "key", hosts))
    assert node.live(volume.id) == {initiator("alpha"): RO, initiator("beta"): RW}


def test_all_are_detached_and_the_others_stay(node: Node, volume: Volume) -> None:
    stays = attach(node, volume, "stays")
    made = attach_all(node, volume)
    left = node.services.batches.detach(CTX, volume.id, ids(made))
    assert ids(left) == [stays.id]
    assert set(node.live(volume.id)) == {initiator("stays")}
    assert node.services.batches.detach(CTX, volume.id, [stays.id]) == []
    assert node.live(volume.id) == {}
    assert node.target().storage.admitted == set()
    with pytest.raises(NotFound):
        node.services.batches.detach(CTX, volume.id, ids(made))


def test_a_detach_that_names_a_stranger_detaches_nobody(
    node: Node, volume: Volume
) -> None:
    made, other = attach_all(node, volume), node.shared_volume()
    stranger = attach(node, other, "stranger")
    for wrong in (stranger.id, "6f2d5ac8-bbd8-4a8b-a1f1-b67e37d0b4d1"):
        with pytest.raises(NotFound, match=wrong):
            node.services.batches.detach(CTX, volume.id, [*ids(made), wrong])
    assert len(node.live(volume.id)) == len(NAMES)


def test_a_row_without_a_host_is_detached_with_the_others(
    node: Node, volume: Volume
) -> None:
    reserved = node.services.attachments.create(CTX, NewAttachment(volume.id))
    made = attach_all(node, volume)
    node.services.batches.detach(CTX, volume.id, [reserved.id, *ids(made)])
    assert rows(node) == []
    assert node.live(volume.id) == {}


def test_the_same_request_again_has_the_same_answer(node: Node, volume: Volume) -> None:
    made = attach_all(node, volume)
    again = attach_all(node, volume)
    assert ids(again) == ids(made)
    assert [r.connection_info for r in again] == [r.connection_info for r in made]
    assert len(rows(node)) == len(NAMES)


def test_two_at_once_with_one_key_are_one(node: Node, volume: Volume) -> None:
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda _: attach_all(node, volume), range(4)))
    assert {frozenset(ids(made)) for made in answers} == {frozenset(ids(rows(node)))}


@pytest.mark.parametrize(
    "other",
    [
        {"names": ("alpha", "beta", "gamma")},
        {"names": (*NAMES, "epsilon")},
        {"names": ("alpha", "beta", "gamma", "epsilon")},
        {"names": NAMES[::-1]},
        {"names": NAMES, "mode": RW},
        {"names": NAMES, "mode": None},
    ],
)
def test_a_key_is_of_one_request_only(
    node: Node, volume: Volume, other: dict[str, Any]
) -> None:
    attach_all(node, volume)
    with pytest.raises(Conflict, match=r"lunshare:attach\.key: .* another request"):
        attach_all(node, volume, *other.pop("names"), **other)
    assert len(rows(node)) == len(NAMES)


def test_a_key_means_another_request_on_another_volume(
    node: Node, volume: Volume
) -> None:
    made = attach_all(node, volume)
    assert not set(ids(attach_all(node, node.shared_volume()))) & set(ids(made))


def test_a_key_is_used_up_once_one_of_its_hosts_is_detached(
    node: Node, volume: Volume
) -> None:
    made = attach_all(node, volume)
    node.services.attachments.delete(CTX, made[2].id)
    with pytest.raises(Conflict, match=f"{made[2].id} .* is detached since; give a"):
        attach_all(node, volume)
    assert len(node.live(volume.id)) == len(NAMES) - 1
    attach_all(node, volume, "gamma", key="other")


def test_a_key_is_forgotten_with_its_deleted_rows(node: Node, volume: Volume) -> None:
    node.services.batches.detach(CTX, volume.id, ids(attach_all(node, volume)))
    with pytest.raises(Conflict):
        attach_all(node, volume)
    with node.assembly.database.writing() as connection:
        purge.purge(connection, now(), 100)
    assert len(attach_all(node, volume)) == len(NAMES)


@pytest.mark.parametrize("point", ["apply.before", "apply.created", "apply.after"])
def test_a_target_that_refuses_one_leaves_nothing_open(
    node: Node, volume: Volume, point: str
) -> None:
    stays = attach(node, volume, "stays", "ro")
    with failing_once(node.target().failures, point), pytest.raises(BackendFailed):
        attach_all(node, volume)
    assert node.live(volume.id) == {initiator("stays"): RO}
    assert ids(rows(node)) == [stays.id]
    assert node.target().storage.admitted == {(stays.connector or {})["ip"]}
    # What has failed can be repeated, also with the same key.
    assert len(attach_all(node, volume)) == len(NAMES)


def test_what_cannot_be_taken_back_is_closed_by_the_next_reconcile(
    node: Node, volume: Volume
) -> None:
    with (
        node.target().failures.fail("apply.after", REFUSED),
        node.target().failures.fail("remove.before", REFUSED),
        pytest.raises(BackendFailed),
    ):
        attach_all(node, volume)
    assert {row.status for row in rows(node)} == {AttachStatus.ERROR_DETACHING}
    with pytest.raises(Conflict, match="not all of its hosts are known to be closed"):
        attach_all(node, volume)
    node.assembly.reconcile.run()
    assert (rows(node), node.live(volume.id)) == ([], {})
    assert len(attach_all(node, volume)) == len(NAMES)


def test_a_detach_that_hangs_says_so_in_every_row(node: Node, volume: Volume) -> None:
    attach(node, volume, "stays")
    made = attach_all(node, volume)
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with (
        node.target().failures.fail("apply.closed", hangs),
        pytest.raises(BackendFailed, match="as are 3 more, and"),
    ):
        node.services.batches.detach(CTX, volume.id, ids(made))
    left = [row for row in rows(node) if row.id in ids(made)]
    assert {row.status for row in left} == {AttachStatus.ERROR_DETACHING}
    node.services.batches.detach(CTX, volume.id, ids(made))
    assert set(node.live(volume.id)) == {initiator("stays")}


def test_a_host_is_named_once(node: Node, volume: Volume) -> None:
    with pytest.raises(Invalid, match=r"hosts\.2: .* is that of hosts\.0 too"):
        attach_all(node, volume, "alpha", "beta", "alpha")
    assert rows(node) == []


def test_a_fenced_host_is_named_and_nobody_is_attached(
    node: Node, volume: Volume
) -> None:
    node.services.fences.fence(CTX, "gamma")
    with pytest.raises(Conflict, match=r"hosts\.2, host gamma: connector: .* fenced"):
        attach_all(node, volume)
    assert (rows(node), node.live(volume.id)) == ([], {})


def test_a_host_that_is_fenced_meanwhile_has_no_access(
    node: Node, volume: Volume
) -> None:
    with (
        ThreadPoolExecutor(2) as clients,
        node.target().failures.hold("apply.created") as gate,
    ):
        attached = clients.submit(attach_all, node, volume)
        assert gate.reached.wait(10)
        fenced = clients.submit(node.services.fences.fence, CTX, "beta")
        until(lambda: node.services.fences.list(CTX), "the fence is listed")
        gate.open.set()
        attached.result()
        fenced.result()
    assert set(node.live(volume.id)) == set(map(initiator, NAMES)) - {initiator("beta")}


def test_the_writers_policy_counts_the_hosts_of_the_same_request(
    node: Node, volume: Volume
) -> None:
    change = node.services.metadata.change
    change(CTX, volume.id, lambda _: {"lunshare:max_writers": "2"})
    with pytest.raises(Conflict, match=r"hosts\.2, host gamma: .*max_writers"):
        attach_all(node, volume, mode=RW)
    assert rows(node) == []
    made = attach_all(node, volume, mode=None)
    assert [row.mode for row in made] == [RW, RW, RO, RO]
    with pytest.raises(Conflict, match=r"hosts\.0, host epsilon"):
        attach_all(node, volume, "epsilon", key="other", mode=RW)
    node.services.batches.detach(CTX, volume.id, ids(made))
    change(CTX, volume.id, lambda _: {"lunshare:writers": "beta"})
    made = attach_all(node, volume, key="named", mode=None)
    assert [row.mode for row in made] == [RO, RW, RO, RO]


def test_a_host_in_the_other_mode_is_named(node: Node, volume: Volume) -> None:
    attach(node, volume, "beta", "rw")
    with pytest.raises(Conflict, match=r"hosts\.1, host beta: .* has this volume rw"):
        attach_all(node, volume)
    assert set(node.live(volume.id)) == {initiator("beta")}


def test_a_volume_that_takes_one_host_takes_a_batch_of_one(node: Node) -> None:
    plain = node.plain_volume()
    with pytest.raises(Invalid, match="takes one attachment"):
        attach_all(node, plain)
    assert rows(node) == []
    assert len(attach_all(node, plain, "alpha")) == 1


def test_a_batch_has_the_limits_of_volume_and_node(node: Node, volume: Volume) -> None:
    other = node.shared_volume()
    made = attach_all(node, volume)
    _count_more(node, MANY_ROWS - len(NAMES))
    _multiply(node, made[0], MAX_OF_VOLUME - 2 - len(NAMES))
    names = [f"more-{number}" for number in range(3)]
    with pytest.raises(
        Invalid, match=f"{volume.id} would have more than {MAX_OF_VOLUME} of"
    ):
        attach_all(node, volume, *names, key="more")
    assert len(attach_all(node, volume, *names[:2], key="more")) == 2
    attach_all(node, other, key="other")
    _count_more(node, MAX_ROWS - MANY_ROWS - MAX_OF_VOLUME - 2)
    with pytest.raises(Invalid, match=f"the node would have more than {MAX_ROWS} att"):
        attach_all(node, other, key="full")


def _in_migration(node: Node, volume: Volume) -> None:
    node.services.status_resetter.reset(CTX, volume.id, Reset("maintenance"))


def _deleted(node: Node, volume: Volume) -> None:
    node.services.volumes.delete(CTX, volume.id)


def _handed_over(node: Node, volume: Volume) -> None:
    attach(node, volume, "writer")
    reader = attach(node, volume, "reader", "ro")
    hangs = DeadlineExceeded("a write in progress", 1.0)
    with node.target().failures.fail("apply.closed", hangs):
        node.services.handovers.hand_over(CTX, NewHandover(volume.id, reader.id))


@pytest.mark.parametrize("operation", [_in_migration, _deleted, _handed_over])
def test_a_volume_that_is_busy_takes_no_batch(
    node: Node, volume: Volume, operation
) -> None:
    operation(node, volume)
    before, live = ids(rows(node)), node.live(volume.id)
    with pytest.raises(AgentError):
        attach_all(node, volume, mode=RW)
    assert (ids(rows(node)), node.live(volume.id)) == (before, live)


def test_what_a_killed_node_has_begun_is_taken_back_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    fake_storage.reset()
    first = Node(tmp_path).start()
    volume = first.shared_volume()

    class Killed(BaseException):
        pass

    def killed(point: str) -> None:
        if point == "apply.created":
            raise Killed

    first.target().failures.watch(killed)
    with pytest.raises(Killed):
        attach_all(first, volume)
    second = Node(tmp_path)
    second.start()
    assert (rows(second), second.live(volume.id)) == ([], {})
    made = attach_all(second, volume)
    assert len(second.live(volume.id)) == len(NAMES)
    third = Node(tmp_path).start()
    assert ids(attach_all(third, volume)) == ids(made)
    third.close()


def test_ten_thousand_hosts_take_at_most_twenty_seconds(node: Node) -> None:
    """Of processor time: other programs run on this machine too."""
    volume, began = node.shared_volume(), time.process_time()
    for part in range(20):
        names = [f"host-{part}-{number}" for number in range(500)]
        attach_all(node, volume, *names, key=str(part))
    took = time.process_time() - began
    assert len(node.live(volume.id)) == 10_000
    assert took < 20
    print(f"10,000 rows in {took:.1f} s")
