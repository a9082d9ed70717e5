# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What an attach costs must not grow with the hosts that its volume has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from lunshare.agent.model.records import Volume
from tests.bench.filling import hosts
from tests.stands.node import CTX, Node, attach, node_fixture

HOSTS = 1000


node = node_fixture()


class Cost:
    """Statements that were executed, and the steps that SQLite took for them."""

    statements = steps = 0


@contextmanager
def counted(node: Node) -> Iterator[Cost]:
    cost = Cost()
    engine = node.assembly.database.engine

    me = threading.get_ident()

    def statement(text: str) -> None:
        """Timers write too, and a thread may commit for another one."""
        work = text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
        cost.statements += work and threading.get_ident() == me

    def step() -> None:
        cost.steps += threading.get_ident() == me

    def watch(driver: object, *_: object) -> None:
        driver.set_progress_handler(step, 1)  # type: ignore[attr-defined]
        driver.set_trace_callback(statement)  # type: ignore[attr-defined]

    node.assembly.database.close()  # the next connections are watched
    sa.event.listen(engine, "connect", watch)
    attach_and_detach(node, node.shared_volume(), "warm")
    cost.statements = cost.steps = 0
    yield cost
    sa.event.remove(engine, "connect", watch)


def attach_and_detach(node: Node, volume: Volume, host: str) -> int:
    """How many attachments the answer to the detach has."""
    row = attach(node, volume, host, "ro")
    node.services.attachments.complete(CTX, row.id)
    return len(node.services.attachments.delete(CTX, row.id))


def test_an_attach_and_a_detach_cost_the_same_with_a_thousand_hosts(node: Node) -> None:
    few, many = node.shared_volume(), node.shared_volume()
    hosts(node.path, few.id, 1)
    hosts(node.path, many.id, HOSTS)
    costs = []
    for volume in (few, many):
        with counted(node) as cost:
            attach_and_detach(node, volume, "new")
        costs.append(cost)
    assert costs[0].statements == costs[1].statements
    # The answer to the detach names a hundred of those that are left.
    assert costs[1].steps < costs[0].steps + 100 * 40
    with counted(node) as cost:
        row = attach(node, many, "newer", "ro")
        node.services.attachments.complete(CTX, row.id)
    with counted(node) as first:
        row = attach(node, few, "newer", "ro")
        node.services.attachments.complete(CTX, row.id)
    assert cost.steps < first.steps * 1.1
