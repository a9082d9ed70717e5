# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pacemaker's fencer runs fence_lunshare, by what the agent says of itself.

The fencer (pacemaker-fenced) is alone: who has to be fenced is decided here, as
Pacemaker's scheduler decides it. It finds the agent where fence-agents look.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stands.waiting import until
from tests.stonith.cut_paths import CutHost
from tests.system.api import Api
from tests.system.fence_rounds import AT, Rounds
from tests.system.frozen_writer import FrozenWriter
from tests.system.hosts import Traffic
from tests.system.volumes import MakeHost

ROUNDS, IN_TIME = 50, 3.0  # seconds
AGENT = Path("/usr/sbin/fence_lunshare")
DEVICE, HOST = "luns", "frozen"
ENDPOINT = "http://127.0.0.1:8776/v3"


def stonith(*words: str) -> str:
    """Run Pacemaker's client of the fencer, which must succeed."""
    command = ["stonith_admin", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    return ran.stdout


@pytest.fixture(scope="module")
def fencer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pacemaker's fencer, with a device of the agent."""
    for words in (("groupadd", "-f", "haclient"), ("useradd", "-g", "haclient", "-M")):
        name = [] if words[0] == "groupadd" else ["hacluster"]
        subprocess.run([*words, *name], check=True)
    for place in ("lib/pacemaker/cores", "log/pacemaker"):
        os.makedirs(f"/var/{place}", exist_ok=True)
    log = tmp_path_factory.mktemp("fencer") / "log"
    environment = {**os.environ, "PCMK_logfile": str(log)}
    program = ["/usr/lib/pacemaker/pacemaker-fenced", "--stand-alone"]
    with subprocess.Popen(program, env=environment) as process:
        until(lambda: log.exists() and "accepting connections" in log.read_text())
        assert "fence_lunshare" in stonith("--list-installed")
        options = (f"endpoint={ENDPOINT}", f"pcmk_host_list={HOST}")
        given = (f"--option={option}" for option in options)
        stonith("--register", DEVICE, "--agent", AGENT.name, *given)
        yield
        process.terminate()


def _fence() -> None:
    stonith("--fence", HOST)


@pytest.fixture
def lost() -> Iterator[FrozenWriter]:
    writer = FrozenWriter(HOST, AT)
    yield writer
    writer.thaw()
    writer.kill()


@pytest.mark.usefixtures("fencer")
def test_the_fencer_takes_the_agent_by_its_metadata() -> None:
    assert "<resource-agent" in stonith("--metadata", "--agent", AGENT.name)
    assert DEVICE in stonith("--list", HOST)
    stonith("--query", DEVICE)  # status: monitor of the device


@pytest.mark.usefixtures("fencer")
def test_a_frozen_writer_is_fenced_in_time_and_writes_nothing_after_it(
    api: Api,
    volume: str,
    host: MakeHost,
    lost: FrozenWriter,
) -> None:
    writer, survivor = host(HOST), host("survivor")
    info = api.attach(volume, writer)["connection_info"]
    theirs = api.attach(volume, survivor)["connection_info"]
    rounds = Rounds.of_frozen(lost, info, survivor.login(theirs))
    with Traffic(survivor.login(theirs), "rw") as traffic:
        for _ in range(ROUNDS):
            rounds.run(_fence)
            stonith("--unfence", HOST)
        traffic.stop()
    print(rounds.report(f"{ROUNDS} frozen writers fenced by Pacemaker"))
    assert max(rounds.seconds) < IN_TIME, rounds.seconds


@pytest.fixture
def cut() -> Iterator[CutHost]:
    cut_host = CutHost(HOST)
    yield cut_host
    cut_host.kill()


@pytest.mark.usefixtures("fencer")
def test_a_host_whose_paths_are_all_cut_is_fenced_in_time(
    api: Api, volume: str, host: MakeHost, cut: CutHost
) -> None:
    """Nothing that the target sends reaches it, so nothing ends its sessions there."""
    writer, survivor = host(HOST), host("survivor")
    info = api.attach(volume, writer)["connection_info"]
    theirs = api.attach(volume, survivor)["connection_info"]
    rounds = Rounds(cut.paths(info), cut.cut, cut.mend, survivor.login(theirs))
    with Traffic(survivor.login(theirs), "rw") as traffic:
        for _ in range(ROUNDS):
            rounds.run(_fence)
            stonith("--unfence", HOST)
        traffic.stop()
    print(rounds.report(f"{ROUNDS} hosts with both paths cut, fenced by Pacemaker"))
    assert max(rounds.seconds) < IN_TIME, rounds.seconds
