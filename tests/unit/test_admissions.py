# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses may connect to a portal is a function of the rows."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import attachments
from lunshare.agent.model.errors import BackendFailed, Invalid
from lunshare.agent.model.records import Attachment, NewAttachment, Volume
from lunshare.agent.service.attachments import connectors
from tests.stands.node import CTX, Node, connector, failing_once, node_fixture

node = node_fixture(forget_storage=True, section="fake_firewall = true")


def host(number: int, address: Any) -> dict[str, Any]:
    return connector(f"h{number}") | {"ip": address}


def attach(node: Node, volume: Volume, sent: dict[str, Any]) -> Attachment:
    new = NewAttachment(volume.id, connector=connectors.parse(sent))
    return node.services.attachments.create(CTX, new)


def admitted(node: Node) -> set[str] | None:
    return node.target().storage.admitted


def test_an_address_is_admitted_while_any_attachment_has_it(node: Node) -> None:
    first, second = node.shared_volume(), node.shared_volume()
    rows = [
        attach(node, first, host(1, "192.0.2.1")),
        attach(node, second, host(1, "192.0.2.1")),
        attach(node, second, host(2, "192.0.2.2")),
    ]
    assert admitted(node) == {"192.0.2.1", "192.0.2.2"}
    node.services.attachments.delete(CTX, rows[0].id)
    assert admitted(node) == {"192.0.2.1", "192.0.2.2"}
    node.services.attachments.delete(CTX, rows[1].id)
    assert admitted(node) == {"192.0.2.2"}


@pytest.mark.parametrize(
    "address",
    [None, "", "storage-1", "192.0.2.300", "0.0.0.0", "224.0.0.1", 7, "fe80::1%e"],
)
def test_what_is_no_address_of_a_host_admits_nobody(node: Node, address: Any) -> None:
    attach(node, node.shared_volume(), host(1, address))
    assert admitted(node) == set()
    assert node.assembly.reconcile.run().changed == []


@pytest.mark.parametrize(
    ("form", "plain"),
    [
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:192.0.2.9", "192.0.2.9"),
        ("::FFFF:C000:209", "192.0.2.9"),
    ],
)
def test_two_forms_of_an_address_are_one(node: Node, form: str, plain: str) -> None:
    """One that is mapped from IPv4 arrives as IPv4."""
    volume = node.shared_volume()
    row = attach(node, volume, host(1, form))
    assert admitted(node) == {plain}
    attach(node, volume, host(2, plain))
    node.services.attachments.delete(CTX, row.id)
    assert admitted(node) == {plain}


def test_it_is_admitted_before_the_access_opens_and_until_it_is_closed(
    node: Node,
) -> None:
    volume, target = node.shared_volume(), node.target()
    order: list[tuple[str, bool]] = []
    points = ("apply.before", "apply.after", "remove.before", "remove.after")

    def note(point: str) -> None:
        if point in points:
            order.append((point, "192.0.2.1" in (admitted(node) or ())))

    target.failures.watch(note)
    row = attach(node, volume, host(1, "192.0.2.1"))
    node.services.attachments.delete(CTX, row.id)
    target.failures.watch(lambda _: None)
    assert order == [(point, True) for point in points]
    assert admitted(node) == set()


def test_the_address_of_a_replaced_host_is_closed_with_its_access(node: Node) -> None:
    row = attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    node.services.attachments.connect(
        CTX, row.id, connectors.parse(host(2, "192.0.2.2"))
    )
    assert admitted(node) == {"192.0.2.2"}


def test_a_replaced_host_that_another_row_wants_stays_admitted(node: Node) -> None:
    row = attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    node.services.attachments.connect(
        CTX, row.id, connectors.parse(host(2, "192.0.2.2"))
    )
    assert admitted(node) == {"192.0.2.1", "192.0.2.2"}


def test_a_host_that_moves_is_admitted_at_its_new_address_only(node: Node) -> None:
    row = attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    node.services.attachments.connect(
        CTX, row.id, connectors.parse(host(1, "192.0.2.2"))
    )
    assert admitted(node) == {"192.0.2.2"}


