# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that a policy server decides (``http:``): it says no, fails, or is slow."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.api.identity_daemon import Running, daemon, users
from tests.stands.node import connector
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

OPTIONS = """auth_strategy = http_basic
http_basic_auth_user_file = {}
osapi_threads = 12
[oslo_policy]
remote_timeout = {}
"""
SECONDS = 4.0
POLICY = """
"volume:get_all": "http://127.0.0.1:{port}/%(project_id)s"
"volume:multiattach_bootable_volume": "http://127.0.0.1:{port}/%(project_id)s"
"remote": "http://127.0.0.1:{port}/%(project_id)s"
"volume:get": "rule:remote"
"volume_extension:volume_host_attribute": "http://127.0.0.1:{port}/%(project_id)s"
"""


class PolicyServer:
    """Answers a path with its entry in ``answers``; ``slow`` ones wait for ``go``."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self.slow = self.dripping = False
        self.go = threading.Event()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_of: PolicyServer

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        rule = json.loads(parse_qs(sent)["rule"][0])
        project = self.path.strip("/")
        of = self.server_of
        of.asked.append((project, rule))
        if of.slow:
            of.go.wait(60)
        status, body = of.answers.get(project, (200, b"True"))
        self.send_response(status)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the daemon waits no longer
            if of.dripping:
                self._drip()
            self.wfile.write(body)

    def _drip(self) -> None:
        """A byte from time to time, so that no read of the daemon is late."""
        while not self.server_of.go.wait(SECONDS / 10):
            self.wfile.write(b" ")
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    made = PolicyServer()
    yield made
    made.close()


@pytest.fixture
def running(server: PolicyServer, tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "policy.yaml").write_text(POLICY.format(port=server.port))
    file = users(tmp_path, anna="member:one", ben="member:two", root="admin:one")
    with daemon(tmp_path, OPTIONS.format(file, SECONDS)) as started:
        yield started


def test_the_policy_server_decides_and_is_asked_again(
    running: Running, server: PolicyServer
) -> None:
    server.answers["two"] = (200, b"False")
    assert running.basic("anna", "GET", "/v3/volumes").status == 200
    assert running.basic("ben", "GET", "/v3/volumes").fault[:2] == (403, "forbidden")
    server.answers["one"] = (200, b"False")
    until(lambda: running.basic("anna", "GET", "/v3/volumes").status == 403)
    assert ("one", "volume:get_all") in server.asked


@pytest.mark.parametrize("answer", [(200, b"yes"), (200, b""), (500, b"error")])
def test_every_answer_except_true_refuses(
    running: Running, server: PolicyServer, answer: tuple[int, bytes]
) -> None:
    server.answers["one"] = answer
    assert running.basic("anna", "GET", "/v3/volumes").status == 403


@pytest.mark.parametrize("how", ["slow", "dripping"])
def test_a_slow_policy_server_delays_no_other_request_and_allows_nothing(
    running: Running, server: PolicyServer, how: str
) -> None:
    made = running.basic("anna", "POST", "/v3/volumes", body={"volume": {"size": 1}})
    path = f"/v3/volumes/{made.body['volume']['id']}"
    assert running.basic("anna", "GET", "/v3/types").status == 200
    setattr(server, how, True)
    before = len(server.asked)
    with ThreadPoolExecutor(30) as clients:
        late = [
            clients.submit(running.basic, "ben", "GET", each)
            for each in ("/v3/volumes", path) * 12
        ]
        until(lambda: len(server.asked) > before)
        assert running.basic("anna", "GET", "/v3/types").status == 200
        assert not all(each.done() for each in late)
        for each in late:
            fault = each.result().fault
            assert fault[:2] == (503, "serviceUnavailable")
            assert fault[2] == "The policy server does not answer: try again."
            assert each.result().headers["Retry-After"] == "5"
    server.go.set()
    setattr(server, how, False)
    until(lambda: running.basic("anna", "GET", path).status == 200)


def test_a_policy_server_that_is_down_is_503_and_hides_fields_of_a_done_request(
    running: Running, server: PolicyServer
) -> None:
    server.close()
    answer = running.basic("anna", "GET", "/v3/volumes")
    assert answer.fault[:2] == (503, "serviceUnavailable")
    made = running.basic("anna", "POST", "/v3/volumes", body={"volume": {"size": 1}})
    assert made.status == 202
    assert "os-vol-host-attr:host" not in made.body["volume"]


def test_a_slow_policy_server_does_not_hold_the_database_or_a_volume(
    running: Running, server: PolicyServer
) -> None:
    """The rule of a second host depends on a row, and is asked before its lock."""
    kind = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
    running.basic("root", "POST", "/v3/types", body={"volume_type": kind})
    asked = {"volume": {"size": 1, "volume_type": "shared"}}
    ident = running.basic("anna", "POST", "/v3/volumes", body=asked).body["volume"][
        "id"
    ]
    boot = {"os-set_bootable": {"bootable": True}}
    path = f"/v3/volumes/{ident}/action"
    assert running.basic("anna", "POST", path, body=boot).status == 200

    def attach(name: str) -> Any:
        host = {"volume_uuid": ident, "connector": connector(name)}
        return running.basic(
            "anna", "POST", "/v3/attachments", body={"attachment": host}
        )

    assert attach("a").status == 200
    other = {"volume": {"size": 1}}
    server.answers["one"] = (200, b"False")
    until(lambda: attach("b").status == 403)
    server.slow = True
    time_of_memory = time.monotonic() + 1.5
    until(lambda: time.monotonic() > time_of_memory)
    before = len(server.asked)
    with ThreadPoolExecutor(2) as clients:
        late = clients.submit(attach, "c")
        until(lambda: len(server.asked) > before)
        assert running.basic("root", "POST", "/v3/volumes", body=other).status == 202
        body = {"volume": {"name": "n"}}
        shown = running.basic("root", "PUT", f"/v3/volumes/{ident}", body=body)
        assert shown.status == 200
        assert not late.done()
        assert late.result().fault[:2] == (503, "serviceUnavailable")
