# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A host that is fenced while it writes, on a real target."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.stands.waiting import until
from tests.system.api import Api
from tests.system.fence_rounds import AT, Rounds
from tests.system.frozen_writer import FrozenWriter
from tests.system.hosts import Traffic, block
from tests.system.kernel import Live
from tests.system.lanes import is_uml
from tests.system.lio_hosts import Session
from tests.system.volumes import MakeHost

pytestmark = pytest.mark.system

# An emulated processor is ten times slower: 0.5 s (median) and 0.9 s on 6.1, 8 fences.
FENCES, IN_TIME = (50, 3.0) if is_uml() else (10, 10.0)  # seconds
PATH = "/v3/lunshare/fences/frozen"
ENDPOINT = "http://127.0.0.1:8776/v3"


@pytest.fixture
def frozen() -> Iterator[FrozenWriter]:
    writer = FrozenWriter("frozen", AT)
    yield writer
    writer.thaw()
    writer.kill()


@pytest.fixture
def unfenced(api: Api) -> Iterator[None]:
    """The host has its access again after the test, so that its volume can be used."""
    yield
    api.must("DELETE", PATH)


@pytest.mark.parametrize("writes_only", [False, True], ids=["all", "writes"])
@pytest.mark.usefixtures("unfenced")
def test_a_frozen_writer_is_fenced_in_time_and_writes_nothing_after_it(
    api: Api, volume: str, host: MakeHost, frozen: FrozenWriter, writes_only: bool
) -> None:
    """The survivor writes the same block, and its other I/O sees no error."""
    writer, survivor = host("frozen"), host("survivor")
    info = api.attach(volume, writer)["connection_info"]
    theirs = api.attach(volume, survivor)["connection_info"]
    session, beside = survivor.login(theirs), survivor.login(theirs)
    generation = api.must("GET", f"/v3/volumes/{volume}/handover")["fencing_generation"]
    times = []
    with Traffic(beside, "rw") as traffic:
        for number in range(FENCES):
            before = session.read(AT)
            frozen.begin(info)
            _wait_for_write(session, before)
            frozen.freeze()
            began = time.monotonic()
            body = {"fence": {"writes_only": writes_only}}
            status, answer = api.call("PUT", PATH, body)
            times.append(time.monotonic() - began)
            landed = session.read(AT)
            ours = block(f"survivor {number}")
            session.write(AT, ours)
            assert status == 200, answer
            (proof,) = answer["fence"]["volumes"]
            assert proof["status"] == "fenced"
            assert proof["fencing_generation"] == generation + number + 1
            allowed = {"survivor": "rw"} | ({"frozen": "ro"} if writes_only else {})
            modes = Live(volume).modes()
            assert {
                name.split(":")[-1]: mode for name, mode in modes.items()
            } == allowed
            frozen.thaw()
            ended = frozen.ended()
            acknowledged = ended["acknowledged"]
            assert landed in {block(str(acknowledged + more)) for more in (0, 1)}, ended
            frozen.begin(info)
            again = frozen.ended()
            assert again == {"refused": True} or again["acknowledged"] == -1, again
            assert session.read(AT) == ours
            api.must("DELETE", PATH)
        traffic.stop()
    assert max(times) < IN_TIME, times
    print(
        f"{len(times)} fences under I/O: median {statistics.median(times):.3f} s,"
        f" longest {max(times):.3f} s; nothing was written after one"
    )


@pytest.mark.usefixtures("unfenced")
def test_the_agent_fences_a_frozen_writer_that_comes_back_by_another_port(
    api: Api, volume: str, host: MakeHost, frozen: FrozenWriter
) -> None:
    """It comes back with the ISID that it had, and with another one."""
    writer, survivor = host("frozen"), host("survivor")
    info = api.attach(volume, writer)["connection_info"]
    theirs = api.attach(volume, survivor)["connection_info"]
    rounds = Rounds.of_frozen(frozen, info, survivor.login(theirs))
    with Traffic(survivor.login(theirs), "rw") as traffic:
        for _ in range(FENCES):
            rounds.run(lambda: _run_agent("off"))
            _run_agent("on")
        traffic.stop()
    print(rounds.report(f"{FENCES} frozen writers fenced by the agent"))
    assert max(rounds.seconds) < IN_TIME, rounds.seconds


def _run_agent(action: str) -> None:
    """Run fence_lunshare as Pacemaker does."""
    lines = f"action={action}\nplug=frozen\nendpoint={ENDPOINT}\n"
    agent = [sys.executable, "-m", "lunshare.agent.cli.fence_agent"]
    subprocess.run(agent, input=lines, text=True, check=True, timeout=60)


def _wait_for_write(session: Session, before: bytes) -> None:
    until(lambda: session.read(AT) != before)
