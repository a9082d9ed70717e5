# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The control plane alone, on this machine: the real daemon, the fake backend.

Beside it, by turns in the same run, Cinder 29.0.0 (``tests.bench.cinder_peer``): the
bounds are 5 times its attaching, 20 times its lists and its reads a second to 32
clients, 10 times its mixed load, a twentieth of its CPU for a request. They mean the
same on a fast and on a slow machine. Memory is absolute: 100 MiB. Both ask the same
Keystone who calls.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.bench import deleted_rows, side_by_side, stats
from tests.bench.cinder_peer import CinderPeer
from tests.bench.daemon import Daemon
from tests.bench.figures import RATE, Figure, median_ms, say, timed, write
from tests.bench.filling import fill, hosts
from tests.bench.http import Client, use_token
from tests.bench.side_by_side import Pair
from tests.bench.wrk import CLIENTS
from tests.stands.callers import keystone
from tests.stands.servers import ROOT

_VOLUMES = 10_000
_CYCLES = 150
_SECONDS = 3
_PROCESSES = 4
_MEMORY = 100
_HOSTS = 1000


def main() -> int:
    """Measure, print, write build/bench-host.json."""
    figures: list[Figure] = []
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    # Beside the repository, not in a tmpfs: a commit must reach a disk.
    with tempfile.TemporaryDirectory(dir=build) as directory:
        state = Path(directory)
        figures.append(
            say(Figure("fdatasync of 4 KiB, floor of a commit", _sync(state), "ms"))
        )
        figures += [say(figure) for figure in _both(state)]
    with tempfile.TemporaryDirectory(dir=build) as directory:
        figures += [say(figure) for figure in stats.figures(Path(directory))]
    with tempfile.TemporaryDirectory(dir=build) as directory:
        figures += [say(figure) for figure in deleted_rows.figures(Path(directory))]
    write(build / "bench-host.json", figures)
    return 0


def _both(state: Path) -> Iterator[Figure]:
    ours, theirs = state / "ours", state / "theirs"
    ours.mkdir()
    theirs.mkdir()
    with keystone(state) as caller:
        use_token(caller.headers["X-Auth-Token"])
        options = caller.options
        with CinderPeer(theirs, options) as peer, Daemon(ours, options) as daemon:
            yield from _measured(Pair(daemon, peer), caller.project)


def _measured(pair: Pair, project: str) -> Iterator[Figure]:
    daemon = pair.ours
    yield _memory(daemon, "after its first start (schema created)")
    yield from side_by_side.latencies(pair, "empty node")
    ids = fill(daemon.state, _VOLUMES, project=project)
    peer_ids = pair.theirs.fill(_VOLUMES)
    yield from side_by_side.latencies(pair, "10,000 volumes, 30,000 attachments")
    yield from side_by_side.pages(pair)
    yield from side_by_side.rates(pair, ids, peer_ids)
    yield from side_by_side.mixed(pair)
    rate = _attaching(daemon)
    yield Figure(f"attach, complete, detach, {CLIENTS} clients", rate, RATE)
    # Last of all: its thousand hosts would be on the first page of every list.
    yield from _one_lun(daemon)
    after = _memory(daemon, "after all of this load")
    yield replace(after, peer=pair.theirs.memory())
    highest = daemon.memory()["VmHWM"]
    yield Figure("  its highest meanwhile (VmHWM)", highest, "MiB")


def _sync(state: Path) -> float:
    """What the file system takes to make 4 KiB durable."""
    descriptor = os.open(state / "probe", os.O_CREAT | os.O_WRONLY, 0o600)
    times = []
    for number in range(100):
        os.pwrite(descriptor, b"x" * 4096, number * 4096)
        times.append(timed(lambda: os.fdatasync(descriptor)))
    os.close(descriptor)
    return median_ms(times)


def _one_lun(daemon: Daemon) -> Iterator[Figure]:
    """Attach to a volume with a thousand hosts, and to a volume without hosts."""
    client = Client(daemon.port)
    empty, full = client.shared_volume(), client.shared_volume()
    hosts(daemon.state, full, _HOSTS)
    times: dict[str, list[float]] = {empty: [], full: []}
    for number in range(_CYCLES):
        for volume_id, seconds in times.items():
            seconds.append(client.cycle(volume_id, f"one{number}")[0])
    first, last = median_ms(times[empty]), median_ms(times[full])
    yield Figure("attach to a volume with no host", first, "ms")
    yield Figure(f"attach to a volume with {_HOSTS:,} hosts", last, "ms")
    yield Figure("the one, times the other", last / first, "times", most=1.25)


def _attaching(daemon: Daemon) -> float:
    """Requests a second of 32 threads in 4 processes, each with its own volume."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        ports = [daemon.port] * _PROCESSES
        return sum(pool.map(_attach_for_a_while, ports)) / _SECONDS


def _attach_for_a_while(port: int) -> int:
    done: list[int] = []
    until = time.monotonic() + _SECONDS

    def run(name: str) -> None:
        client = Client(port)
        volume_id = client.shared_volume()
        while time.monotonic() < until:
            client.cycle(volume_id, name)
            done.append(3)

    threads = [
        threading.Thread(target=run, args=(f"c{os.getpid()}-{number}",))
        for number in range(CLIENTS // _PROCESSES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


def _memory(daemon: Daemon, when: str) -> Figure:
    used = daemon.memory()["VmRSS"]
    return Figure(f"memory of the daemon {when} (VmRSS)", used, "MiB", most=_MEMORY)


if __name__ == "__main__":
    sys.exit(main())
