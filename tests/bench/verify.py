# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Verifying targets on a real kernel, beside reading the same files raw.

``tests/lab/run --kernel uml -- python -m tests.bench.verify``, as root on a node where
lunshared and its helper run. 30 volumes get 100 hosts each, by the API. What a
comparison opens, lists and follows is recorded once. The floor is a loop that does only
that again, in Python too. All are measured by turns, and reported as medians.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from lunshare.drivers.helper_client import Helper
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Auth, Connector, Disk, Export, Mode
from tests.bench.figures import Figure, median_ms, part_parser, say, timed, write_part
from tests.bench.http import Client
from tests.bench.lab import Direct

_PORT = 8776
_SOCKET = "/run/lunshare/helper.sock"
_VOLUMES, _HOSTS = 30, 100
_ROUNDS = 11
_GIB = 1024**3

#: What a comparison calls, and how it is done again.
Step = tuple[Callable[[str], object], str]


class Node:
    """The measured node: volumes with hosts, and three ways to compare them."""

    def __init__(self) -> None:
        self.api = Client(_PORT)
        options = {each.dest: each.default for each in LioTarget.OPTIONS}
        self.target = LioTarget("bench", options, Helper(_SOCKET))
        self.direct = LioTarget("bench", options, Direct(options["target_prefix"]))
        self._rows: list[str] = []
        self.exports = [self._fill() for _ in range(_VOLUMES)]

    def _fill(self) -> Export:
        volume_id = self.api.shared_volume()
        modes = [Mode.RW, *[Mode.RO] * (_HOSTS - 1)]
        hosts = tuple(self._attach(volume_id, *each) for each in enumerate(modes))
        disk = Disk(volume_id, f"/dev/lunshare/volume-{volume_id}", _GIB)
        return Export(volume_id, disk, hosts)

    def _attach(self, volume_id: str, number: int, mode: Mode) -> Connector:
        ident = self.api.attach(volume_id, f"verified-{number}", mode)
        self._rows.append(ident)
        row = self.api("GET", f"/attachments/{ident}")["attachment"]
        info: dict[str, Any] = row["connection_info"]
        auth = Auth(info["auth_username"], info["auth_password"])
        initiator = f"iqn.1994-05.com.example:verified-{number}"
        return Connector(initiator, mode, ident, auth)

    def compare(self, target: LioTarget) -> None:
        """Compare every volume; nothing may differ."""
        for export in self.exports:
            if found := target.compare(export):
                raise RuntimeError(found[0])

    def verify(self) -> None:
        """Let the daemon compare everything with its rows."""
        answer = self.api("POST", "/lunshare/verify", {"verify": {}})["verify"]
        if answer["targets"] or answer["counts"]["clean"] != _VOLUMES:
            raise RuntimeError(str(answer)[:500])

    def close(self) -> None:
        """Remove all that was created."""
        self.api.fresh()
        for ident in self._rows:
            self.api.detach(ident)
        for export in self.exports:
            self.api("DELETE", f"/volumes/{export.volume_id}")


def recorded(work: Callable[[], object]) -> list[Step]:
    """What is opened, listed and followed below configfs in ``work``."""
    steps: list[Step] = []
    again: dict[str, Callable[[str], object]] = {
        "open": _read,
        "listdir": os.listdir,
        "scandir": _scan,
        "readlink": os.readlink,
    }

    def noting(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(path: Any, *more: Any, **named: Any) -> Any:
            if str(path).startswith("/sys/kernel/config/"):
                steps.append((again[name], str(path)))
            return real(path, *more, **named)

        return call

    with contextlib.ExitStack() as stack:
        for name in again:
            stack.enter_context(mock.patch.object(os, name, noting(name)))
        work()
    return steps


def _read(path: str) -> bytes:
    """Read a file raw."""
    descriptor = os.open(path, os.O_RDONLY)
    data = os.read(descriptor, 4096)
    os.close(descriptor)
    return data


def _scan(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries]


def _raw(steps: list[Step]) -> None:
    for again, path in steps:
        again(path)


def _figures(node: Node) -> Iterator[Figure]:
    steps = list(dict.fromkeys(recorded(lambda: node.compare(node.direct))))
    files = sum(again is _read for again, _ in steps)
    ways: dict[str, Callable[[], object]] = {
        f"reading the same {files:,} files raw": lambda: _raw(steps),
        "helper's comparison": lambda: node.compare(node.direct),
        "helper's comparison through its socket": lambda: node.compare(node.target),
        "POST /v3/lunshare/verify, of all volumes": node.verify,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            node.api.fresh()
            times[name].append(timed(way))
    what = f"{_VOLUMES * _HOSTS:,} mappings of {_VOLUMES} volumes"
    for name in ways:
        yield Figure(f"{name}, {what}", median_ms(times[name]), "ms")
    floor, *others = ways
    for name in others:
        ratio = median_ms(times[name]) / median_ms(times[floor])
        yield Figure(f"{name}, times raw", ratio, "", most=2.0)


def main(argv: list[str]) -> int:
    """Measure, print, write bench-PART.json into the repository's build/."""
    part = part_parser("quick-verify").parse_args(argv).part
    node = Node()
    figures = [say(figure) for figure in _figures(node)]
    node.close()
    write_part(part, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
