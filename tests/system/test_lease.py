# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host that writes with a lease and does not renew it, on a real target."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stands.waiting import until
from tests.system.daemons import Daemon
from tests.system.hosts import Host, block, write_protected
from tests.system.kernel import Live
from tests.system.lanes import is_uml
from tests.system.test_handover import Writes
from tests.system.volumes import MakeDaemon, MakeHost

pytestmark = pytest.mark.system

TTL, DAY = 2, 86_400.0
#: Seconds from the end of a lease until the target has fenced its holder. An emulated
#: processor is ten times slower.
IN_TIME = 1.0 if is_uml() else 10.0


@pytest.fixture
def lender(daemon: MakeDaemon) -> Daemon:
    """A daemon that reconciles at its start only."""
    return daemon().start()


@pytest.fixture
def clock() -> Iterator[None]:
    """The wall clock has the right time again after the test."""
    began, monotonic = time.time(), time.monotonic()
    yield
    time.clock_settime(time.CLOCK_REALTIME, began + time.monotonic() - monotonic)


class Lent:
    """A volume whose holder writes with a lease; another host is the next writer."""

    def __init__(self, lender: Daemon, holder: Host, heir: Host) -> None:
        self.api, self.holder, self.heir = lender.api, holder, heir
        names = f"{holder.name},{heir.name}"
        metadata = {"lunshare:writers": names, "lunshare:max_writers": "1"}
        self.volume = self.api.volume(metadata=metadata)
        rows = [self.api.attach(self.volume, host, "ro") for host in (holder, heir)]
        self.path = f"/v3/attachments/{rows[0]['id']}"
        self.infos: list[Any] = [row["connection_info"] for row in rows]
        self.live = Live(self.volume)

    def begin(self) -> Writes:
        """Give the lease, and let its holder write as fast as it can."""
        self.give()
        return self.write()

    def give(self) -> None:
        lease = {"ttl": TTL, "then": "next"}
        fields = {"attachment": {"mode": "rw", "lease": lease}}
        self.api.must("PUT", self.path, fields)
        self.given = time.clock_gettime(time.CLOCK_BOOTTIME)

    def write(self) -> Writes:
        return Writes(self.holder.login(self.infos[0]), at=8)

    def renew(self) -> int:
        """The status of the answer."""
        status = self.api.call("PUT", f"{self.path}/lease", {"lease": {}})[0]
        if status == 200:
            self.given = time.clock_gettime(time.CLOCK_BOOTTIME)
        return status

    def age(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.given

    def is_passed_on(self) -> bool:
        modes = self.live.modes()
        assert list(modes.values()).count("rw") <= 1
        return modes == {self.holder.initiator: "ro", self.heir.initiator: "rw"}

    def check_end(self, writes: Writes) -> None:
        """The holder writes no more, the heir does, and nothing lands beside it."""
        heir = self.heir.login(self.infos[1])
        landed = heir.read(8)
        writes.wait_for_end()
        self.holder.leave()
        assert landed in writes.possible()
        assert write_protected(self.holder.login(self.infos[0]), 8)
        heir.write(16, block("the heir"))
        assert heir.read(16) == block("the heir")
        assert heir.read(8) == landed
        assert self.renew() == 409
        lease = self.api.must("GET", self.path)["attachment"]["lease"]
        assert lease["status"] == "ended"


@pytest.fixture
def lent(lender: Daemon, host: MakeHost) -> Lent:
    return Lent(lender, host("holder"), host("heir"))


def test_a_holder_that_does_not_renew_is_fenced_in_time(lent: Lent) -> None:
    """One that does writes on, for twice the time of its lease."""
    writes = lent.begin()
    until(lambda: lent.age() > TTL / 2)
    assert lent.renew() == 200
    until(lambda: lent.age() > TTL * 0.75)
    writes.wait_for_progress()
    assert not lent.is_passed_on()
    until(lent.is_passed_on, seconds=TTL + 30)
    print(f"fenced, and passed on, {lent.age():.2f} s after a lease of {TTL} s")
    assert TTL - 0.1 <= lent.age() <= TTL + IN_TIME
    lent.check_end(writes)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_a_wall_clock_that_jumps_changes_no_lease(lent: Lent, jump: float) -> None:
    lent.give()
    time.clock_settime(time.CLOCK_REALTIME, time.time() + jump)
    writes = lent.write()  # the host of this test has its deadlines by that clock
    until(lambda: lent.age() > TTL / 2)
    writes.wait_for_progress()
    assert lent.renew() == 200
    until(lent.is_passed_on, seconds=TTL + 30)
    assert TTL - 0.1 <= lent.age() <= TTL + IN_TIME
    lent.check_end(writes)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lease_that_ends_without_a_daemon(
    lender: Daemon, lent: Lent, number: signal.Signals
) -> None:
    """The kernel goes on. The daemon ends it first when it is there again."""
    assert lender.process
    pid = lender.process.pid
    writes = lent.begin()
    if number is signal.SIGKILL:
        lender.process.kill()
    else:
        os.kill(pid, number)
    until(lambda: lent.age() > TTL + 1)
    writes.wait_for_progress()
    assert not lent.is_passed_on()
    began = time.monotonic()
    if number is signal.SIGKILL:
        lender.start()
        assert lent.is_passed_on(), "before it answers"
    else:
        os.kill(pid, signal.SIGCONT)
        until(lent.is_passed_on)
        assert time.monotonic() - began <= IN_TIME
    lent.check_end(writes)
