# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest of the lab: installs the node, then does what the tests ask.

``python -m tests.fleet_nodes.in_guest ADDRESS LOG``. The tests ask over XML-RPC, in the
network of the run only. The hosts are here too: initiators that log in to the portals
of both nodes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from lunshare.drivers.values import Auth
from tests.fleet_nodes.host_io import HostIo
from tests.fleet_nodes.kills import Kill
from tests.lab.steps import sh
from tests.stands.guest_server import Machine, serve
from tests.system.compute_client import Compute
from tests.system.hosts import write_protected
from tests.system.kernel import Live, exported_volumes
from tests.system.lio_hosts import LoginRefused, Session


class NodeMachine(Machine):
    """What the tests can ask of a node."""

    def __init__(self) -> None:
        self._sessions: list[Session] = []
        self._io: dict[int, HostIo] = {}
        self._kills: list[Kill] = []
        self._compute: Compute | None = None

    def exports(self) -> dict[str, dict[str, str]]:
        """The live target: the mode of each initiator, by volume."""
        found = {volume: Live(volume).modes() for volume in exported_volumes()}
        return {
            volume: {name: mode or "none" for name, mode in modes.items()}
            for volume, modes in found.items()
        }

    def login(
        self, initiator: str, iqn: str, portal: str, user: str, secret: str
    ) -> int:
        """Log a host in; -1 if the target refuses it."""
        try:
            session = Session(initiator, iqn, portal, Auth(user, secret))
        except LoginRefused:
            return -1
        self._sessions.append(session)
        return len(self._sessions) - 1

    def read(self, number: int, at: int, count: int) -> bytes:
        """Read blocks."""
        return self._sessions[number].read(at, count)

    def write(self, number: int, at: int, data: bytes) -> None:
        """Write blocks."""
        self._sessions[number].write(at, data)

    def is_refused(self, number: int, at: int) -> bool:
        """Whether a WRITE is answered with DATA PROTECT, WRITE PROTECTED."""
        return write_protected(self._sessions[number], at)

    def is_alive(self, number: int) -> bool:
        """Whether its session goes on."""
        return self._sessions[number].alive

    def leave(self, number: int) -> None:
        """Drop its session."""
        self._sessions[number].close()

    def begin(self, number: int, mode: str) -> None:
        """Begin I/O without a pause."""
        self._io[number] = HostIo(self._sessions[number], mode)

    def progress(self, number: int) -> tuple[int, str]:
        """Completed rounds of I/O, and the first error."""
        return self._io[number].state

    def stop(self, number: int) -> tuple[int, str]:
        """End it."""
        return self._io.pop(number).stop()

    def arm(self, pattern: str, units: list[str]) -> int:
        """Kill units when what the pattern finds changes; at once without one."""
        self._kills.append(Kill(pattern, units))
        return len(self._kills) - 1

    def killed(self, number: int) -> list[int]:
        """The processes that were killed."""
        return self._kills[number].wait()

    def compute(self, verb: str, argument: Any) -> Any:
        """Ask os-brick and the kernel's initiator (tests/system/compute_host.py)."""
        if self._compute is None:
            self._compute = Compute()
        return self._compute.ask(verb, argument)


def main(address: str, log: str) -> None:
    """Install, then answer until the test asks for the end."""
    print(sh(["sh", Path(__file__).with_name("install_node")]), flush=True)
    with open(log, "wb") as out:
        words = [
            "journalctl",
            "--boot",
            "--follow",
            "--lines=all",
            "--output=short-precise",
        ]
        journal = subprocess.Popen(words, stdout=out)
    serve(address, NodeMachine())
    journal.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
