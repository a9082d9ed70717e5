# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon that the clients talk to: two fake backends, no quota."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients.strategies import Strategy
from tests.scheduler.servers import Server, free_port, listens, until

BACKENDS = ("first", "second")
HOST = "node"
# What the fake driver calls a disk or a snapshot after its unmanage.
UNMANAGED = "unmanaged-%s"

_CONFIG = """
[DEFAULT]
{options}
enabled_backends = first, second
host = node
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
[first]
volume_driver = fake
target_driver = fake
[second]
volume_driver = fake
target_driver = fake
"""


class Node:
    """lunshared as a process, with its log in the directory."""

    def __init__(self, directory: Path, strategy: Strategy) -> None:
        self.strategy, self.directory = strategy, directory
        self._config = directory / "lunshare.conf"
        self._config.write_text(_CONFIG.format(options=strategy.options))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}/v3"
        self._server = Server("lunshared", directory)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        words = [sys.executable, "-m", "lunshare.agent.main"]
        words += [f"--config-file={self._config}", f"--listen=127.0.0.1:{self.port}"]
        self._server.run([*words, f"--state-path={self.directory / 'state'}"])
        until(lambda: listens(self.port), "lunshared listens")

    def close(self) -> None:
        """Stop it."""
        self._server.end()


def host(backend: str) -> str:
    """The host of a volume on that backend, as the API shows it."""
    return f"{HOST}@{backend}#{backend}"
