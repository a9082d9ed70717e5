# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where Tempest runs: this machine with fake backends, or a quick guest of the lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.stands import keystone
from tests.stands.servers import ROOT
from tests.tempest import exclusions, lab_node, node_under_test, pins, tempest_run
from tests.tempest.lab_node import LabNode
from tests.tempest.node_under_test import NodeUnderTest


class Node(Protocol):
    """The daemon that Tempest tests."""

    @property
    def endpoint(self) -> str:
        """Its address, for Keystone's catalog."""

    def start(self) -> None:
        """Start it, and wait until it listens."""

    def close(self) -> None:
        """Stop it."""

    def left(self) -> list[str]:
        """What is on its storage after all tests have deleted what they created."""


@dataclass(frozen=True)
class Environment:
    """The parts of a run.

    venv: with the packages of ``pins``.
    database, tests: what ``keystone.prepared`` and ``tempest_run.listed`` have made.
    node: makes it, with a directory and the options for Keystone.
    excluded: the files with what does not run.
    directory: for everything that the run writes.
    """

    venv: Path
    database: Path
    tests: Path
    node: Callable[[Path, str], Node]
    backends: tuple[str, ...]
    excluded: tuple[Path, ...]
    directory: Path


def this_machine() -> Environment:
    """This machine, with fake backends; what is missing is installed and made."""
    venv = pins.venv()
    return Environment(
        venv,
        keystone.prepared(venv),
        tempest_run.listed(venv),
        NodeUnderTest,
        node_under_test.BACKENDS,
        (exclusions.FILE,),
        ROOT / "build" / "tempest",
    )


#: A quick guest, with LVM and LIO; ``lab_run`` puts the first three there.
GUEST = Environment(
    Path("/opt/tempest"),
    Path("/opt/tempest-keystone"),
    Path("/opt/tempest-tests"),
    LabNode,
    lab_node.BACKENDS,
    (exclusions.FILE, exclusions.LAB_FILE),
    Path("/build/tempest-lab"),
)
