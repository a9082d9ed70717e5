# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What rows that were deleted cost: lists beside them, and writes beside their purge.

A complete node in this process, on the fake backend, with its database on the disk
of the repository.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from lunshare.agent.records import Page
from lunshare.agent.service.purger import Purger
from tests import dead_rows
from tests.bench.figures import Figure, median_ms, timed
from tests.bench.filling import fill
from tests.node import CTX, Node

_LIVE, _DEAD, _DAY = 1_000, 33_334, 86_400
_ROUNDS, _WRITES = 25, 300
_PAGE = Page(None, 1000)


def figures(state: Path) -> Iterator[Figure]:
    """Pages without and with 100,000 deleted rows; writes while they are purged."""
    node = Node(state).start()
    written = node.plain_volume().id
    fill(state, _LIVE)
    before = _pages(node)
    alone = sorted(_write(node, written) for _ in range(_WRITES))
    dead_rows.add(node, _DEAD, _DAY + 1)
    what = "page of 1,000 volumes beside 100,000 deleted rows, times without them"
    for name, first, then in zip(_calls(node), before, _pages(node), strict=True):
        yield Figure(f"{name} {what}", then / first, "", most=1.25)
    waits = sorted(_beside_purge(node, written))
    yield Figure("an update, nothing beside it", median_ms(alone), "ms")
    yield Figure("an update beside the purge of 100,000 rows", median_ms(waits), "ms")
    yield Figure("  99th percentile", waits[len(waits) * 99 // 100] * 1000, "ms")
    yield Figure("  longest", waits[-1] * 1000, "ms", most=250)
    node.close()


def _calls(node: Node) -> dict[str, Callable[[], object]]:
    services = node.services
    return {
        "volumes": lambda: services.volumes.list(CTX, _PAGE),
        "attachments": lambda: services.attachments.list(CTX, _PAGE),
        "snapshots": lambda: services.snapshots.list(CTX, _PAGE),
    }


def _pages(node: Node) -> list[float]:
    return [
        median_ms(timed(call) for _ in range(_ROUNDS)) for call in _calls(node).values()
    ]


def _write(node: Node, volume_id: str) -> float:
    name = {"name": "still here"}
    return timed(lambda: node.services.volumes.update(CTX, volume_id, name))


def _beside_purge(node: Node, volume_id: str) -> Iterator[float]:
    purger, done = Purger(node.assembly.database, _DAY), threading.Event()

    def purge() -> None:
        while purger.purge():
            pass
        done.set()

    threading.Thread(target=purge).start()
    while not done.is_set():
        yield _write(node, volume_id)
    assert dead_rows.counts(node) == [3 * _LIVE, 0, _LIVE + 1]
