# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of pool stats with more and more volumes.

``python -m tests.bench.stats``. A complete node in this process, on the fake, with
rows in its database and disks in its storage. Pool stats are what the timer does
for a backend: check, capacity, wipes, and counting its volumes in SQL. A choice is the
scheduler's work for one create.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.bench.figures import Figure, median_ms, say, timed
from tests.bench.filling import fill
from tests.stands.node import CTX, Node
from tests.stands.servers import ROOT

_LEVELS = (10, 1_000, 5_000)
_ROUNDS = 51


def main() -> None:
    """Print them."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    # Beside the repository, as in tests.bench.control_plane.
    with tempfile.TemporaryDirectory(dir=build) as directory:
        for figure in figures(Path(directory)):
            say(figure)


def figures(state: Path) -> Iterator[Figure]:
    """For one backend, with more and more volumes."""
    node, held = Node(state).start(), 0
    storage = fake_storage.storage("fake")
    for level in _LEVELS:
        for volume_id in fill(state, level - held):
            storage.create(volume_id, GIB).complete = True
        held = level
        yield from _measured(node, f"{level:,} volumes")
    node.close()


def _measured(node: Node, where: str) -> Iterator[Figure]:
    work: dict[str, Callable[[], object]] = {
        "pool stats of a backend": node.services.node.refresh,
        "get_pools of a backend": lambda: node.services.node.pools(CTX),
        "a choice": lambda: node.services.scheduler.explain(CTX, 1, None, None),
    }
    for name, call in work.items():
        times = [timed(call) for _ in range(_ROUNDS)]
        yield Figure(f"{name}, {where}", median_ms(times), "ms")


if __name__ == "__main__":
    main()
