# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of attaching, on a complete node with the fake backend."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite

from lunshare.agent.db.attachments import MANY_ROWS, MAX_OF_VOLUME, MAX_ROWS
from lunshare.agent.db.schema import STATUS_TOTALS, VOLUME_ATTACHMENT
from lunshare.agent.model.errors import (
    BackendFailed,
    BackendUnavailable,
    Busy,
    Conflict,
    Invalid,
    NotFound,
)
from lunshare.agent.model.records import Attachment, Mode, NewAttachment, Volume
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.attachments import connectors
from lunshare.drivers.errors import DeadlineExceeded, TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import Auth
from tests.stands.node import (
    CTX,
    Node,
    attach,
    connector,
    failing_once,
    host_connector,
    initiator,
    node_fixture,
    rows,
)

HOSTS = 24


node = node_fixture(forget_storage=True, extra="volume_lock_timeout = 0.3")


def login(node: Node, row: Attachment):
    info = row.connection_info or {}
    auth = Auth(info["auth_username"], info["auth_password"])
    return node.target().login(row.volume_id, str(row.initiator), auth)


def test_a_plain_volume_accepts_one_of_many_reservations(node: Node) -> None:
    volume = node.plain_volume()

    def reserve(_number: int) -> bool:
        try:
            node.services.attachments.create(CTX, NewAttachment(volume.id))
        except Invalid:
            return False
        return True

    with ThreadPoolExecutor(HOSTS) as threads:
        taken = list(threads.map(reserve, range(HOSTS)))
    assert taken.count(True) == 1
    assert len(rows(node)) == 1


def test_a_shared_volume_accepts_many_hosts_each_in_its_mode(tmp_path: Path) -> None:
    fake_storage.reset()
    node = Node(tmp_path).start()
    volume = node.shared_volume()
    modes = {f"h{n}": "rw" if n % 3 == 0 else "ro" for n in range(HOSTS)}
    with ThreadPoolExecutor(HOSTS) as threads:
        made = list(threads.map(lambda h: attach(node, volume, h, modes[h]), modes))
    wanted = {initiator(host): mode for host, mode in modes.items()}
    assert node.live(volume.id) == wanted
    for row in made:
        assert (row.connection_info or {})["access_mode"] == row.mode
    node.close()


def test_the_mode_is_that_of_the_attachment_else_of_the_connector_else_rw(
    node: Node,
) -> None:
    volume = node.shared_volume()
    take = node.services.attachments.create
    said = host_connector("a", mode="ro")
    assert attach(node, volume, "default").mode == "rw"
    assert take(CTX, NewAttachment(volume.id, connector=said)).mode == "ro"
    said = host_connector("b", mode="ro")
    assert (
        take(CTX, NewAttachment(volume.id, mode=Mode.RW, connector=said)).mode == "rw"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "connector.initiator"),
        ({"initiator": initiator("a")}, "connector.host"),
        ({"initiator": "host1", "host": "a"}, "connector.initiator 'host1'"),
        ({"initiator": 7, "host": "a"}, "connector.initiator"),
        ({"initiator": "iqn.1994-05.com.example:a/../b", "host": "a"}, "initiator"),
        (connector("a", mode="wo"), "connector.mode must be ro or rw"),
        ({**connector("a"), "host": ""}, "connector.host"),
        ({**connector("a"), "host": "x" * 300}, "connector.host"),
        ({**connector("a"), "mountpoint": 5}, "connector.mountpoint"),
    ],
)
def test_a_bad_connector_is_refused_and_reserves_nothing(
    wrong: dict[str, object], said: str, node: Node
) -> None:
    volume = node.plain_volume()
    with pytest.raises(Invalid, match=said):
        node.services.attachments.create(
            CTX, NewAttachment(volume.id, connector=connectors.parse(wrong))
        )
    assert rows(node) == []


def test_rw_and_ro_from_one_initiator_are_refused(node: Node) -> None:
    volume = node.shared_volume()
    first = attach(node, volume, "a", "ro")
    with pytest.raises(Conflict, match=f"ro by attachment {first.id}"):
        attach(node, volume, "a", "rw")
    assert node.live(volume.id) == {initiator("a"): "ro"}
    assert len(rows(node)) == 1


