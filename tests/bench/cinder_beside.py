# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Cinder's LVM driver with lioadm, and lunshare's driver, under one cinder-volume.

In a quick guest (``tests/cinder_guest``): the same volume group and the same thin pool,
by turns, each step with 1, 10 and 100 other exports in the kernel. Those are made by
Cinder's own ``create``. The first host of a volume is attached, so each driver creates
its target, and removes it at the detach.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.figures import Figure, median_ms, part_parser, say, timed, write_part
from tests.bench.peer import Peer
from tests.cinder_guest.calls import Calls
from tests.cinder_guest.node import OURS, PEER, Node, stop_lunshared

BACKENDS = {"ours": OURS, "peer": PEER}
_LEVELS, _ROUNDS = (1, 10, 100), 3
#: Least ratio of an attach within cinder-volume, and of anything.
_BOUNDS, _NEVER_SLOWER = {10: 20.0, 100: 100.0}, 1.0
_ATTACH, _DETACH = "attach within cinder-volume", "detach within cinder-volume"
_HOSTS = (_ATTACH, _DETACH, "attach over HTTP", "detach over HTTP")
_DISKS = (
    *("create", "snapshot", "clone", "delete a clone"),
    *("delete a snapshot", "delete a volume"),
)
_STARTED = "processes started for an attach"

#: The share of a window of so many seconds.
_IDLE, _WINDOW = 0.8, 0.5

Times = dict[str, list[float]]


class Measurement:
    """Both backends, with one volume each that is attached again and again."""

    def __init__(self, calls: Calls, disks: bool = True) -> None:
        """``disks``: whether volumes are created and deleted, too."""
        self._calls, self._disks = calls, disks
        self._volumes = {}
        for backend in BACKENDS:
            calls.make_type(backend)
            self._volumes[backend] = calls.create(backend)
            self._round(backend, {})  # what is only done once

    def level(self, count: int) -> Iterator[Figure]:
        """Measure every step by turns."""
        found: dict[str, Times] = {backend: {} for backend in BACKENDS}
        for _ in range(_ROUNDS):
            for backend, times in found.items():
                self._round(backend, times)
        for step in (*_HOSTS, *_DISKS) if self._disks else _HOSTS:
            ours, peer = (median_ms(found[each][step]) for each in ("ours", "peer"))
            least = _BOUNDS.get(count, 1.0) if step == _ATTACH else _NEVER_SLOWER
            yield Figure(f"{step}, {count} exports", ours, "ms", peer=peer, times=least)
        for backend in BACKENDS:
            # The fewest: both drivers start lvs once in a minute, beside the attach.
            value = min(found[backend][_STARTED])
            most, fewest = (0, None) if backend == "ours" else (None, 11)
            whose = "lunshare" if backend == "ours" else "Cinder's LVM driver"
            name = f"{_STARTED}, {whose}, {count} exports"
            yield Figure(name, value, "", most=most, least=fewest)

    def _round(self, backend: str, times: Times) -> None:
        calls, volume_id = self._calls, self._volumes[backend]
        calls.api.fresh()

        def keep(name: str, seconds: float) -> None:
            times.setdefault(name, []).append(seconds)
            print(f"    {backend}: {name} {seconds:,.3f} s", flush=True)
            wait_idle()

        def made(name: str, make: Callable[[], str]) -> str:
            ids: list[str] = []
            keep(name, timed(lambda: ids.append(make())))
            return ids[0]

        wait_idle()
        within = calls.within(volume_id)
        keep(_ATTACH, within.opened)
        keep(_DETACH, within.closed)
        times.setdefault(_STARTED, []).append(within.started)
        opened, closed = calls.over_http(volume_id)
        keep("attach over HTTP", opened)
        keep("detach over HTTP", closed)
        if not self._disks:
            return
        volume = made("create", lambda: calls.create(backend))
        snapshot = made("snapshot", lambda: calls.snapshot(volume))
        clone = made("clone", lambda: calls.create(backend, source_volid=volume))
        keep("delete a clone", timed(lambda: calls.delete("volumes", clone)))
        keep("delete a snapshot", timed(lambda: calls.delete("snapshots", snapshot)))
        keep("delete a volume", timed(lambda: calls.delete("volumes", volume)))


def wait_idle() -> None:
    """Wait until the processor is idle, for a minute at most.

    cinder-volume works on after a step: it reports what the volume group has left.
    """
    end, idle = time.monotonic() + 60, 0.0
    while idle < _IDLE and time.monotonic() < end:
        before = _processor()
        time.sleep(_WINDOW)
        used = [new - old for new, old in zip(_processor(), before, strict=True)]
        idle = used[3] / max(1, sum(used))


def _processor() -> list[int]:
    """Return the processor's ticks: user, nice, system, idle, and so on (proc(5))."""
    return [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]


def main(argv: list[str]) -> int:
    """Measure, print, write bench-cinder.json into the repository's build/."""
    parser = part_parser("cinder")
    parser.add_argument("--without-disks", action="store_true")
    asked = parser.parse_args(argv)
    stop_lunshared()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        with Node(directory, BACKENDS) as node:
            measure(Calls(node), directory, asked.part, not asked.without_disks)
    return 0


def measure(calls: Calls, directory: Path, part: str, disks: bool) -> None:
    """Write the figures after each level: the last one takes longest."""
    peer, figures = Peer(directory), list[Figure]()
    measured = Measurement(calls, disks)
    for count in _LEVELS:
        print(f"  {count} exports ...", flush=True)
        peer.grow(count)
        figures += map(say, measured.level(count))
        write_part(part, figures)
    calls.close()
    peer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
