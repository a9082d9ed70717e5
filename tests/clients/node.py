# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon that the clients talk to: two fake backends, no quota."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.clients.strategies import TABLE
from tests.stands.callers import USER, Caller
from tests.stands.daemon import NO_QUOTAS, Lunshared, configuration
from tests.stands.keystone import PROJECT_NAME, SERVICE

BACKENDS = ("first", "second")
HOST = "node"
# What the fake driver calls a disk or a snapshot after its unmanage.
UNMANAGED = "unmanaged-%s"


class Node(Lunshared):
    """lunshared as a process, with its log in the directory."""

    def __init__(self, directory: Path, caller: Caller) -> None:
        options = f"host = {HOST}\n{NO_QUOTAS}{caller.options}"
        super().__init__(directory, configuration(options, BACKENDS))
        self.caller = caller
        self.strategy = TABLE[caller.strategy]

    def start(self, **env: str) -> None:
        """Start it, and wait until it is ready. Keystone's catalog names it."""
        super().start(**env)
        if self.caller.keystone is not None:
            self.caller.keystone.announce(f"{self.url}/v3/$(project_id)s")

    def filled(self, text: str) -> str:
        """A setting of a client, with what is known of this daemon."""
        server = self.caller.keystone
        return text.format(
            address=self.listen[0],
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


def host(backend: str) -> str:
    """The host of a volume on that backend, as the API shows it."""
    return f"{HOST}@{backend}#{backend}"
