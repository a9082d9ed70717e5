# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon that Tempest tests: two fake backends, and its whole configuration."""

from __future__ import annotations

from pathlib import Path

from tests.stands.daemon import Lunshared, configuration

BACKENDS = ("first", "second")
# What the fake driver calls a disk and a snapshot after their unmanage.
DISK, SNAPSHOT = "unmanaged-%s", "unmanaged-%s"


class NodeUnderTest(Lunshared):
    """lunshared as a process, with its log in the directory."""

    def __init__(self, directory: Path, keystone: str) -> None:
        """``keystone``: the section for the Keystone that validates tokens."""
        options = f"auth_strategy = keystone\nhost = node\n{keystone}"
        super().__init__(directory, configuration(options, BACKENDS))
        self.endpoint = f"{self.url}/v3/$(project_id)s"

    def left(self) -> list[str]:
        """Nothing is looked for: the storage ends with the daemon's process."""
        return []
