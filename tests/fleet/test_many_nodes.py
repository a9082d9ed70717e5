# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fake nodes of ``tests/bench/run scale`` are nodes for a stock Cinder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.http import Client
from tests.bench.scale_stack import POOL, Nodes, pool_report
from tests.fleet import api
from tests.fleet.stack import Stack
from tests.stands.waiting import until

_COUNT = 3


@pytest.fixture
def nodes(stack: Stack) -> Iterator[Nodes]:
    with Nodes(stack.config, stack.directory / "fake-nodes.log") as made:
        made.ask("grow", count=_COUNT, report=pool_report(stack))
        yield made
    until(lambda: not known(stack), "the scheduler has forgotten the nodes")


def known(stack: Stack) -> set[str]:
    """The fake nodes that the scheduler knows."""
    return {each.partition("@")[0] for each in stack.pools() if f"@{POOL}#" in each}


def test_scheduler_knows_fake_nodes_and_places_a_volume_on_each(
    stack: Stack, client: Client, nodes: Nodes
) -> None:
    until(lambda: len(known(stack)) == _COUNT, "the scheduler knows the nodes")
    # A report between two creates makes the scheduler forget where it put the first.
    nodes.ask("begin", heartbeat=1, report=3600)
    asked = {"size": 1, "volume_type": api.shared_type(client, POOL)}
    ids = {
        client("POST", "/volumes", {"volume": asked})["volume"]["id"]
        for _ in range(_COUNT)
    }
    done = nodes.done(ids, 60)
    assert {each["node"].partition("@")[0] for each in done.values()} == known(stack)
    for volume_id, moments in done.items():
        assert moments["asked"] < moments["chosen"] < moments["done"]
        assert api.show(client, volume_id)["status"] == "available"
    until(lambda: nodes.ask("counted")["heartbeats"] > 0, "heartbeats are stored")
    nodes.ask("end")
    nodes.ask("begin", heartbeat=1, report=1)
    until(lambda: nodes.ask("counted")["reports"] > 0, "they report")
