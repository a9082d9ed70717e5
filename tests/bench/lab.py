# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attaching on a real kernel, in the lab: lunshare, the floor and the peer.

``tests/lab/run --with cinder -- python -m tests.bench.lab``, as root on a node
where lunshared and its helper run. One run measures all of them
by turns and reports medians. ``--without-peer`` leaves Cinder's command out, ``--part``
names the table.

The other exports are real: the helper's apply creates each as a target with portal,
LUN and one host, over a sparse file of 1 MiB. 1,000 logical volumes would take the
lab's emulated LVM a quarter of an hour, and cost LIO the same. The daemon does not
know them. The volume that is attached over HTTP is a thin logical volume of 1 GiB
that the daemon has created.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import messages
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.values import Auth, Connector, Disk, DiskKind, Export, Mode
from lunshare.helper import config_file
from lunshare.helper.commands import Commands
from lunshare.helper.main import verbs
from lunshare.helper.mounts import Mounts
from lunshare.helper.served import PATH
from lunshare.helper.server import Server
from tests.bench import floor
from tests.bench.figures import Figure, median_ms, part_parser, say, timed, write_part
from tests.bench.http import Client
from tests.bench.peer import Peer

_PORT = 8776
_SOCKET = "/run/lunshare/helper.sock"
_FILTERS = "/etc/lunshare/rootwrap.d"
_LEVELS = (1, 100, 1000)
_ROUNDS = 25
_PEER_LEVELS = (1, 10, 100)
_PEER_ROUNDS = 3
_OWN_PER_PEER = 5
_MIB = 1024**2

Times = dict[str, list[float]]


class Direct:
    """The helper's server in this process, without the socket."""

    def __init__(self, prefix: str) -> None:
        nobody = socket.socket(socket.AF_UNIX)
        served = config_file.read(PATH)
        assert served.prefix == prefix
        table = verbs(served, Commands(_FILTERS, []), Mounts())
        self._server = Server(nobody, table, ())
        self._seconds = 0.0

    def clock(self, work: Callable[[], object]) -> float:
        """Seconds from the frame to the answer of the one call in ``work``."""
        work()
        return self._seconds

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """No command is run in this comparison."""
        raise AssertionError(argv)

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Call the helper's server without its socket."""
        asked = messages.request(verb, timeout, arguments)
        frame = orjson.dumps(asked)
        answers: list[dict[str, Any]] = []
        self._seconds = timed(
            lambda: answers.append(self._server.answer(orjson.loads(frame)))
        )
        answer = answers[0]
        if "error" in answer:
            raise RuntimeError(answer)
        return answer["value"]


class Node:
    """The measured node: the API, the helper, and other exports in the kernel."""

    def __init__(self, directory: Path) -> None:
        self.api = Client(_PORT)
        options = {each.dest: each.default for each in LioTarget.OPTIONS}
        self.target = LioTarget("bench", options, Helper(_SOCKET))
        self.helper = Direct(options["target_prefix"])
        self.direct = LioTarget("bench", options, self.helper)
        self._directory = directory
        self._filling: list[str] = []
        # Another host is always attached, so the target exists, as the peer's does.
        self.volume = self.api.shared_volume()
        self._keeper = self.api.attach(self.volume, "keeper")
        self.plain = self.api.shared_volume()

    def fill(self, count: int) -> None:
        """Create targets until the kernel has ``count``."""
        while (present := floor.exports()) > count:
            self.target.remove(self._filling.pop())
        for _ in range(count - present):
            volume_id = str(uuid.uuid4())
            self._export(volume_id, _host("keeper", Mode.RO))
            self._filling.append(volume_id)

    def apply(
        self, target: LioTarget, clock: Callable[[Callable[[], object]], float] = timed
    ) -> tuple[float, float]:
        """Seconds of the helper's apply for a new host, and for its removal."""
        host = _host("bench", Mode.RW)
        # The daemon's own volume, with the daemon's request.
        disk = Disk(self.volume, f"/dev/lunshare/volume-{self.volume}", 1024 * _MIB)
        wanted = Export(self.volume, disk, (host,))
        only = [host.initiator]
        opened = clock(lambda: target.apply(wanted, only))
        closed = clock(lambda: target.apply(Export(self.volume), only))
        return opened, closed

    def attach(self, volume_id: str) -> tuple[float, float]:
        """Seconds of an attach over HTTP, and of the detach."""
        ids: list[str] = []
        opened = timed(lambda: ids.append(self.api.attach(volume_id, "bench", "rw")))
        self.api.complete(ids[0])
        closed = timed(lambda: self.api.detach(ids[0]))
        return opened, closed

    def close(self) -> None:
        """Remove all that was created."""
        for volume_id in self._filling:
            self.target.remove(volume_id)
        self.api.fresh()
        self.api.detach(self._keeper)
        for volume_id in (self.volume, self.plain):
            self.api("DELETE", f"/volumes/{volume_id}")

    def _export(self, volume_id: str, *hosts: Connector) -> None:
        path = self._directory / f"volume-{volume_id}"
        with path.open("wb") as file:
            file.truncate(_MIB)
        disk = Disk(volume_id, str(path), _MIB, DiskKind.FILE)
        self.target.apply(Export(volume_id, disk, hosts))


