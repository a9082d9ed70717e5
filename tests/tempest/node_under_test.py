# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon that Tempest tests: two fake backends, and its whole configuration."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.stands.servers import Server, free_port, listens
from tests.stands.waiting import until

BACKENDS = ("first", "second")
# What the fake driver calls a disk and a snapshot after their unmanage.
DISK, SNAPSHOT = "unmanaged-%s", "unmanaged-%s"

_CONFIG = """
[DEFAULT]
auth_strategy = keystone
enabled_backends = first, second
host = node
{keystone}
[first]
volume_driver = fake
target_driver = fake
[second]
volume_driver = fake
target_driver = fake
"""


class NodeUnderTest:
    """lunshared as a process, with its log in the directory."""

    def __init__(self, directory: Path, keystone: str) -> None:
        """``keystone``: the section for the Keystone that validates tokens."""
        self._directory = directory
        self._config = directory / "lunshare.conf"
        self._config.write_text(_CONFIG.format(keystone=keystone))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}/v3/$(project_id)s"
        self._server = Server("lunshared", directory)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        words = [sys.executable, "-m", "lunshare.agent.main"]
        words += [f"--config-file={self._config}", f"--listen=127.0.0.1:{self.port}"]
        self._server.run([*words, f"--state-path={self._directory / 'state'}"])
        until(lambda: listens(self.port), "lunshared listens")

    def close(self) -> None:
        """Stop it."""
        self._server.end()

    def left(self) -> list[str]:
        """Nothing is looked for: the storage ends with the daemon's process."""
        return []
