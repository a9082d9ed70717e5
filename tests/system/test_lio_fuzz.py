# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Random PDUs of several hostile hosts at once; what others must not feel of it.

``--fuzz-commands`` PDUs, from a seed that is printed (``--fuzz-seed``). The same seed
makes the same PDUs; which host is served first depends on the machine. So a delay of an
honest host is measured beside the same host of a volume that nobody attacks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from lunshare.drivers.values import Auth
from tests.stands.waiting import until
from tests.system.fuzz_hosts import STATUS, Attacker, Counts, Honest, Newcomer, attack
from tests.system.fuzz_pdus import KNOWN_FAULTS, Pdus
from tests.system.hostile_host import PORTAL
from tests.system.kernel import faults
from tests.system.lio_checks import WRITERS_AT, Make, changed, filled
from tests.system.lio_node import MIB, Node, initiator

# A million PDUs take hours on a stock kernel; every wait inside has its own limit.
pytestmark = [pytest.mark.system, pytest.mark.timeout(36_000)]
pytest_plugins = ["tests.system.lio_fixtures"]

_SEED = 404
#: Host, its volume, its mode there, what it does, and its share of the PDUs. On the
#: first volume hostile hosts only read, so its bytes are compared. The third has none.
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
_HONEST = {"a": "rw", "r": "ro"}
_PASSWORD = Auth("host-h", "a-secret-of-h-0123")
_ROLES = ("ro", "rw", "no access")
_ANSWERED, _LEAK, _PAUSE = 0.5, 24 * MIB, 0.05
#: How long a host may wait beside hosts of the third volume (``Honest.delay``), and how
#: long these may: what the target makes hosts wait for takes 10 s and more.
_SECONDS, _MOST_SECONDS = 1.0, 8.0
#: How many different ones of each kind (``Pdu.kinds``) 30,000 PDUs have at least.
_LEAST = {
    "PDU opcodes": 20,
    "opcodes": 255,
    "flag patterns": 100,
    "actions with lists": 1000,
    "task functions": 10,
    "login stages": 64,
    "text keys": 31,
}


def test_random_pdus_harm_nobody(make: Make, request: pytest.FixtureRequest) -> None:
    wanted: int = request.config.getoption("--fuzz-commands")
    chosen = request.config.getoption("--fuzz-seed")
    seed = _SEED if chosen is None else chosen
    nodes, found = [make(), make(), make()], faults()
    contents = [filled(node) for node in nodes]
    _attach(nodes)
    _run(nodes, seed + 1, 1000, found)  # the caches grow once
    before = _available()
    seen = _run(nodes, seed, wanted, found)
    tried = request.node.user_properties
    tried.append(("fuzz", f"PDUs of hosts, seed {seed}: {seen}"))
    seen.check(wanted)
    assert changed(nodes[0], contents[0]) == [], seen
    until(lambda: before - _available() < _LEAK, "the memory is free again", 60)
    kept = _detach(nodes)
    tried.append(("fuzz", f"seed {seed}: ACLs that the kernel keeps: {kept}"))
    assert next(found) == ""


