# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the hosts of a volume are told of its cache, and what a flush covers.

docs/sharing.md promises it. dm-log-writes notes every write of the disk with its flags
(drivers/md/dm-log-writes.c).
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stands.waiting import until
from tests.system.lio_files import FileNode
from tests.system.lio_hosts import BLOCK, READ, WRITE, Session
from tests.system.lio_node import SIZE, Node, run
from tests.system.nfs_fixtures import server

__all__ = ["server"]
pytestmark = pytest.mark.system
pytest_plugins = ["tests.system.lio_fixtures"]

_FLUSH, _FUA, _MARK = 1, 2, 8


class Caching(NamedTuple):
    """What MODE SENSE(6) tells: DPOFUA of its header, WCE of page 08h (SBC-4 6.5.6)."""

    fua: bool
    write_cache: bool


class Logged(NamedTuple):
    """One write of the disk."""

    sector: int
    flags: int


class WriteLog:
    """What the disk of a node gets, in the order in which a power cut keeps it.

    A write is in it when a flush has covered it, or at once if it has FUA.
    """

    def __init__(self, node: Node) -> None:
        self._name = Path(node.disk.path).name
        self._below, self._log = (
            node.added(f"{part}-{node.id[:8]}") for part in ("below", "log")
        )
        run("modprobe", "dm-log-writes")
        table = f"0 {SIZE // BLOCK} log-writes {self._below} {self._log}"
        for words in (("suspend",), ("load", "--table", table), ("resume",)):
            run("dmsetup", words[0], self._name, *words[1:])
        self._marks = 0

    def read(self) -> list[Logged]:
        """All writes in it until now."""
        self._marks += 1
        run("dmsetup", "message", self._name, "0", "mark", f"{self._marks}")
        until(lambda: self._count(_MARK) == self._marks, "the mark is in the log")
        return [logged for logged in self._parse() if not logged.flags & _MARK]

    def _count(self, flag: int) -> int:
        return sum(bool(logged.flags & flag) for logged in self._parse())

    def _parse(self) -> list[Logged]:
        words = ["dd", f"if={self._log}", "bs=1M", "count=1", "iflag=direct"]
        data = subprocess.run(words, check=True, capture_output=True).stdout
        _, _, count, block = struct.unpack_from("<QQQI", data)
        parsed, at = [], block
        for _ in range(count):
            sector, sectors, flags, _ = struct.unpack_from("<QQQQ", data, at)
            parsed.append(Logged(sector, flags))
            size = 0 if flags & _MARK else sectors * BLOCK
            at += block + -(-size // block) * block
        return parsed


@pytest.fixture
def file_node(request: pytest.FixtureRequest) -> Iterator[Node]:
    created = FileNode(
        request.getfixturevalue("helper"),
        request.getfixturevalue("driver"),
        request.getfixturevalue("server"),
    )
    yield created
    created.close()


def _caching(session: Session) -> Caching:
    answer = session.command(bytes([0x1A, 8, 8, 0, 255, 0]), READ, 255)
    return Caching(bool(answer[2] & 0x10), bool(answer[4 + 2] & 0x04))


def _write(session: Session, block: int, fua: bool = False) -> None:
    """WRITE(10) of one block."""
    cdb = bytes([0x2A, fua << 3, *block.to_bytes(4, "big"), 0, 0, 1, 0])
    session.command(cdb, WRITE, BLOCK, b"w" * BLOCK)


def _flush(session: Session) -> None:
    """SYNCHRONIZE CACHE(10)."""
    session.command(bytes([0x35, *bytes(9)]))


def test_hosts_of_a_device_are_told_of_its_cache(node: Node) -> None:
    node.apply(a="rw", b="ro")
    assert _caching(node.login("a")) == Caching(fua=True, write_cache=True)
    assert _caching(node.login("b")) == Caching(fua=False, write_cache=False)


def test_a_file_has_no_cache_that_a_power_cut_loses(file_node: Node) -> None:
    file_node.apply(a="rw", b="ro")
    for host in "ab":
        told = _caching(file_node.login(host))
        assert told == Caching(fua=False, write_cache=False)


def test_a_flush_of_any_host_covers_the_writes_of_all(node: Node) -> None:
    log = WriteLog(node)
    node.apply(a="rw", b="ro", c="rw")
    a, b, c = (node.login(host) for host in "abc")
    for turn, host in enumerate((a, c, b), start=1):
        _write(a, turn * 8)
        _write(c, turn * 8 + 1)
        before = {logged.sector for logged in log.read()}
        assert not before & {turn * 8, turn * 8 + 1}, "not flushed yet"
        _flush(host)
        after = log.read()
        assert {turn * 8, turn * 8 + 1} <= {logged.sector for logged in after}
        assert after[-1].flags & _FLUSH


def test_a_write_with_fua_is_on_the_disk_when_it_is_answered(node: Node) -> None:
    log = WriteLog(node)
    node.apply(a="rw")
    a = node.login("a")
    _write(a, 8)
    _write(a, 16, fua=True)
    sectors = {logged.sector: logged.flags for logged in log.read()}
    assert sectors[16] & _FUA
    assert 8 not in sectors, "FUA is about its own write only"
