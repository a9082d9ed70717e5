# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""/metrics of a real daemon: killed, locked out of its database, hanging, busy."""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lunshare.agent.db.triggers import KINDS
from tests.restart.test_hung import HUNG, silent
from tests.stands.daemon import answered, daemon
from tests.stands.node import initiator
from tests.stands.servers import free_port
from tests.stands.waiting import until

MOMENT = 10.0  # seconds: a busy machine; what is waited for would take longer
CLIENTS = 64
TOTALS = "SELECT kind, place, status, count FROM status_totals WHERE count"
ROWS = (
    "SELECT '{}', coalesce({}, ''), {}, count(*) FROM {} WHERE deleted = 0"
    " GROUP BY 2, 3"
)


def options(path: Path, more: str = "") -> tuple[Path, str]:
    """A file that adds metrics_listen, and the address of the page."""
    port = free_port()
    file = path / "more.conf"
    file.write_text(f"[DEFAULT]\nmetrics_listen = 127.0.0.1:{port}\n{more}")
    return file, f"http://127.0.0.1:{port}/metrics"


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """The value of each series, by its name and the values of its labels."""
    with urlopen(url, timeout=MOMENT) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def send(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    headers["OpenStack-API-Version"] = "volume 3.71"
    asked = Request(f"{url}/v3{path}", data, headers, method=method)
    try:
        with urlopen(asked, timeout=60) as answer:
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None
    except HTTPError as error:
        return error.code, None


def work(url: str, name: str) -> Iterator[int]:
    """Create, attach, detach and delete, again and again; the status of each."""
    for number in itertools.count():
        status, body = send(url, "POST", "/volumes", {"volume": {"size": 1}})
        yield status
        if status != 202:
            continue
        volume = body["volume"]["id"]
        host = f"{name}-{number}"
        connector = {"initiator": initiator(host), "host": host, "ip": "127.0.0.1"}
        fields = {"volume_uuid": volume, "connector": connector, "mode": "ro"}
        status, body = send(url, "POST", "/attachments", {"attachment": fields})
        yield status
        if status == 200 and number % 3:
            yield send(url, "DELETE", f"/attachments/{body['attachment']['id']}")[0]
            yield send(url, "DELETE", f"/volumes/{volume}")[0]


@pytest.mark.parametrize("answers", [7, 40, 95])
def test_totals_equal_the_rows_after_kill_9(tmp_path: Path, answers: int) -> None:
    file, _ = options(tmp_path, "quota_volumes = -1\nquota_gigabytes = -1\n")
    seen = itertools.count()
    enough = threading.Event()

    def client(url: str, name: str) -> None:
        with suppress(URLError, OSError):
            for _ in work(url, name):
                if next(seen) >= answers:
                    enough.set()

    with daemon(tmp_path / "state", file) as (process, url, state):
        answered(f"{url}/readyz", process)
        clients = [
            threading.Thread(target=client, args=(url, f"c{number}"))
            for number in range(6)
        ]
        for each in clients:
            each.start()
        assert enough.wait(120)
        process.kill()
        for each in clients:
            each.join()
    with closing(sqlite3.connect(state / "lunshare.sqlite")) as database:
        totals = set(database.execute(TOTALS))
        rows = {
            row
            for kind, (table, place, status) in KINDS.items()
            for row in database.execute(ROWS.format(kind, place, status, table))
        }
    assert totals == rows
    assert sum(row[3] for row in rows) > 0


def test_it_answers_while_the_database_is_locked(tmp_path: Path) -> None:
    file, page = options(tmp_path)
    with daemon(tmp_path / "state", file) as (process, url, state):
        answered(f"{url}/readyz", process)
        assert send(url, "POST", "/volumes", {"volume": {"size": 1}})[0] == 202
        with closing(sqlite3.connect(state / "lunshare.sqlite")) as other:
            other.isolation_level = None
            other.execute("BEGIN EXCLUSIVE")
            with ThreadPoolExecutor(1) as waiting:
                refused = waiting.submit(
                    send, url, "POST", "/volumes", {"volume": {"size": 1}}
                )
                while not refused.done():
                    assert scrape(page)["lunshare_volumes", "fake", "available"] == 1
                assert refused.result()[0] == 503
            found = scrape(page)
            assert found["lunshare_database_writable",] == 0
            assert found["lunshare_database_write_failures_total",] >= 1
        until(lambda: scrape(page)["lunshare_database_writable",] == 1, seconds=60)


def test_it_answers_while_storage_and_helper_hang(tmp_path: Path) -> None:
    helper = tmp_path / "helper.sock"
    file, page = options(tmp_path)
    hung = tmp_path / "hung.conf"
    hung.write_text(HUNG.format(socket=helper))
    with silent(helper), daemon(tmp_path / "state", file, hung) as (process, url, _):
        answered(f"{url}/healthz", process)
        found = scrape(page)
        assert found["lunshare_backend_up", "fake"] == 1
        assert found["lunshare_backend_up", "hung"] == 0
        assert found["lunshare_volumes", "hung", "available"] == 0


def test_many_clients_read_it_while_others_use_the_api(tmp_path: Path) -> None:
    file, page = options(tmp_path)
    with daemon(tmp_path / "state", file) as (process, url, _):
        answered(f"{url}/readyz", process)
        ready = threading.Barrier(CLIENTS)

        def read(number: int) -> set[float]:
            ready.wait(60)
            where = page if number % 2 else f"{url}/metrics"
            return {scrape(where)["lunshare_ready",] for _ in range(3)}

        with ThreadPoolExecutor(CLIENTS) as clients:
            found = [clients.submit(read, number) for number in range(CLIENTS)]
            began = time.monotonic()
            assert send(url, "GET", "/volumes")[0] == 200
            assert time.monotonic() - began < MOMENT
            assert [each.result() for each in found] == [{1.0}] * CLIENTS
