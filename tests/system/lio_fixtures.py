# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the LIO tests: one helper and one backing device for a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.drivers.targets.lio import LioTarget
from tests.system.lio_checks import Make
from tests.system.lio_node import Backing, HelperProcess, Node, run, target


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelperProcess]:
    process = HelperProcess(tmp_path_factory.mktemp("helper"))
    yield process
    process.stop()


@pytest.fixture(scope="module")
def driver(helper: HelperProcess) -> LioTarget:
    Path("/etc/target").mkdir(exist_ok=True)  # as in systemd/lunshare.tmpfiles
    run("modprobe", "target_core_mod")
    created = target(helper)
    created.check()
    return created


@pytest.fixture(scope="module")
def backing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backing]:
    created = Backing(tmp_path_factory.mktemp("backing"))
    yield created
    created.close()


@pytest.fixture
def make(helper: HelperProcess, driver: LioTarget, backing: Backing) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def build() -> Node:
            node = Node(helper, driver, backing)
            stack.callback(node.close)
            return node

        yield build


@pytest.fixture
def node(make: Make) -> Node:
    return make()
