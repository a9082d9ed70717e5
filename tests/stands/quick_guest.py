# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A quick guest of the lab, as the tests outside it see it, and its network."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from xmlrpc.client import ServerProxy, Transport

import psutil

from tests.lab.steps import sh
from tests.stands.guest_server import PORT
from tests.stands.servers import ROOT, Server, listens

#: Of the addresses in the network of a run.
PREFIX = 24
_SECONDS = 300


class _Patient(Transport):
    """An answer comes in time, or never: the guest was killed."""

    def make_connection(self, host: Any) -> HTTPConnection:
        connection = super().make_connection(host)
        connection.timeout = _SECONDS
        return connection


class QuickGuest:
    """A guest that does what tests ask, at ``address`` in the network of the run."""

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.name, self.address = name, address
        self._server = Server(name, directory)

    def boot(self, options: Iterable[str], command: Iterable[str]) -> None:
        """Boot it with these options of the lab; it answers some time later.

        The command has to end in a ``guest_server.serve`` at its address.
        """
        card = f"{tap(self.name)}={self.address}/{PREFIX}"
        lab = (str(ROOT / "tests/lab/run"), "--kernel", "uml", "--network", card)
        self._server.run([*lab, *options, "--", *command])

    def answers(self) -> bool:
        """Whether it does what tests ask."""
        process = self._server.process
        assert process is not None
        assert process.poll() is None, f"it ended; see {self._server.log}"
        return listens(PORT, self.address)

    def kill(self) -> None:
        """End it as a loss of power does."""
        self._server.end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop its kernel between two instructions, as a machine that hangs."""
        self._kernel().suspend()

    def thaw(self) -> None:
        """Let it go on."""
        self._kernel().resume()

    def _kernel(self) -> psutil.Process:
        below = psutil.Process(self._server.pid).children(recursive=True)
        return next(process for process in below if process.name() == "linux")

    def ask(self, verb: str, *given: object) -> Any:
        """Ask its machine (``guest_server.Machine`` or a kind of it)."""
        where = f"http://{self.address}:{PORT}/"
        more: Mapping[str, Any] = {"allow_none": True, "use_builtin_types": True}
        with ServerProxy(
            where, transport=_Patient(use_builtin_types=True), **more
        ) as machine:
            return getattr(machine, verb)(*given)

    def must(self, *words: str) -> str:
        """Run a command in it, which must succeed; its output."""
        code, text = self.ask("run", list(words))
        assert code == 0, f"{self.name}: {' '.join(words)}: {text}"
        return str(text)


def tap(guest: str) -> str:
    """The tap device of a guest."""
    return f"tap-{guest}"


def build_network(bridge: str, address: str, guests: Iterable[str]) -> None:
    """Make a bridge with this machine's address, and a tap device for each guest.

    Only in a network namespace that has nothing but its loopback. The kernel removes
    it, with all that is in it, when the last process of the run ends.
    """
    links = sh(["ip", "-brief", "link"]).splitlines()
    assert [line.split()[0] for line in links] == ["lo"], "start the folder's run"
    sh(["ip", "link", "set", "lo", "up"])
    sh(["ip", "link", "add", bridge, "type", "bridge"])
    sh(["ip", "address", "add", f"{address}/{PREFIX}", "dev", bridge])
    sh(["ip", "link", "set", bridge, "up"])
    for guest in guests:
        sh(["ip", "tuntap", "add", tap(guest), "mode", "tap"])
        sh(["ip", "link", "set", tap(guest), "master", bridge, "up"])
