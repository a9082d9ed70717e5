# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon that the clients talk to: two fake backends, no quota."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.clients.strategies import TABLE
from tests.stands.callers import USER, Caller
from tests.stands.keystone import PROJECT_NAME, SERVICE
from tests.stands.servers import Server, free_port, listens
from tests.stands.waiting import until

BACKENDS = ("first", "second")
HOST = "node"
# What the fake driver calls a disk or a snapshot after its unmanage.
UNMANAGED = "unmanaged-%s"

_CONFIG = """
[DEFAULT]
enabled_backends = first, second
host = node
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
{options}
[first]
volume_driver = fake
target_driver = fake
[second]
volume_driver = fake
target_driver = fake
"""


class Node:
    """lunshared as a process, with its log in the directory."""

    def __init__(self, directory: Path, caller: Caller) -> None:
        self.caller, self.directory = caller, directory
        self.strategy = TABLE[caller.strategy]
        self._config = directory / "lunshare.conf"
        self._config.write_text(_CONFIG.format(options=caller.options))
        self._port = free_port()
        self._server = Server("lunshared", directory)

    def start(self) -> None:
        """Start it, and wait until it listens. Keystone's catalog names it."""
        words = [sys.executable, "-m", "lunshare.agent.main"]
        words += [f"--config-file={self._config}", f"--listen=127.0.0.1:{self._port}"]
        self._server.run([*words, f"--state-path={self.directory / 'state'}"])
        until(lambda: listens(self._port), "lunshared listens")
        if self.caller.keystone is not None:
            address = f"http://127.0.0.1:{self._port}"
            self.caller.keystone.announce(f"{address}/v3/$(project_id)s")

    def filled(self, text: str) -> str:
        """A setting of a client, with what is known of this daemon."""
        server = self.caller.keystone
        return text.format(
            address=f"127.0.0.1:{self._port}",
            user=USER,
            password=self.caller.password,
            project=self.caller.project,
            project_name=PROJECT_NAME,
            service=SERVICE,
            keystone="" if server is None else server.url,
        )

    def environ(self, values: Mapping[str, str]) -> dict[str, str]:
        """Settings of a client in its environment."""
        return {name: self.filled(text) for name, text in values.items()}

    def close(self) -> None:
        """Stop it."""
        self._server.end()


def host(backend: str) -> str:
    """The host of a volume on that backend, as the API shows it."""
    return f"{HOST}@{backend}#{backend}"
