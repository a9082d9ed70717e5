# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host with a path to each portal, in a network whose cables are pulled."""

from __future__ import annotations

import subprocess

from tests.system.fence_rounds import AT, Path
from tests.system.frozen_writer import FrozenWriter
from tests.system.hosts import Info

#: The network namespace of the host, and its ends of both cables (become_node).
NETWORK, CABLES = "lost", ("path0", "path1")


class CutHost:
    """It writes another block on each path."""

    def __init__(self, name: str) -> None:
        self._writers = [
            FrozenWriter(name, AT + number, ("ip", "netns", "exec", NETWORK))
            for number, _ in enumerate(CABLES)
        ]

    def paths(self, info: Info) -> list[Path]:
        """Return one for each portal in a connection_info."""
        portals = info["target_portals"]
        assert len(portals) == len(CABLES), portals
        return [
            Path(writer, {**info, "target_portal": portal}, AT + number)
            for number, (writer, portal) in enumerate(
                zip(self._writers, portals, strict=True)
            )
        ]

    def cut(self) -> None:
        """Pull both cables."""
        self._set("down")

    def mend(self) -> None:
        """Put them back."""
        self._set("up")

    def _set(self, state: str) -> None:
        for cable in CABLES:
            words = ["ip", "-n", NETWORK, "link", "set", cable, state]
            subprocess.run(words, check=True)

    def kill(self) -> None:
        """End its processes."""
        self.mend()
        for writer in self._writers:
            writer.kill()
