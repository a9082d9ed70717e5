# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon while something hangs: storage, clients, or its database."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tests.stands.daemon import answered, daemon
from tests.stands.waiting import until

MOMENT = 0.5  # seconds: 5 times what is promised, on a machine with other work
HUNG = """
[DEFAULT]
enabled_backends = fake,hung
start_wait = 0.5
stop_wait = 1
[helper]
socket = {socket}
[hung]
volume_driver = lvm
"""
VOLUME = b'{"volume": {"size": 1}}'


@contextmanager
def silent(path: Path) -> Iterator[None]:
    """A root helper that takes every request and answers none."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        yield


def half_sent(count: int, port: int) -> list[socket.socket]:
    """Clients that stop in the middle: of the head, of the body, of its chunks."""
    head = b"POST /v3/volumes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    rests = (
        b"X-More: ",
        b"Content-Length: 100\r\n\r\n{",
        b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{   ",
    )
    made = []
    for number in range(count):
        wire = socket.create_connection(("127.0.0.1", port))
        wire.sendall(head + rests[number % len(rests)])
        made.append(wire)
    return made


def slow_readers(count: int, port: int) -> list[socket.socket]:
    """Clients that ask for more than a socket holds, and fetch none of it."""
    made = []
    for _ in range(count):
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        wire.connect(("127.0.0.1", port))
        wire.sendall(b"GET /v3/types HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
        made.append(wire)
    return made


def took(url: str) -> float:
    began = time.monotonic()
    with urlopen(url, timeout=30) as answer:
        assert answer.status == 200
    return time.monotonic() - began


def test_a_hung_backend_delays_neither_start_nor_health_nor_end(tmp_path: Path) -> None:
    config = tmp_path / "hung.conf"
    config.write_text(HUNG.format(socket=tmp_path / "helper.sock"))
    with (
        silent(tmp_path / "helper.sock"),
        daemon(tmp_path, config) as (process, url, _),
    ):
        began = time.monotonic()
        answered(f"{url}/healthz", process)
        assert time.monotonic() - began < 15  # its helper has 60 s to answer
        assert "backend hung is down" in ready(url)[1]
        port = int(urlsplit(url).port or 0)
        wires = half_sent(60, port) + slow_readers(40, port)
        try:
            for path in ("healthz", "healthcheck", "healthz"):
                assert took(f"{url}/{path}") < MOMENT
            assert took(f"{url}/v3/volumes") < 2 * MOMENT
        finally:
            for wire in wires:
                wire.close()
        began = time.monotonic()
        process.terminate()
        process.communicate(timeout=30)
        assert time.monotonic() - began < 5
        assert process.returncode == 0


def create(url: str) -> tuple[int, str | None, str]:
    """Status, Retry-After and text of the answer to a new volume."""
    asked = Request(f"{url}/v3/volumes", VOLUME, {"Content-Type": "application/json"})
    try:
        with urlopen(asked, timeout=60) as answer:
            return answer.status, None, answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers["Retry-After"], error.read().decode()


def ready(url: str) -> tuple[bool, str]:
    """Return whether /readyz is ready, and its problems."""
    try:
        with urlopen(f"{url}/readyz", timeout=30) as answer:
            state = json.loads(answer.read())
    except HTTPError as error:
        state = json.loads(error.read())
    return state["ready"], " ".join(state["problems"])


def test_an_unwritable_database_is_reported_until_it_recovers(tmp_path: Path) -> None:
    with daemon(tmp_path) as (process, url, _):
        answered(f"{url}/readyz", process)
        assert create(url)[0] == 202
        until(lambda: ready(url)[0])
        other = sqlite3.connect(tmp_path / "lunshare.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        many: list[tuple[int, str | None, str]] = []
        began = time.monotonic()
        threads = [
            threading.Thread(target=lambda: many.append(create(url))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        assert took(f"{url}/healthz") < MOMENT
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 15  # one wait for the lock, not eight
        for status, retry, text in many:
            assert (status, retry) == (503, "5")
            assert "The database of this node cannot be used" in text
            assert "sqlite" not in text
        assert ready(url)[0] is False
        assert "locked" in ready(url)[1]
        other.execute("ROLLBACK")
        other.close()
        assert create(url)[0] == 202
        assert ready(url) == (True, "")
        # No file can grow, as on a full disk.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, -1))
        assert create(url)[0] == 503
        assert ready(url)[0] is False
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        until(lambda: ready(url)[0])  # by itself: a probe finds out
        assert create(url)[0] == 202


def test_a_connection_serves_one_request_after_the_other(tmp_path: Path) -> None:
    with daemon(tmp_path) as (process, url, _):
        answered(f"{url}/readyz", process)
        port = int(urlsplit(url).port or 0)
        with socket.create_connection(("127.0.0.1", port)) as wire:
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
            wire.shutdown(socket.SHUT_WR)
            came = b"".join(iter(lambda: wire.recv(65536), b""))
        assert came.count(b"HTTP/1.1 200") == 2000
        client = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(3):
            client.request("GET", "/v3/volumes")
            assert client.getresponse().read() == b'{"volumes":[]}'
        client.close()
