# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The control plane alone, on this machine: the real daemon, the fake backend.

The bounds are 5, 20 and 20 times better than Cinder 29.0.0 with its fake
driver on a machine like this (60 + 21 + 33 ms for an attachment's create with
connector, complete and delete; 4.5 s for a detail page of 1,000 of 10,000
volumes with 3 hosts each; 60 requests a second to 32 threads), in 80 MiB.

Requests a second are counted by wrk, a C program with 32 connections: a load
generator in Python would take from the daemon the core it is measured on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench import deleted_rows, stats
from tests.bench.daemon import HERE, ROOT, Daemon
from tests.bench.figures import Figure, median_ms, say, timed, write
from tests.bench.filling import fill, hosts
from tests.bench.http import Client

_VOLUMES = 10_000
_CYCLES = 150
_PAGES = 9
_CLIENTS = 32
_TURNS, _SECONDS = 3, 3
_PROCESSES = 4
_MEMORY = 80
_RATE, _MIXED = 1200, 900
_HOSTS = 1000
_HALF_BUSY = """
import os, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
while True:
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    time.sleep(0.005)
"""


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
        with Daemon(state) as daemon:
            for figure in _measured(daemon):
                figures.append(say(figure))
    with tempfile.TemporaryDirectory(dir=build) as directory:
        figures += [say(figure) for figure in stats.figures(Path(directory))]
    with tempfile.TemporaryDirectory(dir=build) as directory:
        figures += [say(figure) for figure in deleted_rows.figures(Path(directory))]
    write(build / "bench-host.json", figures)
    return 0


def _measured(daemon: Daemon) -> Iterator[Figure]:
    yield _peak(daemon, "after its first start (schema created)")
    yield from _latencies(daemon, "empty node")
    ids = fill(daemon.state, _VOLUMES)
    yield from _latencies(daemon, "10,000 volumes, 30,000 attachments")
    yield from _pages(Client(daemon.port))
    yield from _rates(daemon, ids)
    yield from _mixed(daemon)
    # Last of all: its thousand hosts would be on the first page of every list.
    yield from _one_lun(daemon)
    yield _peak(daemon, "after all of this load, its highest", "VmHWM")


def _sync(state: Path) -> float:
    """What the file system takes to make 4 KiB durable."""
    descriptor = os.open(state / "probe", os.O_CREAT | os.O_WRONLY, 0o600)
    times = []
    for number in range(100):
        os.pwrite(descriptor, b"x" * 4096, number * 4096)
        times.append(timed(lambda: os.fdatasync(descriptor)))
    os.close(descriptor)
    return median_ms(times)


def _latencies(daemon: Daemon, where: str) -> Iterator[Figure]:
    client = Client(daemon.port)
    times: list[list[float]] = [[], [], []]
    volume_id = client.shared_volume()
    for number in range(_CYCLES):
        for seconds, took in zip(
            times, _cycle(client, volume_id, f"h{number}"), strict=True
        ):
            seconds.append(took)
    words = ("create with connector", "complete", "delete")
    for word, most, found in zip(words, (12, 4.2, 6.6), times, strict=True):
        yield Figure(f"attachment {word}, {where}", median_ms(found), "ms", most=most)


def _one_lun(daemon: Daemon) -> Iterator[Figure]:
    """Attach to a volume with a thousand hosts, and to a volume without hosts."""
    client = Client(daemon.port)
    empty, full = client.shared_volume(), client.shared_volume()
    hosts(daemon.state, full, _HOSTS)
    times: dict[str, list[float]] = {empty: [], full: []}
    for number in range(_CYCLES):
        for volume_id, seconds in times.items():
            seconds.append(_cycle(client, volume_id, f"one{number}")[0])
    first, last = median_ms(times[empty]), median_ms(times[full])
    yield Figure("attach to a volume with no host", first, "ms")
    yield Figure(f"attach to a volume with {_HOSTS:,} hosts", last, "ms")
    yield Figure("the one, times the other", last / first, "times", most=1.25)


def _cycle(client: Client, volume_id: str, host: str) -> tuple[float, float, float]:
    """Seconds of attach, complete and detach."""
    moments = [time.perf_counter()]
    attachment_id = client.attach(volume_id, host)
    moments.append(time.perf_counter())
    client.complete(attachment_id)
    moments.append(time.perf_counter())
    client.detach(attachment_id)
    moments.append(time.perf_counter())
    one, two, three, four = moments
    return two - one, three - two, four - three


