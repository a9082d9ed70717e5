# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon and the peer by turns, with the same client, in one run.

Both have the same machine and its load: so the bounds are ratios of their medians, not
milliseconds. The peer gets longer turns, because it completes fewer requests a second.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tests.bench.cinder_peer import CinderPeer
from tests.bench.daemon import HERE, Daemon
from tests.bench.figures import RATE, Figure, median_ms, timed
from tests.bench.http import Client
from tests.bench.wrk import CLIENTS, Server, wrk

ATTACH, READ, MIXED, CPU = 5, 20, 10, 20
_CYCLES, _TURNS = 50, 3
# The rate of the mixed load changes most from turn to turn.
_MIXED_TURNS = 9
_PAGE, _PAGE_SECONDS = 1000, 0.5
_OUR_SECONDS, _PEER_SECONDS = 3, 8
_QUIET, _QUIET_SHARE = 0.5, 0.1
_HALF_BUSY = """
import os, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
while True:
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    time.sleep(0.005)
"""
_T = TypeVar("_T")
_Rate = tuple[float, float]  # requests a second, CPU milliseconds for one


@dataclass(frozen=True)
class Pair:
    """Our daemon and the peer, both running."""

    ours: Daemon
    theirs: CinderPeer

    def by_turns(
        self, rounds: int, work: Callable[[Server], _T]
    ) -> tuple[list[_T], list[_T]]:
        """The results of ours and of theirs; one rests while the other works."""
        first: list[_T] = []
        second: list[_T] = []
        for _ in range(rounds):
            first.append(work(self.ours))
            _rested(self.ours)
            second.append(work(self.theirs))
            _rested(self.theirs)
        return first, second

    def seconds(self, server: Server) -> int:
        """How long its turn of wrk is."""
        return _OUR_SECONDS if server is self.ours else _PEER_SECONDS


def latencies(pair: Pair, where: str) -> Iterator[Figure]:
    """One client attaches, completes and detaches, by turns cycle by cycle."""
    clients = [Client(server.port) for server in (pair.ours, pair.theirs)]
    volumes = [client.shared_volume() for client in clients]
    found: list[list[tuple[float, ...]]] = [[], []]
    for number in range(_CYCLES):
        for client, volume_id, times in zip(clients, volumes, found, strict=True):
            cycle = client.cycle(volume_id, f"h{number}")
            times.append((*cycle, sum(cycle)))
    words = ("create with connector", "complete", "delete", "all three")
    for column, word in enumerate(words):
        ours, theirs = (median_ms(t[column] for t in times) for times in found)
        name = f"attachment {word}, {where}"
        yield Figure(name, ours, "ms", peer=theirs, times=ATTACH)


def pages(pair: Pair) -> Iterator[Figure]:
    """Long lists, one client."""
    for name, path in (
        ("detail page of 1,000 of 10,000 volumes", "/volumes/detail?limit=1000"),
        ("the same, in-use only", "/volumes/detail?limit=1000&status=in-use"),
        ("the same, by name", "/volumes/detail?limit=1000&sort=name:asc"),
        ("plain page of 1,000", "/volumes?limit=1000"),
    ):
        work = _page_of(path)
        ours, theirs = map(median_ms, pair.by_turns(_TURNS, work))
        yield Figure(name, ours, "ms", peer=theirs, times=READ)


def rates(pair: Pair, ours: list[str], theirs: list[str]) -> Iterator[Figure]:
    """Requests that read, from many clients; each side has the ids of its volumes."""
    (pair.ours.state / "ids").write_text("\n".join(ours[:1000]))
    (pair.theirs.state / "ids").write_text("\n".join(theirs[:1000]))
    show = {pair.ours.port: ours[7], pair.theirs.port: theirs[7]}
    script = ["-s", str(HERE / "mix.lua")]
    kinds: tuple[tuple[str, str, list[str]], ...] = (
        ("show one volume", "/v3/volumes/{}", []),
        ("list of 10", "/v3/volumes?limit=10", []),
        ("detail list of 3, 3 hosts each", "/v3/volumes/detail?limit=3", []),
        ("a third of each of these", "/", script),
        ("show, a new connection each", "/v3/volumes/{}", ["-H", "Connection: close"]),
        ("detail list of 10", "/v3/volumes/detail?limit=10", []),
    )
    for name, path, more in kinds:

        def work(server: Server, path: str = path, more: list[str] = more) -> _Rate:
            asked = path.format(show[server.port])
            return wrk(server, asked, more, pair.seconds(server))

        yield from _rate(pair, f"{name}, {CLIENTS} clients", work)


def mixed(pair: Pair) -> Iterator[Figure]:
    """One step in five is an attach cycle; one of two processors is half busy."""
    shared: dict[int, list[str]] = {}
    for server in (pair.ours, pair.theirs):
        client = Client(server.port)
        shared[server.port] = [client.shared_volume() for _ in range(CLIENTS)]
        (server.state / "shared").write_text("\n".join(shared[server.port]))
    script = [f"-t{CLIENTS}", "-s", str(HERE / "mixed.lua")]

    def work(server: Server) -> _Rate:
        found = wrk(server, "/", script, pair.seconds(server))
        _rested(server)
        _detach(server, shared[server.port])
        return found

    what = "one step in five attaches, completes and detaches"
    with subprocess.Popen([sys.executable, "-c", _HALF_BUSY]) as other:
        try:
            name = f"{what}, {CLIENTS} clients"
            yield from _rate(pair, name, work, _MIXED_TURNS, MIXED)
        finally:
            other.kill()


def _page_of(path: str) -> Callable[[Server], float]:
    def work(server: Server) -> float:
        client, times, text = Client(server.port), list[float](), b""

        def fetch() -> None:
            nonlocal text
            text = client.fetch(path)

        client.fresh()
        while sum(times) < _PAGE_SECONDS:
            times.append(timed(fetch))
        if len(json.loads(text)["volumes"]) != _PAGE:
            raise RuntimeError(f"{server.state}: {path} has not {_PAGE} volumes")
        return statistics.median(times)

    return work


def _rate(
    pair: Pair,
    name: str,
    work: Callable[[Server], _Rate],
    turns: int = _TURNS,
    times: int = READ,
) -> Iterator[Figure]:
    ours, theirs = (sorted(r)[turns // 2] for r in pair.by_turns(turns, work))
    yield Figure(name, ours[0], RATE, peer=theirs[0], times=times)
    name = "  CPU of its processes for one"
    yield Figure(name, ours[1], "ms", peer=theirs[1], times=CPU)


def _detach(server: Server, volumes: list[str]) -> None:
    """Delete what clients left half attached: Cinder refuses the next attach then."""
    client = Client(server.port)
    for volume_id in volumes:
        path = f"/attachments?volume_id={volume_id}"
        for attachment in client("GET", path)["attachments"]:
            client.detach(attachment["id"])


def _rested(server: Server) -> None:
    """Wait until it has done what clients that left had still asked for."""
    until, used = time.monotonic() + 60, -1.0
    while (now := server.cpu()) - used > _QUIET * _QUIET_SHARE or used < 0:
        if time.monotonic() > until:
            raise RuntimeError(f"{server.state}: still busy, without a client")
        used = now
        time.sleep(_QUIET)