def main(argv: list[str]) -> int:
    """Measure, print, write bench-PART.json into the repository's build/."""
    parser = part_parser("lab")
    parser.add_argument("--without-peer", action="store_true")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        node = Node(Path(directory))
        theirs = () if asked.without_peer else _theirs(node, Path(directory))
        figures = [say(figure) for figure in chain(_own(node), theirs)]
        node.close()
    write_part(asked.part, figures)
    return 0


def _host(name: str, mode: Mode) -> Connector:
    initiator = f"iqn.1994-05.com.example:apply-{name}"
    return Connector(initiator, mode, str(uuid.uuid4()), Auth("u" * 20, "p" * 16))


def _own(node: Node) -> Iterator[Figure]:
    levels = {count: _level(node, count) for count in _LEVELS}
    # Once more with one export, to separate effects of time.
    for name, more in _level(node, _LEVELS[0]).items():
        levels[_LEVELS[0]][name] += more
    for count, times in levels.items():
        yield from _figures_of(count, times)
    medians = [
        median_ms(levels[count]["attach"]) for count in (_LEVELS[-1], _LEVELS[0])
    ]
    name = "attach with 1,000 exports, times attach with 1"
    yield Figure(name, medians[0] / medians[1], "", most=1.25)


def _level(node: Node, count: int) -> Times:
    """Measure everything by turns, with ``count`` exports in the kernel."""
    print(f"  {count} exports ...", flush=True)
    node.fill(count)
    node.api.fresh()
    acl, lun = floor.acl_of(node.volume)
    times: Times = {}

    def keep(name: str, *seconds: float) -> None:
        for word, took in zip((name, f"un{name}"), seconds, strict=False):
            times.setdefault(word, []).append(took)

    steps: list[tuple[str, Callable[[], tuple[float, float]]]] = [
        ("bare", lambda: _floor(floor.bare, acl, lun)),
        ("full", lambda: _floor(floor.full, acl, lun)),
        ("direct", lambda: node.apply(node.direct, node.helper.clock)),
        ("apply", lambda: node.apply(node.target)),
    ]
    for _ in range(_ROUNDS):
        # Each of them after a request over HTTP, as in service: it finds the caches of
        # the processor cold. Emulated, a floor right after another one takes less than
        # half of that.
        for name, step in steps:
            keep("attach", *node.attach(node.volume))
            keep(name, *step())
        keep("first", *node.attach(node.plain))
    return times


def _floor(make: Callable[[str, str], None], acl: str, lun: str) -> tuple[float, float]:
    try:
        opened = timed(lambda: make(acl, lun))
        return opened, timed(lambda: floor.close(acl))
    except FileNotFoundError:
        # The daemon's reconcile ran, and closed access without an attachment.
        return _floor(make, acl, lun)


def _figures_of(count: int, times: Times) -> Iterator[Figure]:
    words = {
        "bare": "configfs floor, fewest writes",
        "full": "configfs floor, the writes of an apply",
        "unfull": "configfs floor, removal",
        "direct": "helper's apply, a new host rw",
        "undirect": "helper's apply, that host closed",
        "apply": "helper's apply through its socket, a new host rw",
        "unapply": "helper's apply through its socket, that host closed",
        "attach": "attach over HTTP, a further host rw",
        "unattach": "detach over HTTP, that host",
        "first": "attach over HTTP, first host (target created)",
        "unfirst": "detach over HTTP, last host (target removed)",
    }
    for key, word in words.items():
        yield Figure(f"{word}, {count:,} exports", median_ms(times[key]), "ms")
    for key, how, most in (("direct", "", 3.0), ("apply", " through its socket", None)):
        ratio = median_ms(times[key]) / median_ms(times["full"])
        name = f"helper's apply{how}, times the floor, {count:,} exports"
        yield Figure(name, ratio, "", most=most)


def _theirs(node: Node, directory: Path) -> Iterator[Figure]:
    """Attaches of the peer and of lunshare, by turns."""
    node.fill(1)
    peer = Peer(directory)
    bounds = {10: 50.0, 100: 200.0}
    for count in _PEER_LEVELS:
        print(f"  {count} targets of the peer's ...", flush=True)
        peer.grow(count)
        theirs, own = [], []
        for _ in range(_PEER_ROUNDS):
            theirs.append(peer.attach())
            node.api.fresh()
            own += [node.attach(node.volume)[0] for _ in range(_OWN_PER_PEER)]
        name = f"with {count} targets of the peer's"
        yield Figure(
            f"cinder-rtstool add-initiator + save {name}", median_ms(theirs), "ms"
        )
        yield Figure(
            f"attach over HTTP, a further host rw, {name}", median_ms(own), "ms"
        )
        times = median_ms(theirs) / median_ms(own)
        yield Figure(f"times faster {name}", times, "", least=bounds.get(count))
    peer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
