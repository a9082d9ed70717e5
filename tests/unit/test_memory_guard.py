# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts' sessions are ended when commands hold too much of the node's memory."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import pytest

from lunshare.helper.lio import memory_guard
from lunshare.helper.lio.host_demands import Demand, HostDemands
from lunshare.helper.lio.memory_guard import MIB, Memory, MemoryGuard, honest, memory
from lunshare.helper.lio.target_reads import TargetReads
from lunshare.helper.lio.target_tree import Target
from lunshare.helper.lio.target_verbs import TargetVerbs

GIB = 1024 * MIB
TARGET = Target("iqn.2026-11.io.lunshare:", "00000000-0000-4000-8000-000000000000")
# User-mode Linux 7.2.7, 3 GiB, before 512 MiB of READs; then MemFree was 2125 MiB.
MEMINFO = """\
MemTotal:        3077788 kB
MemFree:         {free} kB
MemAvailable:    2821524 kB
Buffers:           13528 kB
Cached:           126952 kB
SwapCached:            0 kB
Active:            48064 kB
AnonPages:        177644 kB
Mapped:            41120 kB
Slab:              21828 kB
SReclaimable:      11896 kB
SUnreclaim:         9932 kB
KernelStack:        2144 kB
PageTables:         1600 kB
SecPageTables:         0 kB
VmallocUsed:       16988 kB
Percpu:               96 kB
HugePages_Total:       0
"""
NOW = Memory(held=9 * GIB, limit=8 * GIB, is_urgent=True)


def host(
    name: str, read: int = 0, sent: int = 0, written: int = 0, received: int = 0
) -> Demand:
    return Demand(TARGET, TARGET.acl(name), 1, read, written, sent, received)


def suspects(
    hosts: list[Demand], now: Memory, cleared: Collection[str] = ()
) -> list[Demand]:
    """Those of one target that shows each of its sessions, except for ``several``."""
    return memory_guard.suspects(
        hosts, now, cleared, lambda host: not host.acl.endswith("several")
    )


def names(found: list[Demand]) -> str:
    return "".join(demand.acl.rpartition("/")[2] for demand in found)


@pytest.mark.parametrize("taken", [0, 512 * MIB])
def test_pages_of_commands_are_those_without_an_owner(taken: int) -> None:
    text = MEMINFO.format(free=2709652 - taken // 1024)
    ownerless, available, total = memory(text.splitlines())
    assert ownerless - taken == 7356 * 1024
    assert (available, total) == (2821524 * 1024, 3077788 * 1024)


def test_all_who_hold_much_are_ended_at_once() -> None:
    hosts = [host("a", 3 * GIB), host("b", MIB), host("c", written=4 * GIB)]
    hosts.append(host("d", 900 * GIB, 900 * GIB - 32 * MIB))
    assert names(suspects(hosts, NOW)) == "ca"


def test_what_was_moved_one_way_does_not_hide_what_is_held_the_other_way() -> None:
    assert host("a", read=2 * GIB, received=8 * GIB).held == 2 * GIB
    assert host("a", written=2 * GIB, sent=8 * GIB).held == 2 * GIB


def test_many_who_hold_a_little_are_ended_from_the_largest_on() -> None:
    hosts = [host(name, read=200 * MIB) for name in "abcdefghijklmnopqrstuvwxyz" * 2]
    hosts.append(host("Z", read=201 * MIB))
    assert names(suspects(hosts, NOW)).startswith("Z")
    assert len(suspects(hosts, NOW)) == 24  # half of what is held
    assert len(suspects(hosts * 9, NOW._replace(held=90 * GIB))) == 64


def test_of_hosts_that_hold_nothing_those_are_tried_that_asked_most() -> None:
    """One that has received all, and acknowledged nothing, looks like this."""
    hosts = [host(name, GIB, GIB) for name in "abcdefgh"]
    hosts += [host("taker", 9 * GIB, 9 * GIB), host("idle")]
    assert names(suspects(hosts, NOW)).startswith("taker")
    tried = [demand.acl for demand in suspects(hosts, NOW)]
    assert names(suspects(hosts, NOW, tried)) == "h"


def test_one_from_whom_nothing_came_is_not_ended_again_for_a_little() -> None:
    """A host with two sessions: what the one has moved is not shown."""
    busy, taker = host("busy", 6 * GIB), host("taker", 2 * GIB)
    assert names(suspects([busy, taker], NOW)) == "busytaker"
    assert names(suspects([busy, taker], NOW, [busy.acl])) == "taker"
    much = host("busy", 8 * GIB + 1)
    assert names(suspects([much, taker], NOW, [busy.acl])) == "busytaker"


def test_until_memory_is_urgent_only_those_are_ended_whose_bytes_are_certain() -> None:
    hosts = [host("several", 9 * GIB), host("one", 2 * GIB), host("busy", GIB, GIB)]
    plenty = NOW._replace(is_urgent=False)
    assert names(suspects(hosts, plenty)) == "one"
    assert names(suspects(hosts[::2], plenty)) == ""
    assert names(suspects(hosts, NOW)) == "severalone"


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guard:
    return Guard(monkeypatch, tmp_path / "meminfo")


class Guard(MemoryGuard):
    """Of a node whose memory, hosts and clock the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        prefix = "iqn.2026-11.io.lunshare:"
        self.clock = 1000.0
        super().__init__(TargetVerbs(prefix), TargetReads(prefix))
        monkeypatch.setattr(memory_guard, "_MEMINFO", str(path))
        monkeypatch.setattr(time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(HostDemands, "read", lambda _: self.read())
        self.path, self.readings = path, 0
        self.hosts: list[Demand] = []
        self.held_with(0)

    def read(self) -> dict[str, Demand]:
        self.readings += 1
        return {demand.acl: demand for demand in self.hosts}

    def held_with(self, taken: int, after: float = 0.0) -> int:
        self.clock += after
        free = 2709652 - taken // 1024
        text = MEMINFO.replace("2821524", str(2821524 - taken // 1024))
        self.path.write_text(text.format(free=free))
        self._look()
        return self.figures()["held"]


def test_memory_of_no_host_is_counted_once(guard: Guard) -> None:
    """OpenZFS takes half of a node for its cache, in no line of /proc/meminfo."""
    assert guard.held_with(512 * MIB) == 512 * MIB
    assert guard.held_with(GIB) == 0
    assert guard.held_with(512 * MIB) == 0
    assert guard.held_with(GIB) == 512 * MIB


def test_what_grows_slowly_is_of_nobody_only_when_memory_is_short(guard: Guard) -> None:
    """It may be of hosts with several sessions, of which it is not certain."""
    for taken in range(0, 1900 * MIB, 64 * MIB):
        assert guard.held_with(taken, after=1.0) == taken
    assert guard.readings < 20
    assert guard.held_with(2200 * MIB, after=1.0) == 0


def test_an_honest_queue_of_commands_is_never_much() -> None:
    assert honest(0) == honest(GIB) == 128 * MIB
    assert honest(NOW.limit) == GIB