def test_both_modes_are_allowed_by_an_option_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    fake_storage.reset()
    node = Node(tmp_path, extra="mixed_modes_per_host = widen").start()
    volume = node.shared_volume()
    writer = attach(node, volume, "a", "rw")
    reader = attach(node, volume, "a", "ro")
    info = reader.connection_info or {}
    assert info["access_mode"] == "ro"
    assert info["mixed_modes"].startswith("widened")
    assert "mixed_modes" not in (writer.connection_info or {})
    assert node.live(volume.id) == {initiator("a"): "rw"}
    node.services.attachments.delete(CTX, writer.id)
    assert node.live(volume.id) == {initiator("a"): "ro"}
    node.close()


def test_the_access_closes_with_the_last_attachment_of_its_initiator(
    node: Node,
) -> None:
    volume = node.shared_volume()
    one, two = attach(node, volume, "a"), attach(node, volume, "a")
    other = attach(node, volume, "b")
    session = login(node, two)
    assert one.connection_info["auth_password"] == two.connection_info["auth_password"]
    left = node.services.attachments.delete(CTX, one.id)
    assert {row.id for row in left} == {two.id, other.id}
    assert session.alive
    node.services.attachments.delete(CTX, two.id)
    assert not session.alive
    assert node.live(volume.id) == {initiator("b"): "rw"}


def test_the_same_connector_again_changes_nothing(node: Node) -> None:
    volume = node.shared_volume()
    row = attach(node, volume, "a")
    node.services.attachments.complete(CTX, row.id)
    session = login(node, row)
    passed: list[str] = []
    node.target().failures.watch(passed.append)
    again = node.services.attachments.connect(CTX, row.id, host_connector("a"))
    assert again.connection_info == row.connection_info
    assert again.status is AttachStatus.ATTACHED
    assert {"apply.closed", "apply.created", "apply.opened"}.isdisjoint(passed)
    assert session.alive


def test_another_connector_replaces_the_first(node: Node) -> None:
    volume = node.shared_volume()
    row = attach(node, volume, "a")
    session = login(node, row)
    moved = node.services.attachments.connect(CTX, row.id, host_connector("b"))
    assert node.live(volume.id) == {initiator("b"): "rw"}
    assert not session.alive
    assert moved.attached_host == "b"
    old, new = row.connection_info or {}, moved.connection_info or {}
    assert old["auth_password"] != new["auth_password"]


def test_a_replaced_initiator_keeps_access_that_another_attachment_wants(
    node: Node,
) -> None:
    volume = node.shared_volume()
    keeps, moves = attach(node, volume, "a"), attach(node, volume, "a")
    session = login(node, keeps)
    node.services.attachments.connect(CTX, moves.id, host_connector("b"))
    assert session.alive
    assert node.live(volume.id) == {initiator("a"): "rw", initiator("b"): "rw"}


@pytest.mark.parametrize("point", ["apply.before", "apply.created", "apply.opened"])
def test_a_failed_attach_leaves_nothing_and_does_not_touch_others(
    point: str, node: Node
) -> None:
    volume = node.shared_volume()
    session = login(node, attach(node, volume, "a"))
    failures = node.target().failures
    # Fail once: the cleanup that follows must succeed.
    with failing_once(failures, point), pytest.raises(BackendFailed):
        attach(node, volume, "b")
    assert node.live(volume.id) == {initiator("a"): "rw"}
    assert [row.attached_host for row in rows(node)] == ["a"]
    assert session.alive


def test_a_failed_connect_can_be_retried(node: Node) -> None:
    volume = node.plain_volume()
    row = node.services.attachments.create(CTX, NewAttachment(volume.id))
    with (
        failing_once(node.target().failures, "apply.created"),
        pytest.raises(BackendFailed),
    ):
        node.services.attachments.connect(CTX, row.id, host_connector("a"))
    failed = node.services.attachments.get(CTX, row.id)
    assert failed.status is AttachStatus.ERROR_ATTACHING
    assert failed.status_reason is not None
    assert node.live(volume.id) == {}
    again = node.services.attachments.connect(CTX, row.id, host_connector("a"))
    assert again.status is AttachStatus.ATTACHING
    assert again.status_reason is None
    assert node.live(volume.id) == {initiator("a"): "rw"}


