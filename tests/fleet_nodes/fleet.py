# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The whole fleet: a controller and two storage nodes, in a network of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path

from tests.fleet_nodes import network
from tests.fleet_nodes.controller import Controller
from tests.fleet_nodes.node import Node
from tests.lab import environment, payload
from tests.lab.steps import step
from tests.stands.cinder_programs import python
from tests.stands.servers import ROOT
from tests.stands.waiting import until

#: So many times its pool may a thin backend promise.
THIN_RATIO = {"node1": 20, "node2": 2}
_BOOT = 600.0


class Fleet:
    """Its parts, and what concerns several of them."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self.controller = Controller(directory)
        wheel = _wheel(directory / "wheel")
        self.nodes: dict[str, Node] = {}
        for name in network.NODES:
            lent = directory / f"lent-{name}"
            lent.mkdir()
            shutil.copy(wheel, lent)
            self.nodes[name] = Node(name, directory, lent, python().parents[1])

    def __enter__(self) -> Fleet:
        with self._stack:
            network.build()
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def is_up(self, *nodes: str) -> bool:
        """Whether every backend of these nodes can be chosen."""
        names = [name for node in nodes for name in self.nodes[node].backends()]
        try:
            pools, services = self.controller.pools(), self.controller.services()
        except (OSError, RuntimeError, HTTPException):
            return False
        return all(name in pools and services.get(name) == "up" for name in names)

    def differences(self) -> Iterator[str]:
        """Where a live target is not what Cinder's database says."""
        for name, node in self.nodes.items():
            wanted, found = self.controller.wanted_access(name), node.exports()
            for volume in sorted(wanted.keys() | found.keys()):
                has, should = found.get(volume), wanted.get(volume)
                if has != should:
                    yield f"{name} {volume}: {has}, not {should}"

    def _start(self) -> None:
        self._stack.callback(self.controller.close)
        with step("start the controller, and install two storage nodes"):
            self.controller.start()
            for name, node in self.nodes.items():
                self._stack.callback(node.kill)
                ratio = f"max_over_subscription_ratio = {THIN_RATIO[name]}.0"
                node.start(self.controller.shared_options, ratio)
            for node in self.nodes.values():
                until(node.answers, f"{node.name} answers", _BOOT)
            until(lambda: self.is_up(*self.nodes), "every backend is up", _BOOT)


def _wheel(out: Path) -> Path:
    """The wheel of the working tree."""
    out.mkdir()
    payload.tree(ROOT, out)
    payload.package(environment.tools(ROOT), out)
    return next(out.glob("*.whl"))
