# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed units: killed, restarted, stopped, with hosts at work all the time."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.system.api import Api
from tests.system.hosts import Host, Traffic, write_protected
from tests.system.kernel import Live
from tests.system.units import DAEMON, HELPER, main_pid, systemctl
from tests.system.volumes import MakeHost, Take
from tests.system.waiting import wait_until

pytestmark = pytest.mark.system

_PAUSE_SECONDS = 0.5


class Working:
    """A volume with a host that writes and one that reads, all the time."""

    def __init__(self, api: Api, volume: str, hosts: tuple[Host, Host]) -> None:
        self.live = Live(volume)
        self._traffics = []
        self._hosts = hosts
        for each, mode in zip(hosts, ("rw", "ro"), strict=True):
            made = api.attach(volume, each, mode)
            api.complete(made["id"])
            session = each.login(made["connection_info"])
            self._traffics.append(Traffic(session, mode))
        self._before = self._identities()

    def is_undisturbed(self) -> None:
        """The sessions are those it began with, and every I/O went well."""
        assert self._identities() == self._before
        for traffic in self._traffics:
            traffic.goes_on()

    def stop(self) -> None:
        for traffic in self._traffics:
            traffic.stop()

    def _identities(self) -> list[tuple[int, int, str | None]]:
        return [self.live.identity(each.initiator) for each in self._hosts]


@pytest.fixture
def working(api: Api, volume: str, host: MakeHost) -> Iterator[Working]:
    made = Working(api, volume, (host("writer"), host("reader")))
    yield made
    made.stop()


def test_restarts_of_daemon_and_helper_disturb_no_host(
    api: Api, volume: str, host: MakeHost, working: Working
) -> None:
    third = host("third")
    for unit in (HELPER, DAEMON):
        pid = main_pid(unit)
        systemctl("restart", unit)
        assert main_pid(unit) not in (0, pid)
        working.is_undisturbed()
        made = api.attach(volume, third, "ro")
        assert write_protected(third.login(made["connection_info"]))
        assert api.detach(made["id"])[0] == 200
        working.is_undisturbed()


def test_target_matches_the_database_when_the_daemon_is_ready(
    api: Api, take: Take, host: MakeHost, working: Working
) -> None:
    wiped, one, intruder = take(), host("one"), host("intruder")
    info = api.attach(wiped, one)["connection_info"]
    systemctl("stop", DAEMON)
    working.is_undisturbed()
    Live(wiped).wipe()
    working.live.intrude(intruder.initiator)
    systemctl("start", DAEMON)
    # Not waited for: systemctl comes back with READY=1.
    assert Live(wiped).modes() == {one.initiator: "rw"}
    assert intruder.initiator not in working.live.modes()
    assert api.call("GET", "/readyz")[0] == 200
    assert not one.refused(info)
    working.is_undisturbed()


@dataclass
class Client:
    """One that attaches and detaches a host of its own, again and again.

    ``acknowledged`` is what it was told last, None while it does not know.
    """

    api: Api
    volume: str
    host: Host
    mode: str
    acknowledged: str | None = "detached"
    attachment: str = ""
    rounds: int = 0
    error: Exception | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until ``stopping`` and an answer; an API that is away is tried again."""
        try:
            while not self.stopping.is_set() or self.acknowledged is None:
                try:
                    self._step()
                except (OSError, http.client.HTTPException):
                    time.sleep(_PAUSE_SECONDS)  # as a client does
        except Exception as error:
            self.error = error

    def goes_on(self) -> None:
        """Return after three more acknowledgements."""
        wanted = self.rounds + 3
        wait_until(lambda: self.rounds >= wanted or self.error)
        assert self.error is None, self.error

    def _step(self) -> None:
        if self.acknowledged == "attached":
            self.acknowledged = None
            status, answer = self.api.detach(self.attachment)
            assert status == 200, answer
            self._told("detached")
        elif self.acknowledged == "detached":
            self.acknowledged = None
            status, answer = self.api.create(self.volume, self.host, self.mode)
            assert status == 200, answer
            self.attachment = answer["attachment"]["id"]
            self._told("attached")
        else:
            self._ask()

    def _told(self, outcome: str) -> None:
        self.acknowledged = outcome
        self.rounds += 1

    def _ask(self) -> None:
        """What became of a request that was never answered."""
        ids = [row["id"] for row in self.api.attachments(self.volume)]
        self.acknowledged = "attached" if ids else "detached"
        self.attachment = ids[0] if ids else ""

    def is_right(self) -> None:
        """What it was told last is so, in the API and in the kernel."""
        ids = [row["id"] for row in self.api.attachments(self.volume)]
        live = Live(self.volume)
        if self.acknowledged == "attached":
            assert ids == [self.attachment]
            assert live.modes() == {self.host.initiator: self.mode}
        else:
            assert ids == []
            assert live.gone


def test_killed_daemon_restarts_with_all_acknowledged_changes(
    api: Api, take: Take, host: MakeHost, working: Working
) -> None:
    clients = [
        Client(api, take(), host(f"client-{number}"), mode)
        for number, mode in enumerate(("rw", "ro", "rw"))
    ]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for client in clients:
        client.goes_on()
    pid = main_pid(DAEMON)
    systemctl("kill", "--signal=KILL", DAEMON)
    working.is_undisturbed()
    wait_until(lambda: main_pid(DAEMON) not in (0, pid) and api.answers())
    working.is_undisturbed()
    for client in clients:
        client.goes_on()
    for client, thread in zip(clients, threads, strict=True):
        client.stopping.set()
        thread.join(60)
        assert not thread.is_alive()
        assert client.error is None, client.error
        client.is_right()