@dataclass
class Seen:
    """What the hosts have seen, those of hostile ones by role, and the kernel's fault.

    ``honest``: two of each volume; ``calm`` are those of the third.
    """

    roles: dict[str, Counts]
    honest: list[Honest]
    seconds: float
    fault: str

    @property
    def calm(self) -> list[Honest]:
        return self.honest[-len(_HONEST) :]

    def check(self, wanted: int) -> None:
        """Fail if honest hosts have felt the others, or those were not served."""
        assert self.fault == "", self
        assert not any(each.error for each in self.honest), self
        assert self.honest[0].disturbed == 0, self
        assert max(each.delay(self.calm) for each in self.honest) < _SECONDS, self
        assert max(each.delay([]) for each in self.calm) < _MOST_SECONDS, self
        served = self.roles["ro"] + self.roles["rw"]
        answers = sum(served[each] for each in (*STATUS.values(), "rejected"))
        assert answers > _ANSWERED * served["sent"], self
        assert served["GOOD"] > served["sent"] // 20, self
        assert not {*STATUS.values()} & self.roles["no access"].keys(), self
        if wanted >= 30_000:
            assert [k for k in _LEAST if self.kinds()[k] < _LEAST[k]] == [], self

    def kinds(self) -> Counter[str]:
        """How many different ones of each kind were sent."""
        every = set().union(*self.roles.values())
        return Counter(each[0] for each in every if isinstance(each, tuple))

    def __str__(self) -> str:
        count = sum(seen["sent"] for seen in self.roles.values())
        lines = [f"{count} in {self.seconds:.0f} s"]
        for role, seen in self.roles.items():
            lines += [f"{role}: { {k: n for k, n in seen.items() if type(k) is str} }"]
        for each in self.honest:
            beside = f"{each.delay(self.calm):.2f} s beside the third volume"
            lines += [f"honest host: {each}; {beside}"]
        lines += [f"different ones sent: {dict(self.kinds())}"]
        lines += [f"left out: {KNOWN_FAULTS}", *self.fault.splitlines()]
        return "\n    ".join(lines)


def _run(nodes: list[Node], seed: int, wanted: int, faults: Iterator[str]) -> Seen:
    """All hosts at once; a fault, or an honest host that fails, ends the others too."""
    ended, began = threading.Event(), time.monotonic()
    with contextlib.ExitStack() as stack:
        honest = [
            stack.enter_context(Honest(session, mode, WRITERS_AT, 0.02))
            for node in nodes
            for name, mode in _HONEST.items()
            for session in [stack.enter_context(node.login(name))]
        ]
        pool = stack.enter_context(ThreadPoolExecutor(len(_HOSTS)))
        attackers = [
            pool.submit(
                attack,
                kind,
                (initiator(name), nodes[at].iqn, PORTAL),
                Pdus(f"{seed}-{name}", [e.id for e in nodes], compares=mode != "rw"),
                int(wanted * share),
                ended.is_set,
            )
            for name, at, mode, kind, share in _HOSTS
        ]
        while wait(attackers, _PAUSE).not_done:
            if next(faults) or any(each.error for each in honest):
                ended.set()
    roles: dict[str, Counts] = {role: Counter() for role in _ROLES}
    for (name, _, mode, *_), each in zip(_HOSTS, attackers, strict=True):
        roles[mode if mode and name != "h" else "no access"].update(each.result())
    return Seen(roles, honest, time.monotonic() - began, next(faults))


def _attach(nodes: list[Node]) -> None:
    """The honest hosts at each, and the hostile ones."""
    nodes[0].reservations = True
    for number, node in enumerate(nodes):
        connectors = tuple(
            node.connector(host, mode, _PASSWORD if host == "h" else None)
            for host, mode in {**_HONEST, **_modes(number)}.items()
        )
        node.driver.apply(replace(node.export(), connectors=connectors))
        for host in _HONEST:
            # libiscsi 1.19 ends a session, rarely, that answers the target's ping.
            (node.acl(host) / "attrib/nopin_timeout").write_text("0")


def _modes(number: int) -> dict[str, str]:
    return {host: mode for host, at, mode, *_ in _HOSTS if mode and at == number}


def _detach(nodes: list[Node]) -> dict[str, str]:
    """One host after the other, then all; new hosts can log in until then.

    Returns the hosts whose ACL the kernel does not let go (docs/decisions/0040).
    """
    for number, node in enumerate(nodes):
        modes = _modes(number)
        while modes:
            modes.popitem()
            node.apply(**_HONEST, **modes)
        node.login("a").read(0)
        node.driver.remove(node.id)
        assert not node.backstores()
    ids = {node.id for node in nodes if node.group.exists()}
    left = [each for each in nodes[0].driver.observe() if each.volume_id in ids]
    assert all(each.ended for each in left), left
    return {host: why for each in left for host, why in each.remains}


def _available() -> int:
    """Memory in bytes that is not used, without caches."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return psutil.virtual_memory().available