def test_an_attach_whose_cleanup_fails_is_visible_until_it_is_closed(
    node: Node,
) -> None:
    volume = node.plain_volume()
    error = TargetFailed(volume.id, "because of the test")
    with node.target().failures.fail("apply.opened", error):
        with (
            pytest.raises(BackendFailed),
            node.target().failures.fail("remove.before", error),
        ):
            attach(node, volume, "a")
        assert [r.status for r in rows(node)] == [AttachStatus.DETACHING]
        with pytest.raises(Invalid, match="takes one attachment only"):
            attach(node, volume, "b")
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {}
    assert rows(node) == []
    attach(node, volume, "b")


def test_the_next_reconcile_finishes_a_failed_detach(node: Node) -> None:
    volume = node.plain_volume()
    row = attach(node, volume, "a")
    pending = DeadlineExceeded("closing", 1.0)
    with node.target().failures.fail("remove.before", pending):
        with pytest.raises(BackendUnavailable):
            node.services.attachments.delete(CTX, row.id)
        assert rows(node)[0].status is AttachStatus.ERROR_DETACHING
        seen = node.services.volumes.get(CTX, volume.id)
        assert seen.status is VolumeStatus.DETACHING
        with pytest.raises(Invalid):
            attach(node, volume, "b")
    node.assembly.reconcile.run()
    assert rows(node) == []
    assert node.live(volume.id) == {}


def test_a_second_delete_returns_not_found(node: Node) -> None:
    row = attach(node, node.plain_volume(), "a")
    node.services.attachments.delete(CTX, row.id)
    with pytest.raises(NotFound):
        node.services.attachments.delete(CTX, row.id)


def test_many_parallel_deletes_of_one_attachment_succeed(node: Node) -> None:
    volume = node.shared_volume()
    keeps = login(node, attach(node, volume, "keeps"))
    row = attach(node, volume, "a")

    def delete(_number: int) -> str:
        try:
            node.services.attachments.delete(CTX, row.id)
        except NotFound:
            return "not found"
        return "done"

    with ThreadPoolExecutor(8) as threads:
        ends = list(threads.map(delete, range(8)))
    assert sorted(ends) == ["done"] + ["not found"] * 7
    assert keeps.alive


def test_a_hanging_volume_blocks_neither_other_volumes_nor_its_clients(
    node: Node,
) -> None:
    stuck, fine = node.shared_volume(), node.shared_volume()
    gate = fake_storage.Gate()
    first = [gate.wait, lambda: None, lambda: None]
    points = node.target().failures
    points.watch(lambda at: first.pop(0)() if at == "apply.created" else None)
    waiting = threading.Thread(target=attach, args=(node, stuck, "a"))
    waiting.start()
    try:
        assert gate.reached.wait(10)
        with pytest.raises(Busy, match="the attach of host a has been running"):
            attach(node, stuck, "b")
        attach(node, fine, "c")
        assert node.live(fine.id) == {initiator("c"): "rw"}
        outcome = node.assembly.reconcile.run()
        assert outcome.failed == []
    finally:
        gate.open.set()
        waiting.join(10)
    assert node.live(stuck.id) == {initiator("a"): "rw"}


def test_a_hanging_backend_holds_only_its_share_of_the_threads(tmp_path: Path) -> None:
    fake_storage.reset()
    node = Node(tmp_path, extra="osapi_threads = 6").start()
    volumes = [node.shared_volume() for _ in range(3)]
    points = node.target().failures
    with ThreadPoolExecutor(2) as threads, points.hold("apply.before") as gate:
        held = [threads.submit(attach, node, v, "a") for v in volumes[:2]]
        assert gate.reached.wait(10)
        refused = _until_refused(node, volumes[2])
        assert "too many operations in progress" in str(refused)
        gate.open.set()
        assert all(job.result(10) for job in held)
    node.close()


def _until_refused(node: Node, volume: Volume) -> BackendUnavailable:
    """Both threads are in the driver once a third caller is refused."""
    backend = node.assembly.backends["fake"]
    deadline = threading.Event()
    while len(backend.operations.holders) < 2:
        assert not deadline.wait(0.01)
    with pytest.raises(BackendUnavailable) as caught:
        attach(node, volume, "late")
    return caught.value


def test_an_instance_can_attach_twice_for_its_live_migration(node: Node) -> None:
    volume, instance = node.plain_volume(), "6f2d5ac8-bbd8-4a8b-a1f1-b67e37d0b4d1"
    take = node.services.attachments.create
    take(CTX, NewAttachment(volume.id, instance, connector=host_connector("source")))
    take(CTX, NewAttachment(volume.id, instance, connector=host_connector("target")))
    with pytest.raises(Invalid):
        take(CTX, NewAttachment(volume.id, connector=host_connector("other")))
    assert set(node.live(volume.id)) == {initiator("source"), initiator("target")}


