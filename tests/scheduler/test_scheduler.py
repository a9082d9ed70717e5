# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The real cinder-scheduler gets lunshare's reports and chooses pools by them."""

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
    """Print a line of the transcript."""
    print("  ", *words, flush=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    created = Broker(tmp_path_factory.mktemp("rabbitmq"))
    created.start()
    yield created
    created.close()


@pytest.fixture(scope="module")
def cinder(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cinder]:
    created = Cinder(tmp_path_factory.mktemp("cinder"), broker.url)
    created.alive("node@big", "node@small")
    created.start()
    yield created
    created.close()


@pytest.fixture
def make_daemon(broker: Broker, tmp_path: Path):
    created: list[Daemon] = []

    def make(interval: int = 1) -> Daemon:
        daemon = Daemon(tmp_path, broker.url, interval)
        created.append(daemon)
        daemon.start()
        return daemon

    yield make
    for daemon in created:
        daemon.end()


def call(daemon: Daemon, method: str, path: str, body: Any = None) -> Any:
    """Send a request to lunshared."""
    url = f"http://127.0.0.1:{daemon.port}/v3/p{path}"
    answer = requests.request(method, url, json=body, timeout=30)
    assert answer.ok, answer.text
    return answer.json() if answer.content else None


def allocated(cinder: Cinder, pool: str) -> Any:
    """GiB that Cinder counts as allocated there."""
    return cinder.pools().get(pool, {}).get("allocated_capacity_gb")


def test_scheduler_knows_the_pools_and_chooses_by_capabilities(
    cinder: Cinder, make_daemon
) -> None:
    daemon = make_daemon()
    cinder.knows(BIG, SMALL)
    pools = call(daemon, "GET", "/scheduler-stats/get_pools?detail=true")["pools"]
    own = {pool["name"]: pool["capabilities"] for pool in pools}
    theirs = cinder.pools()
    assert set(theirs) == set(own)
    for name, reported in theirs.items():
        say("cinder get_pools:", name, *(f"{k}={reported[k]}" for k in SHOWN))
        assert reported["multiattach"] is True
        assert "iSCSI" in reported["storage_protocol"]
        same = set(reported) - {"timestamp", "storage_protocol"}
        assert {k: reported[k] for k in same} == {k: own[name][k] for k in same}

    for pool, size, specs, passes in (
        (BIG, 1, SHARED, True),
        (SMALL, 1, SHARED, True),
        (BIG, 1, {"multiattach": "<is> False"}, False),
        (BIG, 1, {"storage_protocol": "iscsi"}, True),
        (BIG, 1, {"storage_protocol": "nfs"}, False),
        (BIG, 1, {"volume_backend_name": "small"}, False),
        (SMALL, 1, {"volume_backend_name": "small"}, True),
        (SMALL, 11, {}, False),  # thick: the free space
        (BIG, 20_000, SHARED, True),  # thin: twenty times the free space
        (BIG, 20_001, SHARED, False),
    ):
        passed = cinder.passes(pool, size, specs)
        say(f"cinder's filters: {pool} {size} GiB {specs} passes={passed}")
        assert passed is passes
        # A pool that passes counts the volume as allocated until its next report.
        cinder.gets_new_report(pool)

    call(daemon, "POST", "/volumes", {"volume": {"size": 7}})
    until(lambda: allocated(cinder, BIG) == 7, "Cinder knows of the new volume")
    say("a volume of 7 GiB here: allocated_capacity_gb there is 7")


def test_closed_pool_is_not_chosen(cinder: Cinder, make_daemon) -> None:
    daemon = make_daemon()
    cinder.gets_new_report(BIG)
    asked = {"host": "node@big", "binary": "cinder-volume"}
    call(daemon, "PUT", "/os-services/disable", asked)
    until(lambda: cinder.pools()[BIG]["free_capacity_gb"] == 0, "Cinder knows")
    # The filter itself works: another backend is still found.
    assert cinder.passes(BIG, 1, {}) is False
    assert cinder.passes(SMALL, 1, {}) is True
    say("disabled here: refused there, and the other one is still chosen")


def test_started_scheduler_gets_reports_at_once(
    broker: Broker, cinder: Cinder, make_daemon
) -> None:
    make_daemon(interval=3600)
    cinder.scheduler.end()
    until(lambda: cinder.pools() == {}, "no backend answers")
    cinder.start()
    cinder.knows(BIG, SMALL)
    say("a started scheduler asked, and got reports")


def test_reports_continue_when_the_bus_returns(
    broker: Broker, cinder: Cinder, make_daemon
) -> None:
    daemon = make_daemon()
    cinder.gets_new_report(BIG)
    broker.end(signal.SIGKILL)
    until(lambda: daemon.count_in_log("[reports] LOST"), "it is logged")
    call(daemon, "POST", "/volumes", {"volume": {"size": 3}})
    say("RabbitMQ is killed; lunshared still serves")
    broker.start()
    until(lambda: daemon.count_in_log("[reports] BACK"), "reports are sent again")
    until(lambda: allocated(cinder, BIG) == 3, "Cinder has the latest report")
    assert (
        daemon.count_in_log("[reports] LOST")
        == daemon.count_in_log("[reports] BACK")
        == 1
    )
    assert daemon.count_in_log("STARTED") == 1
    say("RabbitMQ is back, and so are the reports; each event was logged once")


def test_killed_reporter_is_restarted(cinder: Cinder, make_daemon) -> None:
    daemon = make_daemon()
    cinder.gets_new_report(BIG)
    first = daemon.reporter()
    os.kill(first, signal.SIGKILL)
    until(lambda: daemon.count_in_log("[reports] STARTED") == 2, "it is started again")
    call(daemon, "POST", "/volumes", {"volume": {"size": 5}})
    until(lambda: allocated(cinder, BIG) == 5, "Cinder has a report of the second one")
    second = daemon.reporter()
    daemon.end(signal.SIGKILL)
    until(lambda: not Path(f"/proc/{second}").exists(), "it ends with the daemon")
    say("killed: started again; the daemon killed: it ends too")