def test_a_repeat_after_a_failure_admits_the_host_where_it_is_now(node: Node) -> None:
    row = attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    moved = connectors.parse(host(1, "192.0.2.2"))
    failing = failing_once(node.target().failures, "admit")
    with failing, pytest.raises(BackendFailed):
        node.services.attachments.connect(CTX, row.id, moved)
    node.services.attachments.connect(CTX, row.id, moved)
    assert "192.0.2.2" in (admitted(node) or ())
    assert node.assembly.reconcile.run().changed == ["hosts admitted anew"]
    assert admitted(node) == {"192.0.2.2"}


def test_a_host_that_moves_by_the_old_api_keeps_what_os_attach_wrote(
    node: Node,
) -> None:
    volume, legacy = node.shared_volume(), node.services.legacy
    legacy.reserve(CTX, volume.id)
    legacy.initialize(CTX, volume.id, connectors.parse(host(1, "192.0.2.1")))
    legacy.attach(CTX, volume.id, "/dev/vdb", instance=None, host="h1", mode=None)
    moved = host(1, "192.0.2.2")
    row = legacy.initialize(CTX, volume.id, connectors.parse(moved))
    assert admitted(node) == {"192.0.2.2"}
    stored = node.services.attachments.get(CTX, row.id)
    assert stored.connector == moved
    assert stored.mountpoint == "/dev/vdb"
    assert node.assembly.reconcile.run().changed == []


def test_a_terminated_connection_closes_its_address(node: Node) -> None:
    volume, sent = node.shared_volume(), host(1, "192.0.2.1")
    legacy = node.services.legacy
    legacy.reserve(CTX, volume.id)
    legacy.initialize(CTX, volume.id, connectors.parse(sent))
    assert admitted(node) == {"192.0.2.1"}
    legacy.terminate(CTX, volume.id, connectors.parse(sent))
    assert admitted(node) == set()


def test_what_cannot_be_admitted_is_not_attached(node: Node) -> None:
    volume = node.shared_volume()
    failing = failing_once(node.target().failures, "admit")
    with failing, pytest.raises(BackendFailed):
        attach(node, volume, host(1, "192.0.2.1"))
    assert node.live(volume.id) == {}


def test_a_lost_firewall_is_made_again_by_an_attach_and_by_reconcile(
    node: Node,
) -> None:
    volume = node.shared_volume()
    attach(node, volume, host(1, "192.0.2.1"))
    node.target().storage.admitted = None
    attach(node, volume, host(2, "192.0.2.2"))
    assert admitted(node) == {"192.0.2.1", "192.0.2.2"}
    node.target().storage.admitted = {"192.0.2.66"}
    assert len(node.assembly.reconcile.run().changed) == 1
    assert admitted(node) == {"192.0.2.1", "192.0.2.2"}


def test_attaches_at_once_from_one_address_end_right(node: Node) -> None:
    volume = node.shared_volume()

    def cycle(number: int) -> None:
        for _ in range(5):
            row = attach(node, volume, host(number, "192.0.2.1"))
            node.services.attachments.delete(CTX, row.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cycle, range(8)))
    assert admitted(node) == set()
    attach(node, volume, host(1, "192.0.2.1"))
    assert admitted(node) == {"192.0.2.1"}


def test_the_rows_of_an_address_are_found_by_an_index(node: Node) -> None:
    with node.assembly.database.reading() as connection:
        plan = connection.execute(
            sa.text(
                "EXPLAIN QUERY PLAN SELECT id FROM volume_attachment WHERE"
                " json_extract(connector, '$.ip') = 'x' AND deleted = 0"
            )
        ).all()
        assert not attachments.any_at_address(connection, "fake", "192.0.2.1")
    assert "attachments_at_address" in str(plan)


def test_a_database_without_the_index_gets_it(tmp_path: Path) -> None:
    Node(tmp_path).start().close()
    with closing(sqlite3.connect(tmp_path / "lunshare.sqlite")) as database:
        database.execute("DROP INDEX attachments_at_address")
        database.commit()
    node = Node(tmp_path, section="fake_firewall = true").start()
    attach(node, node.shared_volume(), host(1, "192.0.2.1"))
    assert admitted(node) == {"192.0.2.1"}
    node.close()


def test_a_host_that_names_no_address_is_refused_where_it_would_reach_no_portal(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, section="fake_needs_addresses = true").start()
    volume = node.shared_volume()
    with pytest.raises(Invalid, match=r"connector\.ip is missing"):
        attach(node, volume, host(1, None))
    row = attach(node, volume, host(1, "192.0.2.1"))
    node.services.attachments.delete(CTX, row.id)
    node.close()
