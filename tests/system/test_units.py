# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The installed units: killed, restarted, stopped, while hosts do I/O."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.hosts import Host, Traffic, write_protected
from tests.system.kernel import Live
from tests.system.units import DAEMON, HELPER, main_pid, systemctl
from tests.system.volumes import BorrowVolume, MakeHost

pytestmark = pytest.mark.system

_PAUSE_SECONDS = 0.5


class Working:
    """A volume with one host that writes and one that reads all the time."""

    def __init__(self, api: Api, volume: str, hosts: tuple[Host, Host]) -> None:
        self.live = Live(volume)
        self._traffics = []
        self._hosts = hosts
        for each, mode in zip(hosts, ("rw", "ro"), strict=True):
            created = api.attach(volume, each, mode)
            api.complete(created["id"])
            session = each.login(created["connection_info"])
            self._traffics.append(Traffic(session, mode))
        self._before = self._identities()

    def assert_undisturbed(self) -> None:
        """The first sessions still exist, and every I/O has succeeded."""
        assert self._identities() == self._before
        for traffic in self._traffics:
            traffic.wait_for_progress()

    def stop(self) -> None:
        for traffic in self._traffics:
            traffic.stop()

    def _identities(self) -> list[tuple[int, int, str | None]]:
        return [self.live.identity(each.initiator) for each in self._hosts]


@pytest.fixture
def working(api: Api, volume: str, host: MakeHost) -> Iterator[Working]:
    created = Working(api, volume, (host("writer"), host("reader")))
    yield created
    created.stop()


def test_restarts_of_daemon_and_helper_disturb_no_host(
    api: Api, volume: str, host: MakeHost, working: Working
) -> None:
    third = host("third")
    for unit in (HELPER, DAEMON):
        pid = main_pid(unit)
        systemctl("restart", unit)
        assert main_pid(unit) not in (0, pid)
        working.assert_undisturbed()
        created = api.attach(volume, third, "ro")
        assert write_protected(third.login(created["connection_info"]))
        assert api.detach(created["id"])[0] == 200
        working.assert_undisturbed()


class Newcomers:
    """A client that opens a new connection for each request, all the time."""

    def __init__(self, api: Api) -> None:
        self.answers, self.refusals = 0, 0
        self._api, self._stopping = api, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.answers += self._api.call("GET", "/healthz")[0] == 200
            except ConnectionRefusedError:
                self.refusals += 1
            except (OSError, http.client.HTTPException):
                pass  # its request came to the process that stops

    def wait_for_progress(self) -> None:
        wanted = self.answers + 3
        until(lambda: self.answers >= wanted)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)


@pytest.mark.parametrize("words", [("restart",), ("kill", "--signal=KILL")])
def test_a_restart_refuses_no_connection(api: Api, words: tuple[str, ...]) -> None:
    newcomers, pid = Newcomers(api), main_pid(DAEMON)
    newcomers.wait_for_progress()
    systemctl(*words, DAEMON)
    until(lambda: main_pid(DAEMON) not in (0, pid))
    newcomers.wait_for_progress()
    newcomers.stop()
    assert newcomers.refusals == 0


def test_target_matches_the_database_when_the_daemon_is_ready(
    api: Api, borrow: BorrowVolume, host: MakeHost, working: Working
) -> None:
    wiped, one, intruder = borrow(), host("one"), host("intruder")
    info = api.attach(wiped, one)["connection_info"]
    systemctl("stop", DAEMON)
    working.assert_undisturbed()
    Live(wiped).wipe()
    working.live.intrude(intruder.initiator)
    systemctl("start", DAEMON)
    # No wait here: systemctl returns after READY=1.
    assert Live(wiped).modes() == {one.initiator: "rw"}
    assert intruder.initiator not in working.live.modes()
    assert api.call("GET", "/readyz")[0] == 200
    assert not one.refused(info)
    working.assert_undisturbed()


@dataclass
class Client:
    """A client that attaches and detaches its own host repeatedly.

    ``acknowledged`` is the outcome of its last answer, None without an answer.
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
        """Run until ``stopping`` and an answer; retry while the API is unavailable."""
        try:
            while not self.stopping.is_set() or self.acknowledged is None:
                try:
                    self._step()
                except (OSError, http.client.HTTPException):
                    time.sleep(_PAUSE_SECONDS)  # as a client does
        except Exception as error:
            self.error = error

    def wait_for_progress(self) -> None:
        """Return after three more answers."""
        wanted = self.rounds + 3
        until(lambda: self.rounds >= wanted or self.error)
        assert self.error is None, self.error

    def _step(self) -> None:
        if self.acknowledged == "attached":
            self.acknowledged = None
            status, answer = self.api.detach(self.attachment)
            assert status == 200, answer
            self._acknowledge("detached")
        elif self.acknowledged == "detached":
            self.acknowledged = None
            status, answer = self.api.create(self.volume, self.host, self.mode)
            assert status == 200, answer
            self.attachment = answer["attachment"]["id"]
            self._acknowledge("attached")
        else:
            self._ask()

    def _acknowledge(self, outcome: str) -> None:
        self.acknowledged = outcome
        self.rounds += 1

    def _ask(self) -> None:
        """Read the outcome of a request that was not answered."""
        ids = [row["id"] for row in self.api.attachments(self.volume)]
        self.acknowledged = "attached" if ids else "detached"
        self.attachment = ids[0] if ids else ""

    def assert_consistent(self) -> None:
        """The last answer holds, in the API and in the kernel."""
        ids = [row["id"] for row in self.api.attachments(self.volume)]
        live = Live(self.volume)
        if self.acknowledged == "attached":
            assert ids == [self.attachment]
            assert live.modes() == {self.host.initiator: self.mode}
        else:
            assert ids == []
            assert live.gone


def test_killed_daemon_restarts_with_all_acknowledged_changes(
    api: Api, borrow: BorrowVolume, host: MakeHost, working: Working
) -> None:
    clients = [
        Client(api, borrow(), host(f"client-{number}"), mode)
        for number, mode in enumerate(("rw", "ro", "rw"))
    ]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for client in clients:
        client.wait_for_progress()
    pid = main_pid(DAEMON)
    systemctl("kill", "--signal=KILL", DAEMON)
    working.assert_undisturbed()
    until(lambda: main_pid(DAEMON) not in (0, pid) and api.answers())
    working.assert_undisturbed()
    for client in clients:
        client.wait_for_progress()
    for client, thread in zip(clients, threads, strict=True):
        client.stopping.set()
        thread.join(60)
        assert not thread.is_alive()
        assert client.error is None, client.error
        client.assert_consistent()
