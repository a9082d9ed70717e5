# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How far a stock Cinder with lunshare's driver goes, into docs/fleet.md.

``tests/bench/run scale``, or with ``node``, ``reports`` or ``rows`` a part of it.
RabbitMQ, MariaDB, cinder-api and cinder-scheduler are stock, and one cinder-volume with
lunshare's driver on fake storage; every other node is a fake one (``fake_nodes``).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import scale_node, scale_reports, scale_rows, scale_table
from tests.bench.figures import Figure, say, write
from tests.bench.scale_stack import Nodes, ScaleStack
from tests.stands.servers import ROOT

_LEVELS = (100, 300, 1000)
#: MariaDB's default of 128 MiB, and the 512 MiB of the tests, hold no million rows.
_MEMORY = ("--innodb-buffer-pool-size-max=4G", "--innodb-buffer-pool-size=4G")


Keep = Callable[[Figure], None]


def main(argv: list[str]) -> int:
    """Measure these parts, print, and write docs/fleet.md."""
    for part in argv or list(_PARTS):
        print(f"== {part}", flush=True)
        _measure(part, ROOT / "build")
    scale_table.write_page()
    return 0


def _measure(part: str, build: Path) -> None:
    """Write build/bench-scale-PART.json, and what the servers have logged."""
    build.mkdir(exist_ok=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=build) as directory:
        try:
            _PARTS[part](Path(directory), lambda each: figures.append(say(each)))
        finally:
            _keep_logs(Path(directory), build / f"scale-{part}")
    write(build / f"bench-scale-{part}.json", figures)


def _node(directory: Path, keep: Keep) -> None:
    with ScaleStack(directory) as stack:
        scale_node.figures(stack, keep)


def _reports(directory: Path, keep: Keep) -> None:
    with ScaleStack(directory) as stack, _nodes(stack) as nodes:
        scale_reports.figures(stack, nodes, _LEVELS, keep)


def _rows(directory: Path, keep: Keep) -> None:
    with ScaleStack(directory, *_MEMORY) as stack, _nodes(stack) as nodes:
        scale_rows.figures(stack, nodes, keep)


def _nodes(stack: ScaleStack) -> Nodes:
    return Nodes(stack.config, stack.directory / "fake-nodes.log")


_PARTS = {"node": _node, "reports": _reports, "rows": _rows}


def _keep_logs(directory: Path, to: Path) -> None:
    to.mkdir(exist_ok=True)
    for log in directory.glob("*.log"):
        (to / log.name).write_bytes(log.read_bytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