def test_a_volume_and_a_node_have_so_many_attachments_and_no_more(node: Node) -> None:
    """No quota counts the hosts for which a member reserves a volume."""
    create = node.services.attachments.create
    volume, other = node.shared_volume(), node.shared_volume()
    row = create(CTX, NewAttachment(volume.id))
    _multiply(node, row, MAX_OF_VOLUME)
    create(CTX, NewAttachment(volume.id, connector=host_connector("last")))
    _count_more(node, MANY_ROWS - MAX_OF_VOLUME)
    for connector_or_none in (None, host_connector("one-more")):
        with pytest.raises(Invalid, match=f"{volume.id} has {MAX_OF_VOLUME} of "):
            create(CTX, NewAttachment(volume.id, connector=connector_or_none))
    assert set(node.live(volume.id)) == {initiator("last")}
    create(CTX, NewAttachment(other.id))
    _count_more(node, MAX_ROWS - MANY_ROWS - 3)
    for each in (volume, other):
        with pytest.raises(Invalid, match=f"the node has {MAX_ROWS} attachments"):
            create(CTX, NewAttachment(each.id))
    node.services.attachments.delete(CTX, row.id)
    create(CTX, NewAttachment(node.shared_volume().id))


def test_the_volumes_of_one_member_leave_attachments_to_others(node: Node) -> None:
    """However many volumes its quota allows, each may have a part of what is left."""
    create = node.services.attachments.create
    greedy = [node.shared_volume() for _ in range(3)]
    _count_more(node, MAX_ROWS - 40)
    for volume in greedy:
        with pytest.raises(Invalid, match=f"{volume.id} has [0-9]+ of "):
            _reserve(node, volume.id, 40)
    other = node.shared_volume()
    for name in ("a", "b", "c"):
        create(CTX, NewAttachment(other.id, connector=host_connector(name)))
    assert len(node.live(other.id)) == 3


def _reserve(node: Node, volume_id: str, times: int) -> None:
    for _ in range(times):
        node.services.attachments.create(CTX, NewAttachment(volume_id))


def _count_more(node: Node, count: int) -> None:
    """Let the total of attachments grow, as if other volumes had them."""
    values = {"kind": "attachment", "place": "ro", "status": "reserved", "count": count}
    total = STATUS_TOTALS.c.count + count
    with node.assembly.database.writing() as connection:
        connection.execute(
            sqlite.insert(STATUS_TOTALS)
            .values(values)
            .on_conflict_do_update(
                index_elements=["kind", "place", "status"], set_={"count": total}
            )
        )


def _multiply(node: Node, row: Attachment, times: int) -> None:
    """Copy the row of an attachment, with ids of their own."""
    columns = [column.name for column in VOLUME_ATTACHMENT.columns]
    others = {"id": "lower(hex(randomblob(16)))", "answered": "1"}
    values = [others.get(name, name) for name in columns]
    with node.assembly.database.writing() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO volume_attachment ({', '.join(columns)}) WITH RECURSIVE"
            f" numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <"
            f" {times}) SELECT {', '.join(values)} FROM numbers, volume_attachment"
            f" WHERE id = '{row.id}'"
        )


def test_delete_of_a_volume_with_attachments_is_refused(node: Node) -> None:
    volume = node.plain_volume()
    row = node.services.attachments.create(CTX, NewAttachment(volume.id))
    with pytest.raises(Invalid, match="has 1 attachments"):
        node.services.volumes.delete(CTX, volume.id)
    node.services.attachments.delete(CTX, row.id)
    node.services.volumes.delete(CTX, volume.id)


def test_only_its_own_host_gets_the_secrets(node: Node) -> None:
    row = attach(node, node.plain_volume(), "a")
    secret = (row.connection_info or {})["auth_password"]
    assert secret not in repr(
        row.__class__(**{**_fields(row), "connection_info": None})
    )
    assert secret not in repr(rows(node))
    shown = node.services.attachments.get(CTX, row.id)
    assert (shown.connection_info or {})["auth_password"] == secret


def _fields(row: Attachment) -> dict[str, object]:
    return {name: getattr(row, name) for name in Attachment.__dataclass_fields__}
