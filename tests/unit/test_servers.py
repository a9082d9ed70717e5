# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The servers that tests start leave no process."""

from __future__ import annotations

from pathlib import Path

from tests.stands.servers import Server, children, runs
from tests.stands.waiting import until


def test_ended_server_leaves_nothing_that_it_started(tmp_path: Path) -> None:
    server = Server("parent", tmp_path)
    # As cinder-volume, whose workers go on when only their parent is killed.
    server.run(["sh", "-c", "sh -c 'sleep 600; true' & sleep 600"])
    assert server.process is not None
    parent = server.process.pid
    until(lambda: len(children(parent)) == 3, "it has started them")
    below = children(parent)
    server.end()
    assert not any(map(runs, below))
    assert server.process is None
