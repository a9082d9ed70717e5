# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon per module and auth strategy, and the clients that talk to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import pytest

from tests.clients import pins, strategies
from tests.clients.command import Command
from tests.clients.library import Library
from tests.clients.node import Node
from tests.clients.process import Process
from tests.clients.record import Record
from tests.stands.callers import STRATEGIES, Caller
from tests.stands.daemon import ready

_RECORD = pytest.StashKey[Record]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", help="write what clients did into this directory")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RECORD] = Record()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    path = session.config.getoption("--record", None)
    if path:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "all")
        session.config.stash[_RECORD].write(Path(path) / f"{worker}.json")


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Record:
    """What the clients did."""
    return request.config.stash[_RECORD]


@pytest.fixture(scope="session")
def caller(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Caller]]:
    """Who calls with an auth strategy; a Keystone is started once."""
    with ExitStack() as stack:

        @cache
        def of(strategy: str) -> Caller:
            path = tmp_path_factory.mktemp(strategy)
            return stack.enter_context(STRATEGIES[strategy](path))

        yield of


@pytest.fixture(scope="module", params=strategies.TABLE)
def node(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    caller: Callable[[str], Caller],
) -> Iterator[Node]:
    """A daemon with one of the auth strategies."""
    made = Node(tmp_path_factory.mktemp("node"), caller(request.param))
    with ready(made):
        yield made


@pytest.fixture(scope="module")
def cinder(node: Node, record: Record) -> Iterator[Command]:
    """python-cinderclient's command."""
    environ = node.environ(node.strategy.cinder)
    environ["OS_VOLUME_API_VERSION"] = "3.71"
    yield from _command("cinder", node, environ, record)


@pytest.fixture(scope="module")
def openstack(node: Node, record: Record) -> Iterator[Command]:
    """python-openstackclient's command."""
    environ = node.environ(node.strategy.environ)
    environ["OS_VOLUME_API_VERSION"] = "3.71"
    yield from _command("openstack", node, environ, record)


def _command(
    name: str, node: Node, environ: dict[str, str], record: Record
) -> Iterator[Command]:
    process = Process(
        pins.clients(),
        "commands.py",
        name,
        environ=pins.environ(**environ, COLUMNS="200"),
        log=node.path / f"{name}.log",
    )
    with closing(process):
        yield Command(name, process, node.caller.strategy, record)


@pytest.fixture(scope="module")
def sdk(node: Node, record: Record) -> Iterator[Library]:
    """openstacksdk's proxy of Block Storage."""
    environ = node.environ(node.strategy.environ)
    # The highest that both know, as openstackclient asks for.
    environ["OS_BLOCK_STORAGE_DEFAULT_MICROVERSION"] = "3.71"
    yield from _library("openstacksdk", pins.clients(), node, environ, record)


@pytest.fixture(scope="module")
def nova(node: Node, record: Record) -> Iterator[Library]:
    """nova.volume.cinder.API of Nova."""
    config = node.path / "nova.conf"
    config.write_text(node.filled(node.strategy.nova))
    words = (str(config), node.caller.project)
    server = node.caller.keystone
    environ = {} if server is None else {"USER_TOKEN": server.token}
    yield from _library("nova", pins.nova(), node, environ, record, *words)


def _library(
    name: str,
    venv: Path,
    node: Node,
    environ: dict[str, str],
    record: Record,
    *words: str,
) -> Iterator[Library]:
    process = Process(
        venv,
        "calls.py",
        name,
        *words,
        environ=pins.environ(**environ),
        log=node.path / f"{name}.log",
    )
    with closing(process):
        yield Library(name, process, node.caller.strategy, record)