def _pages(client: Client) -> Iterator[Figure]:
    pages = (
        ("detail page of 1,000 of 10,000 volumes", "/volumes/detail?limit=1000"),
        ("the same, in-use only", "/volumes/detail?limit=1000&status=in-use"),
        ("the same, by name", "/volumes/detail?limit=1000&sort=name:asc"),
        ("plain page of 1,000", "/volumes?limit=1000"),
    )
    for name, path in pages:
        client.fetch(path)
        times = [timed(lambda path=path: client.fetch(path)) for _ in range(_PAGES)]  # type: ignore[misc]
        yield Figure(name, median_ms(times), "ms", most=225)


def _rates(daemon: Daemon, ids: list[str]) -> Iterator[Figure]:
    (daemon.state / "ids").write_text("\n".join(ids[:1000]))
    show = f"/v3/volumes/{ids[7]}"
    script = ["-s", str(HERE / "mix.lua")]
    kinds: tuple[tuple[str, str, list[str]], ...] = (
        ("show one volume", show, []),
        ("list of 10", "/v3/volumes?limit=10", []),
        ("detail list of 3, 3 hosts each", "/v3/volumes/detail?limit=3", []),
        ("a third of each of these", "/", script),
        ("show, a new connection each", show, ["-H", "Connection: close"]),
    )
    for name, path, more in kinds:
        rate, cost = _median_of_wrk(daemon, path, more)
        yield Figure(f"{name}, {_CLIENTS} clients", rate, "requests/s", least=_RATE)
        yield Figure("  CPU of the daemon for one of them", cost, "ms")
    rate, _ = _median_of_wrk(daemon, "/v3/volumes/detail?limit=10", [])
    yield Figure(f"detail list of 10, {_CLIENTS} clients", rate, "requests/s")
    yield Figure(
        f"attach, complete, detach, {_CLIENTS} clients",
        _attaching(daemon),
        "requests/s",
    )


def _mixed(daemon: Daemon) -> Iterator[Figure]:
    """One step in five is an attach cycle; one of two processors is half busy."""
    client = Client(daemon.port)
    shared = [client.shared_volume() for _ in range(_CLIENTS)]
    (daemon.state / "shared").write_text("\n".join(shared))
    script = [f"-t{_CLIENTS}", "-s", str(HERE / "mixed.lua")]
    with subprocess.Popen([sys.executable, "-c", _HALF_BUSY]) as other:
        try:
            rate, cost = _median_of_wrk(daemon, "/", script)
        finally:
            other.kill()
    what = "one step in five attaches, completes and detaches"
    yield Figure(f"{what}, {_CLIENTS} clients", rate, "requests/s", least=_MIXED)
    yield Figure("  CPU of the daemon for one of them", cost, "ms")


def _median_of_wrk(daemon: Daemon, path: str, more: list[str]) -> tuple[float, float]:
    return sorted(_wrk(daemon, path, more) for _ in range(_TURNS))[_TURNS // 2]


def _wrk(daemon: Daemon, path: str, more: list[str]) -> tuple[float, float]:
    """Requests a second, and the daemon's CPU milliseconds for one."""
    words = ["wrk", "-t1", f"-c{_CLIENTS}", f"-d{_SECONDS}", *more]
    words += ["-H", "OpenStack-API-Version: volume 3.71"]
    words += [f"http://127.0.0.1:{daemon.port}{path}"]
    before = daemon.cpu()
    ran = subprocess.run(
        words,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "IDS": str(daemon.state / "ids"),
            "SHARED": str(daemon.state / "shared"),
        },
    )
    used = daemon.cpu() - before
    if "Non-2xx" in ran.stdout or "Socket errors" in ran.stdout:
        raise RuntimeError(ran.stdout)
    count = int(_number(r"(\d+) requests in", ran.stdout))
    return _number(r"Requests/sec:\s+([\d.]+)", ran.stdout), used * 1000 / count


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(text)
    return float(found[1])


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
            _cycle(client, volume_id, name)
            done.append(3)

    threads = [
        threading.Thread(target=run, args=(f"c{os.getpid()}-{number}",))
        for number in range(_CLIENTS // _PROCESSES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


def _peak(daemon: Daemon, when: str, which: str = "VmRSS") -> Figure:
    used = daemon.memory()[which]
    return Figure(f"memory of the daemon {when} ({which})", used, "MiB", most=_MEMORY)


if __name__ == "__main__":
    sys.exit(main())
