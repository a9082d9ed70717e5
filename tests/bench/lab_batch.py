# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A thousand hosts on one LUN of a real kernel, attached and detached in batches.

``tests/lab/run --kernel uml -- python -m tests.bench.lab_batch``, as root on a node
with lunshared and its helper. Beside lunshare, by turns, one process makes the same
writes to configfs in the same target, and checks nothing (``tests.bench.floor``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psutil

from lunshare.drivers.helper_client import Helper
from lunshare.drivers.targets.lio import LioTarget
from lunshare.helper.lio.configfs import names
from tests.bench import floor
from tests.bench.figures import Figure, part_parser, say, timed, write_part
from tests.bench.http import Client

_PORT = 8776
_SOCKET = "/run/lunshare/helper.sock"
_HOSTS, _CHUNK = 1000, 500
_ROUNDS, _SINGLES, _RESTARTS = 5, 10, 3

_BASES = {
    "first": "that of the first",
    "unfirst": "that of the first",
    "unread": "the floor with its reads",
    "read": "the floor's reads",
}

Times = dict[str, list[float]]


class Crowd:
    """A volume with one host, and a thousand more that come and go."""

    def __init__(self) -> None:
        self.api = Client(_PORT)
        options = {each.dest: each.default for each in LioTarget.OPTIONS}
        self.target = LioTarget("bench", options, Helper(_SOCKET))
        self.volume = self.api.shared_volume()
        self._keeper = self.api.attach(self.volume, "keeper", "rw")
        self._ids: list[str] = []

    def attach(self) -> None:
        """Attach a thousand hosts rw."""
        for start in range(0, _HOSTS, _CHUNK):
            crowd = [f"crowd-{start + number}" for number in range(_CHUNK)]
            hosts = [
                {"initiator": f"iqn.1994-05.com.example:{name}", "host": name}
                for name in crowd
            ]
            body = {"key": str(uuid.uuid4()), "mode": "rw", "hosts": hosts}
            answer = self._act({"lunshare:attach": body})
            self._ids += [row["id"] for row in answer["attachments"]]

    def detach(self) -> None:
        """Detach them again."""
        while self._ids:
            chunk, self._ids = self._ids[:_CHUNK], self._ids[_CHUNK:]
            self._act({"lunshare:detach": {"attachments": chunk}})

    def forget(self) -> None:
        """Remove what a detach leaves to the next reconcile."""
        floor.forget(self.volume)

    def single(self) -> tuple[float, float]:
        """Seconds of an attach of one further host, and of its detach."""
        ids: list[str] = []
        opened = timed(lambda: ids.append(self.api.attach(self.volume, "one", "rw")))
        return opened, timed(lambda: self.api.detach(ids[0]))

    def raw(self, close: Callable[[str], None]) -> tuple[float, float, float]:
        """Seconds of the floor's writes for a thousand hosts, its reads, a removal."""
        acl, lun = floor.acl_of(self.volume)
        acls = [f"{acl}--{number}" for number in range(_HOSTS)]

        def opened() -> None:
            for path in acls:
                floor.full(path, lun)

        def read() -> None:
            for path in acls:
                floor.read(path)

        def closed() -> None:
            for path in acls:
                close(path)

        seconds = timed(opened), timed(read), timed(closed)
        floor.forget(self.volume)
        return seconds

    def restart(self, hosts: int, boot: bool) -> float:
        """Seconds of a daemon's first reconcile; after a boot it finds no target."""
        subprocess.run(["systemctl", "stop", "lunshared"], check=True)
        if boot:
            self.target.remove(self.volume)
        subprocess.run(["systemctl", "start", "lunshared"], check=True)
        acl, _ = floor.acl_of(self.volume)
        until = time.monotonic() + 60
        while len(names(os.path.dirname(acl))) < hosts or not self._answers():
            assert time.monotonic() < until
            time.sleep(0.1)
        return _reconcile_seconds(self.api)

    def _answers(self) -> bool:
        try:
            self.api.fresh()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Remove all that was created."""
        self.api.detach(self._keeper)
        self.api("DELETE", f"/volumes/{self.volume}")

    def _act(self, body: object) -> dict[str, list[dict[str, str]]]:
        self.api.fresh()
        answer: dict[str, list[dict[str, str]]] = self.api(
            "POST", f"/volumes/{self.volume}/action", body
        )
        return answer


def main(argv: list[str]) -> int:
    """Measure, print, write bench-PART.json into the repository's build/."""
    asked = part_parser("lab-batch").parse_args(argv)
    crowd = Crowd()
    figures = [say(figure) for figure in _figures(crowd)]
    crowd.close()
    write_part(asked.part, figures)
    return 0


def _figures(crowd: Crowd) -> Iterator[Figure]:
    times: Times = {}

    def keep(**seconds: float) -> None:
        for name, took in seconds.items():
            times.setdefault(name, []).append(took)

    memory = []
    for _ in range(_ROUNDS):
        crowd.api.fresh()
        for _ in range(_SINGLES):
            keep(**dict(zip(("first", "unfirst"), crowd.single(), strict=True)))
        for name, close in (("unraw", floor.close), ("unread", floor.close_safely)):
            keep(**dict(zip(("raw", "read", name), crowd.raw(close), strict=True)))
        keep(many=timed(crowd.attach))
        crowd.api.fresh()
        for _ in range(_SINGLES):
            keep(**dict(zip(("beside", "unbeside"), crowd.single(), strict=True)))
        keep(unmany=timed(crowd.detach))
        crowd.forget()
        memory.append(_memory())
    for _ in range(_RESTARTS):
        keep(boot=crowd.restart(1, True), start=crowd.restart(1, False))
        crowd.attach()
        keep(reboot=crowd.restart(_HOSTS, True), restart=crowd.restart(_HOSTS, False))
        crowd.detach()
    yield from _of(times)
    for name in ("lunshared", "lunshare-helper"):
        yield Figure(f"memory of {name} after a round (VmRSS)", memory[0][name], "MiB")
        growth = memory[-1][name] / memory[1][name]
        yield Figure(f"  after {_ROUNDS} rounds, times after 2", growth, "", most=1.1)


def _of(times: Times) -> Iterator[Figure]:
    words = {
        "raw": "configfs floor, the writes of 1,000 hosts rw",
        "read": "configfs floor, reading what was written of 1,000 hosts",
        "many": "attach of 1,000 hosts rw over HTTP",
        "unraw": "configfs floor, removal of 1,000 hosts",
        "unread": "configfs floor, removal of 1,000 hosts with the reads of a detach",
        "unmany": "detach of 1,000 hosts over HTTP",
        "boot": "first reconcile of a node without its target, one host",
        "reboot": "first reconcile of a node without its target, 1,001 hosts",
        "start": "first reconcile of a daemon that finds its target, one host",
        "restart": "first reconcile of a daemon that finds its target, 1,001 hosts",
        "first": "attach of one host beside one other",
        "beside": "attach of one host beside 1,000 others",
        "unfirst": "detach of one host beside one other",
        "unbeside": "detach of one host beside 1,000 others",
    }
    for name, word in words.items():
        yield Figure(word, median(times[name]) * 1000, "ms")
    middle = {name: median(values) for name, values in times.items()}
    middle["rebooted"] = middle["reboot"] - middle["boot"]
    middle["restarted"] = middle["restart"] - middle["start"]
    words["rebooted"] = "these hosts in the first reconcile without a target"
    words["restarted"] = "these hosts in the first reconcile of a restart"
    for name, base, most in (
        ("many", "raw", 2.0),
        ("unmany", "unraw", None),
        ("unmany", "unread", 2.0),
        ("rebooted", "raw", 1.5),
        ("restarted", "raw", 1.5),
        ("restarted", "read", None),
        ("beside", "first", 1.25),
        ("unbeside", "unfirst", 1.25),
    ):
        other = _BASES.get(base, "the floor")
        ratio = middle[name] / middle[base]
        yield Figure(f"{words[name]}, times {other}", ratio, "", most=most)


def _reconcile_seconds(api: Client) -> float:
    for line in api.fetch("/lunshare/metrics").decode().splitlines():
        if line.startswith("lunshare_reconcile_last_duration_seconds "):
            return float(line.split()[1])
    raise RuntimeError("no reconcile has ended")


def _memory() -> dict[str, float]:
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        for name in ("lunshared", "lunshare-helper"):
            if f"/{name}" in command:
                status = Path(f"/proc/{process.pid}/status").read_text()
                line = next(x for x in status.splitlines() if x.startswith("VmRSS"))
                found[name] = int(line.split()[1]) / 1024
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
