# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The real cinder-scheduler is told of our backends, believes it, and chooses by it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.scheduler.cinder import Cinder
from tests.scheduler.servers import Broker, Daemon, until

BIG, SMALL = "node@big#big", "node@small#small"
SHOWN = (
    "multiattach",
    "storage_protocol",
    "total_capacity_gb",
    "free_capacity_gb",
    "thin_provisioning_support",
)
SHARED = {"multiattach": "<is> True"}


def say(*words: object) -> None:
    """The transcript."""
    print("  ", *words, flush=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("rabbitmq"))
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def cinder(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cinder]:
    made = Cinder(tmp_path_factory.mktemp("cinder"), broker.url)
    made.alive("node@big", "node@small")
    made.start()
    yield made
    made.close()


@pytest.fixture
def make_daemon(broker: Broker, tmp_path: Path):
    made: list[Daemon] = []

    def make(interval: int = 1) -> Daemon:
        daemon = Daemon(tmp_path, broker.url, interval)
        made.append(daemon)
        daemon.start()
        return daemon

    yield make
    for daemon in made:
        daemon.end()


def call(daemon: Daemon, method: str, path: str, body: Any = None) -> Any:
    """Ask lunshared."""
    url = f"http://127.0.0.1:{daemon.port}/v3/p{path}"
    answer = requests.request(method, url, json=body, timeout=30)
    assert answer.ok, answer.text
    return answer.json() if answer.content else None


def allocated(cinder: Cinder, pool: str) -> Any:
    """GiB that Cinder believes to be given away there."""
    return cinder.pools().get(pool, {}).get("allocated_capacity_gb")


def test_scheduler_knows_the_pools_and_chooses_by_capabilities(
    cinder: Cinder, make_daemon
) -> None:
    daemon = make_daemon()
    cinder.knows(BIG, SMALL)
    pools = call(daemon, "GET", "/scheduler-stats/get_pools?detail=true")["pools"]
    ours = {pool["name"]: pool["capabilities"] for pool in pools}
    theirs = cinder.pools()
    assert set(theirs) == set(ours)
    for name, told in theirs.items():
        say("cinder get_pools:", name, *(f"{k}={told[k]}" for k in SHOWN))
        assert told["multiattach"] is True
        assert "iSCSI" in told["storage_protocol"]
        same = set(told) - {"timestamp", "storage_protocol"}
        assert {k: told[k] for k in same} == {k: ours[name][k] for k in same}

    for pool, size, specs, passes in (
        (BIG, 1, SHARED, True),
        (SMALL, 1, SHARED, True),
        (BIG, 1, {"multiattach": "<is> False"}, False),
        (BIG, 1, {"storage_protocol": "iscsi"}, True),
        (BIG, 1, {"storage_protocol": "nfs"}, False),
        (BIG, 1, {"volume_backend_name": "small"}, False),
        (SMALL, 1, {"volume_backend_name": "small"}, True),
        (SMALL, 11, {}, False),  # thick: what is there
        (BIG, 20_000, SHARED, True),  # thin: twenty times what is there
        (BIG, 20_001, SHARED, False),
    ):
        said = cinder.passes(pool, size, specs)
        say(f"cinder's filters: {pool} {size} GiB {specs} passes={said}")
        assert said is passes
        # What passes counts as taken, until the next report says otherwise.
        cinder.hears_again(pool)

    call(daemon, "POST", "/volumes", {"volume": {"size": 7}})
    until(lambda: allocated(cinder, BIG) == 7, "Cinder knows of the new volume")
    say("a volume of 7 GiB here: allocated_capacity_gb there is 7")


def test_closed_pool_is_not_chosen(cinder: Cinder, make_daemon) -> None:
    daemon = make_daemon()
    cinder.hears_again(BIG)
    asked = {"host": "node@big", "binary": "cinder-volume"}
    call(daemon, "PUT", "/os-services/disable", asked)
    until(lambda: cinder.pools()[BIG]["free_capacity_gb"] == 0, "Cinder knows")
    # Not an error in the filter either: another backend is still found.
    assert cinder.passes(BIG, 1, {}) is False
    assert cinder.passes(SMALL, 1, {}) is True
    say("disabled here: refused there, and the other one is still chosen")


def test_started_scheduler_gets_reports_at_once(
    broker: Broker, cinder: Cinder, make_daemon
) -> None:
    make_daemon(interval=3600)
    cinder.scheduler.end()
    until(lambda: cinder.pools() == {}, "nobody answers")
    cinder.start()
    cinder.knows(BIG, SMALL)
    say("a scheduler that has just started asked, and was answered")


def test_reports_continue_when_the_bus_returns(
    broker: Broker, cinder: Cinder, make_daemon
) -> None:
    daemon = make_daemon()
    cinder.hears_again(BIG)
    broker.end(signal.SIGKILL)
    until(lambda: daemon.said("[reports] LOST"), "it is noticed")
    call(daemon, "POST", "/volumes", {"volume": {"size": 3}})
    say("RabbitMQ is killed; lunshared serves on")
    broker.start()
    until(lambda: daemon.said("[reports] BACK"), "reports go out again")
    until(lambda: allocated(cinder, BIG) == 3, "Cinder knows what came meanwhile")
    assert daemon.said("[reports] LOST") == daemon.said("[reports] BACK") == 1
    assert daemon.said("STARTED") == 1
    say("RabbitMQ is back; so are the reports; each was said once")


def test_killed_reporter_is_restarted(cinder: Cinder, make_daemon) -> None:
    daemon = make_daemon()
    cinder.hears_again(BIG)
    first = daemon.reporter()
    os.kill(first, signal.SIGKILL)
    until(lambda: daemon.said("[reports] STARTED") == 2, "it is started again")
    call(daemon, "POST", "/volumes", {"volume": {"size": 5}})
    until(lambda: allocated(cinder, BIG) == 5, "Cinder is told by the second one")
    second = daemon.reporter()
    daemon.end(signal.SIGKILL)
    until(lambda: not Path(f"/proc/{second}").exists(), "it ends with the daemon")
    say("killed: started again; the daemon killed: it ends too")
