# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What fences find, by names without case, and what they read and write for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from lunshare.agent.db import host_fences
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import NewAttachment, Page, Volume
from lunshare.agent.model.states import FenceKind
from lunshare.agent.service.attachments import connectors, fencing
from tests.bench.filling import fill
from tests.stands.node import CTX, Node, host_connector
from tests.unit.test_fencing import (
    ALPHA,
    BETA,
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


def named(node: Node, other: Volume, name: str) -> None:
    """alpha attaches it, and calls itself so."""
    sent = {**host_connector("alpha").sent, "host": name}
    new = NewAttachment(other.id, connector=connectors.parse(sent))
    node.services.attachments.create(CTX, new)


@pytest.mark.parametrize("name", ["ALPHA", "Alpha", "alpha"])
def test_names_of_hosts_have_no_case(node: Node, volume: Volume, name: str) -> None:
    """RFC 4343. "Fenced" with no volume was the proof for another spelling."""
    other = node.plain_volume()
    named(node, other, "Alpha")
    shown = fence(node, name)
    assert (shown.host, len(shown.volumes)) == ("alpha", 2)
    assert (node.live(volume.id), node.live(other.id)) == ({BETA: RW}, {})
    for spelling in ("alpha", "aLPHA"):
        with pytest.raises(Conflict, match="unfence alpha"):
            named(node, node.plain_volume(), spelling)
        assert node.services.fences.show(CTX, spelling).volumes == shown.volumes
    assert unfence(node, name.lower()).status == "unfenced"
    assert node.live(other.id) == {ALPHA: RW}


def test_a_letter_that_only_looks_alike_is_another_name(
    node: Node, volume: Volume
) -> None:
    """The Kelvin sign in lower case is k, but no letter of ASCII."""
    other = node.shared_volume()
    set_metadata(node, other, writers="k1")
    named(node, other, "\u212a1")
    assert node.live(other.id) == {ALPHA: RO}
    assert fence(node, "k1").volumes == []


def test_os_attach_and_lists_know_a_host_in_any_case(node: Node) -> None:
    plain, actions = node.plain_volume(), node.services.legacy
    actions.initialize(CTX, plain.id, host_connector("alpha"))
    actions.attach(CTX, plain.id, "/x", instance=None, host="ALPHA", mode=None)
    (row,) = node.services.volumes.get(CTX, plain.id).attachments
    page = Page(None, 10, filters={"attached_host": "aLpHa"})
    assert [found.id for found in node.services.attachments.list(CTX, page)] == [row.id]
    actions.attach(CTX, plain.id, "/x", instance=None, host="alpha", mode=None)
    assert len(node.services.volumes.get(CTX, plain.id).attachments) == 1
    assert [access.row.id for access in fence(node, "Alpha").volumes] == [row.id]


def test_a_fence_that_was_killed_before_its_rows_is_finished(
    node: Node, volume: Volume
) -> None:
    with node.assembly.database.writing() as connection:
        names = ["alpha", ALPHA]
        host_fences.write(connection, "alpha", names, FenceKind.ALL, now())
    assert node.live(volume.id)[ALPHA] == RW
    assert node.services.fences.show(CTX, "alpha").status == "fence pending"
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {BETA: RW}
    assert node.services.fences.show(CTX, "alpha").status == "fenced"


def test_a_stricter_fence_is_not_proven_by_the_one_before_it(
    node: Node, volume: Volume
) -> None:
    assert fence(node, writes_only=True).status == "fenced"
    with node.assembly.database.writing() as connection:
        names = ["alpha", ALPHA]
        host_fences.write(connection, "alpha", names, FenceKind.ALL, now())
    assert node.live(volume.id)[ALPHA] == RO
    assert node.services.fences.show(CTX, "alpha").status == "fence pending"


def test_an_unfence_that_was_killed_before_its_rows_is_finished(
    node: Node, volume: Volume
) -> None:
    """Under another name of the initiator too, and with the writers policy."""
    other = node.plain_volume()
    named(node, other, "alpha.example")
    set_metadata(node, volume, writers="alpha beta")
    fence(node)
    set_metadata(node, volume, writers="beta")
    with node.assembly.database.writing() as connection:
        host_fences.remove(connection, "alpha")
    node.assembly.reconcile.run()
    assert node.live(volume.id) == {ALPHA: RO, BETA: RW}
    assert node.live(other.id) == {ALPHA: RW}
    assert of(node, volume, "alpha").mode is RO


@contextmanager
def statements(node: Node) -> Iterator[Callable[[], list[str]]]:
    """The statements of this thread so far, on connections of this block."""
    engine, seen, me = node.assembly.database.engine, [], threading.get_ident()

    def watch(driver: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        def note(text: str) -> None:
            if threading.get_ident() == me and text.startswith(("SELECT", "UPDATE")):
                seen.append(text)

        driver.set_trace_callback(note)

    node.assembly.database.close()
    sa.event.listen(engine, "connect", watch)
    yield lambda: list(seen)
    sa.event.remove(engine, "connect", watch)
    node.assembly.database.close()


def test_a_list_of_many_fences_runs_as_many_statements_as_one_of_few(
    node: Node, volume: Volume
) -> None:
    counts = []
    for fences in (["alpha", "beta"], [f"host-{number}" for number in range(60)]):
        for host in fences:
            fence(node, host)
        with statements(node) as so_far:
            listed = node.services.fences.list(CTX)
            counts.append(len(so_far()))
    assert [f.host for f in listed] == sorted({"alpha", "beta", *fences})
    assert {f.host: len(f.volumes) for f in listed if f.volumes} == {
        "alpha": 1,
        "beta": 1,
    }
    assert counts[0] == counts[1] <= 5


def test_a_fence_of_many_attachments_is_written_in_small_transactions(
    node: Node, volume: Volume
) -> None:
    count = 3 * fencing._ROWS_AT_ONCE
    fill(node.path, count)
    with statements(node) as so_far:
        shown = node.services.fences.fence(CTX, "host-1", seconds=0)
        texts = set(so_far())  # SQLite traces an update once more for each trigger
    assert len(shown.volumes) == count
    assert sum(text.startswith("UPDATE volume_attachment") for text in texts) == 3
    assert len(texts) < 20


def test_nothing_of_a_fence_reads_attachments_of_other_hosts(
    node: Node, volume: Volume
) -> None:
    with statements(node) as so_far:
        fence(node, "alpha")
        node.assembly.reconcile._fences.finish()
        texts = {text for text in so_far() if "volume_attachment" in text}
    plans = []
    with node.assembly.database.reading() as connection:
        for text in texts:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")
            plans += [(row[3], text) for row in plan]
    scans = [plan for plan in plans if plan[0].startswith("SCAN volume_attachment")]
    assert all("USING INDEX attachments_fenced" in plan for plan, _ in scans), scans
