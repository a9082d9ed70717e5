# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What rows that were deleted cost: lists beside them, and writes beside their purge.

Two complete nodes in this process, on fake backends, with their databases on the disk
of the repository: one has deleted rows, the other has none. Pages are read by turns,
so that a busy machine slows both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lunshare.agent.model.records import Page
from lunshare.agent.service.jobs.purger import Purger
from tests import dead_rows
from tests.bench.figures import Figure, median_ms, timed
from tests.bench.filling import fill, snapshots
from tests.stands.node import CTX, Node

_LIVE, _DEAD, _DAY = 1_000, 33_334, 86_400
_ROUNDS, _WRITES = 51, 300
_PAGE = Page(None, 1000)


def figures(state: Path) -> Iterator[Figure]:
    """Pages without and with 100,000 deleted rows; writes while they are purged."""
    clean, node = _filled(state, "clean"), _filled(state, "full")
    written = node.plain_volume().id
    alone = sorted(_write(node, written) for _ in range(_WRITES))
    dead_rows.add(node, _DEAD, _DAY + 1)
    for each in (clean, node):
        live = [volume.id for volume in each.services.volumes.list(CTX, _PAGE)]
        snapshots(each.path, live)
    what = "page of 1,000 rows beside 100,000 deleted rows, times without them"
    for name, (first, then) in _pages(clean, node).items():
        yield Figure(f"{name} {what}", then / first, "", most=1.25)
    clean.close()
    waits = sorted(_beside_purge(node, written))
    yield Figure("an update, nothing beside it", median_ms(alone), "ms")
    yield Figure("an update beside the purge of 100,000 rows", median_ms(waits), "ms")
    yield Figure("  99th percentile", waits[len(waits) * 99 // 100] * 1000, "ms")
    yield Figure("  longest", waits[-1] * 1000, "ms", most=250)
    node.close()


def _filled(state: Path, name: str) -> Node:
    """A node with 1,000 volumes, with three hosts each."""
    path = state / name
    path.mkdir()
    node = Node(path, backends=name).start()
    fill(path, _LIVE, name)
    return node


def _calls(node: Node) -> dict[str, Callable[[], Sequence[object]]]:
    services = node.services
    return {
        "volumes": lambda: services.volumes.list(CTX, _PAGE),
        "attachments": lambda: services.attachments.list(CTX, _PAGE),
        "snapshots": lambda: services.snapshots.list(CTX, _PAGE),
    }


def _pages(*nodes: Node) -> dict[str, list[float]]:
    """The median of each kind of page, of each node."""
    calls = [_calls(node) for node in nodes]
    for call in (call for each in calls for call in each.values()):
        assert len(call()) == _LIVE
    return {name: _by_turns([each[name] for each in calls]) for name in calls[0]}


def _by_turns(calls: list[Callable[[], Sequence[object]]]) -> list[float]:
    rounds = [[timed(call) for call in calls] for _ in range(_ROUNDS)]
    return [median_ms(times) for times in zip(*rounds, strict=True)]


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
    assert dead_rows.counts(node) == [3 * _LIVE, _LIVE, _LIVE + 1]
