# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Handovers, fences, detaches and kills beside a hostile host of the same volume.

It sends random PDUs all the time (``fuzz_pdus``) in a session of its own, and logins
under a name that has no attachment. The storm of tests/storm has a hostile member; its
target is in memory, so a hostile host is here.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.system.daemons import Daemon
from tests.system.fuzz_hosts import Attacker, Counts, Honest, Newcomer, attack
from tests.system.fuzz_pdus import Pdus
from tests.system.hosts import Host, block
from tests.system.kernel import Live, faults
from tests.system.test_handover import Writes
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

_SEED, _ROUNDS, _ALWAYS = 27, 20, 10**9
_WRITERS, _HOSTILE, _STRANGER = ("alpha", "beta"), "mallory", "nobody"
_AT, _READ_AT = 8, 128


class Storm:
    """A volume that one host at a time may write, and its hosts."""

    def __init__(self, daemon: Daemon, host: MakeHost) -> None:
        self.daemon, self.api, self._host = daemon, daemon.api, host
        self.volume = self.api.volume(metadata={"lunshare:max_writers": "1"})
        self.live, self.rows = Live(self.volume), dict[str, dict[str, Any]]()
        self.writer, self.reader = _WRITERS
        self.done: Counter[str] = Counter()
        for name in (*_WRITERS, "gamma", _HOSTILE):
            mode = "rw" if name == self.writer else "ro"
            self.rows[name] = self.api.attach(self.volume, Host(name), mode)

    def login(self, name: str) -> tuple[Host, Any]:
        made = self._host(name)
        return made, made.login(self.rows[name]["connection_info"])

    def do(self, work: Callable[[Storm], None]) -> None:
        """Do something while the writer writes; what it was told of must be there."""
        host, session = self.login(self.writer)
        writer, writes = self.writer, Writes(session, _AT)
        writes.wait_for_progress()
        try:
            work(self)
            self.done[work.__name__] += 1
            if writer != self.writer:
                writes.wait_for_end()
        finally:
            writes.stop()
            host.leave()
        self.check(writer, writes)

    def check(self, writer: str, writes: Writes) -> None:
        modes = self.live.modes()
        rw = [name for name, mode in modes.items() if mode == "rw"]
        assert rw == [Host(self.writer).initiator], modes
        host, session = self.login(self.writer)
        assert session.read(_AT) in writes.possible(), writer
        session.write(_READ_AT, block(f"round {self.done.total()}"))
        host.leave()


def hand_over(storm: Storm) -> None:
    ids = {"from": storm.rows[storm.writer]["id"], "to": storm.rows[storm.reader]["id"]}
    path = f"/v3/volumes/{storm.volume}/action"
    shown = storm.api.must("POST", path, {"lunshare:handover": ids})
    assert shown["handover"]["status"] == "done", shown
    storm.writer, storm.reader = storm.reader, storm.writer


def fence(storm: Storm) -> None:
    """The hostile host, for a moment."""
    path = f"/v3/lunshare/fences/{_HOSTILE}"
    shown = storm.api.must("PUT", path, {"fence": {}})["fence"]
    assert shown["status"] == "fenced", shown
    assert Host(_HOSTILE).initiator not in storm.live.modes()
    storm.api.must("DELETE", path)


def detach(storm: Storm) -> None:
    """The hostile host, which comes again."""
    status, answer = storm.api.detach(storm.rows[_HOSTILE]["id"])
    assert status == 200, answer
    assert Host(_HOSTILE).initiator not in storm.live.modes()
    row = storm.api.attach(storm.volume, Host(_HOSTILE), "ro")
    storm.rows[_HOSTILE] = row


def kill(storm: Storm) -> None:
    assert storm.daemon.process
    storm.daemon.process.kill()
    storm.daemon.start()


_WORKS = (hand_over, hand_over, hand_over, fence, detach, kill)


def test_a_hostile_host_disturbs_no_change_of_who_may_write(
    daemon: MakeDaemon, host: MakeHost
) -> None:
    storm, found = (
        Storm(daemon(backend={"use_chap_auth": False}).start(), host),
        faults(),
    )
    rng, ended = random.Random(_SEED), threading.Event()
    _, session = storm.login("gamma")
    info = storm.rows[_HOSTILE]["connection_info"]

    def attacked(name: str, kind: type[Attacker]) -> Future[Counts]:
        place = (Host(name).initiator, info["target_iqn"], info["target_portal"])
        pdus = Pdus(f"{_SEED}-{name}", [storm.volume], compares=True)
        return pool.submit(attack, kind, place, pdus, _ALWAYS, ended.is_set)

    with ThreadPoolExecutor(2) as pool, Honest(session, "ro", _READ_AT, 0.05) as reads:
        attacks = [attacked(_HOSTILE, Attacker), attacked(_STRANGER, Newcomer)]
        try:
            for _ in range(_ROUNDS):
                storm.do(rng.choice(_WORKS))
                assert reads.error == ""
                assert next(found) == ""
        finally:
            ended.set()
        sent = [each.result() for each in attacks]
    print(f"{dict(storm.done)}; the reader: {reads}")
    print({k: n for counts in sent for k, n in counts.items() if isinstance(k, str)})
    assert sent[0]["sent"] > _ROUNDS
    assert "entered" not in sent[1]
    for row in storm.rows.values():
        assert storm.api.detach(row["id"])[0] == 200
    assert storm.live.gone
