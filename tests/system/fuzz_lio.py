# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Random PDUs of several hostile hosts at once; what others must not feel of it.

``--fuzz-commands`` PDUs, from a seed that is printed (``--fuzz-seed``). The same seed
makes the same PDUs; which host is served first depends on the machine.

``make fuzz-hosts`` runs it. It is in no lane of lanes.py: on a machine with other work
an honest write has taken up to 0.93 s of the second that it may. In User-mode Linux
7.2.7 with 10,000 PDUs seed 404 passed 5 of 5 times, in 25 to 40 s, since a session that
never ends keeps no detach (docs/kernel-reports/logout-of-a-connection.md).
"""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lunshare.drivers.values import Auth
from tests.stands.waiting import until
from tests.system.fuzz_hosts import STATUS, Attacker, Newcomer, Writing, attack, write
from tests.system.fuzz_pdus import KNOWN_FAULTS, Pdus
from tests.system.hostile_host import PORTAL
from tests.system.kernel import faults
from tests.system.lio_checks import Make, changed, filled
from tests.system.lio_node import MIB, Node, initiator

# A million commands take hours on a stock kernel; every wait inside has its own limit.
pytestmark = [pytest.mark.system, pytest.mark.timeout(36_000)]
pytest_plugins = ["tests.system.lio_fixtures"]

#: Host, its volume, its mode there, what it does, and its share of the PDUs. On the
#: first volume hostile hosts only read, so its bytes are compared.
_HOSTS = (
    ("b", 0, "ro", Attacker, 0.21),
    ("c", 0, "ro", Attacker, 0.21),
    ("d", 1, "rw", Attacker, 0.21),
    ("e", 1, "rw", Attacker, 0.21),
    ("f", 1, "ro", Attacker, 0.12),
    ("g", 0, "ro", Newcomer, 0.01),
    ("h", 0, "rw", Newcomer, 0.01),  # it has a password, and does not use it
    ("x", 0, "", Newcomer, 0.01),
    ("y", 1, "", Newcomer, 0.01),
)
_STRANGERS, _PASSWORD = "hxy", Auth("host-h", "a-secret-of-h-0123")
_ANSWERED, _SECONDS, _LEAK = 0.7, 1.0, 24 * MIB
_FORK = multiprocessing.get_context("fork")
_ENDED = _FORK.Event()  # inherited by the hosts' processes


def test_random_pdus_harm_nobody(
    make: Make,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    wanted: int = request.config.getoption("--fuzz-commands")
    chosen = request.config.getoption("--fuzz-seed")
    seed = int.from_bytes(os.urandom(4), "big") if chosen is None else chosen
    nodes, found = [make(), make()], faults()
    contents = [filled(node) for node in nodes]
    _attach(nodes)
    before = _run(nodes, seed + 1, 1000, found).available  # the caches grow once
    seen = _run(nodes, seed, wanted, found)
    record_property("fuzz", f"PDUs of hosts, seed {seed}: {seen}")
    seen.check(wanted)
    assert changed(nodes[0], contents[0]) == [], seen
    until(lambda: before - _available() < _LEAK, "the memory is free again", 60)
    _detach(nodes)
    assert next(found) == ""


@dataclass
class Seen:
    """What the hosts have seen, and what the node has afterwards."""

    counts: Counter[str]
    strangers: Counter[str]
    writings: list[Writing]
    seconds: float
    available: int
    fault: str

    def check(self, wanted: int) -> None:
        """Fail if honest hosts have felt the others, or those were not served."""
        first, second = self.writings
        assert self.fault == "", self
        assert (first.error, first.resets, second.error) == ("", 0, ""), self
        assert max(first.slowest, second.slowest) < _SECONDS, self
        assert self.counts["sent"] + self.strangers["sent"] > 0.98 * wanted, self
        answers = sum(self.counts[each] for each in (*STATUS.values(), "rejected"))
        assert answers > _ANSWERED * self.counts["sent"], self
        assert self.counts["GOOD"] > self.counts["sent"] // 10, self
        assert not {*STATUS.values()} & self.strangers.keys(), self

    def __str__(self) -> str:
        sent = self.counts["sent"] + self.strangers["sent"]
        return "\n    ".join(
            [
                f"{sent} in {self.seconds:.0f} s",
                f"hosts with access: {dict(self.counts)}",
                f"hosts without: {dict(self.strangers)}",
                *(f"honest host: {each}" for each in self.writings),
                f"memory available: {self.available // MIB} MiB",
                *self.fault.splitlines(),
                *(f"left out: {what} ({page})" for what, page in KNOWN_FAULTS.items()),
            ]
        )


def _run(nodes: list[Node], seed: int, wanted: int, faults: Iterator[str]) -> Seen:
    """All hosts at once; a fault, or a writer that fails, ends the others too."""
    _ENDED.clear()
    began, ids = time.monotonic(), [node.id for node in nodes]
    with ProcessPoolExecutor(len(_HOSTS) + len(nodes), _FORK) as pool:
        writers = [pool.submit(write, _place("a", node), _ended) for node in nodes]
        attackers = {
            name: pool.submit(
                attack,
                kind,
                _place(name, nodes[at]),
                Pdus(f"{seed}-{name}", ids),
                int(wanted * share),
                _ended,
            )
            for name, at, _, kind, share in _HOSTS
        }
        fault = _watched(list(attackers.values()), writers, faults)
        _ENDED.set()
    known: Counter[str] = Counter()
    strangers: Counter[str] = Counter()
    for name, each in attackers.items():
        (strangers if name in _STRANGERS else known).update(each.result())
    writings = [each.result() for each in writers]
    seconds = time.monotonic() - began
    return Seen(known, strangers, writings, seconds, _available(), fault)


def _ended(seconds: float = 0) -> bool:
    return _ENDED.wait(seconds)


def _watched(
    attackers: list[Future[Counter[str]]],
    writers: list[Future[Writing]],
    faults: Iterator[str],
) -> str:
    """Wait for the attackers; returns the kernel's fault, if there is one."""
    fault = ""
    while not fault and not any(each.done() for each in writers):
        fault = next(faults)
        if not wait(attackers, 0.2).not_done:
            break
    return fault or next(faults)


def _place(host: str, node: Node) -> tuple[str, str, str]:
    return initiator(host), node.iqn, PORTAL


def _attach(nodes: list[Node]) -> None:
    """The honest writer a at both, and the hostile hosts."""
    nodes[0].reservations = True
    for number, node in enumerate(nodes):
        modes = {"a": "rw", **_modes(number)}
        connectors = tuple(
            node.connector(host, mode, _PASSWORD if host == "h" else None)
            for host, mode in modes.items()
        )
        node.driver.apply(replace(node.export(), connectors=connectors))


def _modes(number: int) -> dict[str, str]:
    return {host: mode for host, at, mode, *_ in _HOSTS if mode and at == number}


def _detach(nodes: list[Node]) -> None:
    """One host after the other, then all; new hosts can log in until then."""
    for number, node in enumerate(nodes):
        modes = _modes(number)
        while modes:
            modes.popitem()
            node.apply(a="rw", **modes)
        node.login("a").read(0)
        node.driver.remove(node.id)
        assert not node.group.exists()
        assert not node.backstores()


def _available() -> int:
    """Memory in bytes that is not used, without caches."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert found
    return int(found[1]) * 1024
