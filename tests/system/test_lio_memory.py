# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts whose commands take the node's memory, and other hosts meanwhile."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.targets.lio import LioTarget
from tests.stands.waiting import until
from tests.system.hostile_host import PORTAL
from tests.system.lanes import is_uml
from tests.system.lio_checks import refused
from tests.system.lio_hosts import BLOCK, Session
from tests.system.lio_node import (
    MIB,
    Backing,
    HelperProcess,
    Later,
    Node,
    initiator,
)
from tests.system.raw_iscsi import RawSession

pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_EACH = 64 * MIB
_READ, _WRITE = (0x88, "R"), (0x8A, "W")


class Watch:
    """What a host feels, and how low the node's memory gets, until the end of with."""

    def __init__(self, session: Session) -> None:
        self._session, self._ended = session, threading.Event()
        self.before = self.lowest = _available()
        self.slowest, self.rounds = 0.0, 0
        self._threads = [
            threading.Thread(target=self._loop, args=(step,), daemon=True)
            for step in (self._read, self._look)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        until(lambda: self.rounds > 2)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def taken(self) -> int:
        """How many MiB less there are than before."""
        return (self.before - _available()) // MIB

    def check(self, most_seconds: float = 1.0 if is_uml() else 5.0) -> None:
        """Say what was seen; a quarter of the memory was always available."""
        most = (self.before - self.lowest) // MIB
        print(f"{most} MiB taken at most; the other host's slowest: {self.slowest:.3f}")
        assert self.lowest > _field("MemTotal") // 4
        assert self._session.alive
        assert self.slowest < most_seconds

    def _loop(self, step: Callable[[], None]) -> None:
        while not self._ended.wait(0.005):
            step()

    def _read(self) -> None:
        began = time.monotonic()
        self._session.read(0)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.rounds += 1

    def _look(self) -> None:
        self.lowest = min(self.lowest, _available())


@pytest.fixture
def other(
    helper: HelperProcess, driver: LioTarget, tmp_path: Path
) -> Iterator[Session]:
    """A host of another volume, on another disk: those of the attacks are busy."""
    backing = Backing(tmp_path)
    with contextlib.closing(backing):
        node = Node(helper, driver, backing)
        with contextlib.closing(node):
            node.apply(b="ro")
            yield node.login("b")


@pytest.mark.parametrize(
    ("mode", "kind"), [("ro", _READ), ("rw", _READ), ("rw", _WRITE)]
)
def test_a_host_that_takes_memory_is_closed(
    node: Node, other: Session, mode: str, kind: tuple[int, str]
) -> None:
    node.apply(a=mode, b="ro")
    b = node.login("b")
    with Watch(other) as watch, _takers(node, "a") as sessions:
        _take(sessions, 40, _cdb(kind[0], _EACH // BLOCK), kind[1])
        _soon(lambda: node.live() == {"b": "ro"})
        _soon(lambda: watch.taken() < 64)
    watch.check()
    assert b.alive
    assert refused(node, "a")
    with pytest.raises(TargetFailed, match="has taken the node's memory"):
        node.apply(a=mode, b="ro")
    [(host, why)] = _remains(node)
    assert host == initiator("a")
    assert "detach it, and attach it again" in why
    node.apply(only="a", b="ro")
    node.apply(only="a", a=mode, b="ro")
    assert len(node.login("a").read(0)) == BLOCK


@pytest.mark.parametrize(("mode", "kind"), [("ro", _READ), ("rw", _WRITE)])
def test_many_hosts_at_once_do_not_use_up_the_memory(
    node: Node, other: Session, mode: str, kind: tuple[int, str]
) -> None:
    """Eight with two sessions each ask for 10 GiB. What such hosts hold is not shown.

    READs of writers are not asked: the kernel ends the hosts of a volume one after the
    other, each after what the disk has begun for it, so that is not bounded (0050).
    """
    node.helper.is_killed_last()
    hosts = [f"h{number}" for number in range(8)]
    node.apply(b="ro", **dict.fromkeys(hosts, mode))
    b = node.login("b")
    with Watch(other) as watch, _takers(node, *hosts, *hosts) as sessions:
        _together(sessions, 10, _cdb(kind[0], _EACH // BLOCK), kind[1])
        _soon(lambda: watch.taken() < 64)
    watch.check(most_seconds=5.0)
    assert b.alive
    node.apply(b="ro")
    assert node.live() == {"b": "ro"}


def _together(
    sessions: Sequence[RawSession], count: int, cdb: bytes, flag: str
) -> None:
    """Send the commands of all sessions at the same time."""
    works = [Later(_take, [session], count, cdb, flag) for session in sessions]
    assert [work.join() for work in works] == [None] * len(works)


def _soon(condition: Callable[[], bool]) -> None:
    """Wait; the end of a session waits for its READs, and 6.1 is emulated."""
    until(condition, seconds=60.0)


def _take(
    sessions: Sequence[RawSession],
    count: int,
    cdb: bytes,
    flag: str = "R",
    each: int = _EACH,
) -> None:
    """Send the commands, one of each session in turn, until it is ended."""
    for _ in range(count):
        for session in sessions:
            with contextlib.suppress(ConnectionError):
                session.ask(cdb, flag, each)


def _cdb(operation: int, blocks: int) -> bytes:
    return bytes([operation, 0]) + struct.pack(">QIxx", 0, blocks)


@contextlib.contextmanager
def _takers(node: Node, *hosts: str) -> Iterator[list[RawSession]]:
    with contextlib.ExitStack() as stack:
        numbered = enumerate(hosts, start=1)
        yield [
            stack.enter_context(contextlib.closing(_taker(node, host, number)))
            for number, host in numbered
        ]


def _taker(node: Node, host: str, number: int) -> RawSession:
    return RawSession(initiator(host), node.iqn, PORTAL, number=number)


def _remains(node: Node) -> tuple[tuple[str, str], ...]:
    [export] = [each for each in node.driver.observe() if each.volume_id == node.id]
    return export.remains


def _available() -> int:
    return _field("MemAvailable")


def _field(name: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name + ":")]
    return int(line.split()[1]) * 1024
