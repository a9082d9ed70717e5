# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who may read /metrics, and where; the access log that each request leaves."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent import listen_addresses
from lunshare.agent.model.errors import StartupError
from tests.api.identity_daemon import PASSWORD, Running, daemon, proof, users
from tests.stands.servers import free_port
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

OPTIONS = """\
auth_strategy = http_basic
http_basic_auth_user_file = {users}
metrics_listen = 127.0.0.1:{port}
debug = true
"""
ROLES = {"root": "admin:", "scraper": "metrics:p", "anna": "member:one"}
PATHS = ("/metrics", "/v3/lunshare/metrics")
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Page:
    """A raw answer."""

    def __init__(self, port: int, path: str, method: str = "GET", **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()
        connection.close()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("metrics")
    options = OPTIONS.format(users=users(path, **ROLES), port=port)
    with daemon(path, options) as started:
        yield started


# who may read it


@pytest.mark.parametrize("path", PATHS)
def test_an_administrator_reads_it_at_the_api(running: Running, path: str) -> None:
    answer = Page(running.port, path, **proof("root", PASSWORD))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == TYPE
    assert "\nlunshare_ready 1.0\n" in answer.text
    assert "\nprocess_resident_memory_bytes " in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_other_users_read_it_only_if_a_policy_allows_it(
    running: Running, path: str
) -> None:
    assert Page(running.port, path).status == 401
    assert Page(running.port, path, **proof("root", "wrong")).status == 401
    scraper = proof("scraper", PASSWORD)
    assert Page(running.port, path, **scraper).status == 403
    assert Page(running.port, path, **proof("anna", PASSWORD)).status == 403


def test_a_policy_can_let_a_role_read_it(tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text('"lunshare:metrics": "role:metrics"\n')
    options = OPTIONS.format(users=users(tmp_path, **ROLES), port=free_port())
    options += f"[oslo_policy]\npolicy_file = {rules}\n"
    with daemon(tmp_path, options) as started:
        scraper = proof("scraper", PASSWORD)
        assert Page(started.port, "/metrics", **scraper).status == 200
        assert Page(started.port, "/metrics", **proof("anna", PASSWORD)).status == 403


def test_a_process_at_the_socket_reads_it(running: Running) -> None:
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(30)
        wire.connect(running.socket)
        wire.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        parts = iter(lambda: wire.recv(65536), b"")
        assert b"lunshare_ready 1.0" in b"".join(parts)


def test_metrics_listen_needs_no_identity(port: int, running: Running) -> None:
    answer = Page(port, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == TYPE
    assert "\nlunshare_ready 1.0\n" in answer.text
    assert Page(port, "/metrics", "HEAD").text == ""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v3/volumes", 404),
        ("GET", "/metrics/x", 404),
        ("GET", "/healthz", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
    ],
)
def test_metrics_listen_serves_only_metrics(
    port: int, running: Running, method: str, path: str, status: int
) -> None:
    assert Page(port, path, method).status == status


def test_a_web_page_of_another_name_does_not_read_it(
    port: int, running: Running
) -> None:
    assert Page(port, "/metrics", Host="evil.example.org").status == 403
    origin = {"Origin": "http://evil.example.org"}
    assert Page(port, "/metrics", **origin).status == 403


def test_an_address_of_a_wrong_form_is_refused() -> None:
    with pytest.raises(StartupError, match="metrics_listen = x is not valid"):
        listen_addresses.of_metrics(["x"])
    with pytest.raises(StartupError, match="metrics_listen names a unix socket"):
        listen_addresses.of_metrics(["unix:/run/x"])


# the access log


def line(running: Running, ident: str) -> dict[str, str]:
    """The fields of the line of the request with this id; there is one."""
    pattern = rf"^.*api\.access \[- {ident} -\] request: (.*)$"
    until(lambda: re.search(pattern, running.output(), re.M) is not None)
    (found,) = re.findall(pattern, running.output(), re.M)
    return dict(word.split("=", 1) for word in found.split(" "))


def test_a_request_leaves_one_line_with_who_and_what(running: Running) -> None:
    made = running.basic("anna", "POST", "/v3/volumes", body={"volume": {"size": 1}})
    ident = made.headers["x-openstack-request-id"]
    found = line(running, ident)
    assert float(found.pop("ms")) > 0
    assert found == {
        "method": "POST",
        "path": "/v3/volumes",
        "status": "202",
        "bytes": made.headers["Content-Length"],
        "user": "anna",
        "project": "one",
        "client": "127.0.0.1",
        "request_id": ident,
        "global_id": "-",
    }


def test_a_refused_request_leaves_one_too(running: Running) -> None:
    answer = running.http("GET", "/v3/volumes?marker=secret")
    found = line(running, answer.headers["x-openstack-request-id"])
    assert (found["status"], found["user"], found["project"]) == ("401", "-", "-")
    assert found["path"] == "/v3/volumes"
    assert "marker" not in running.output()


def test_the_id_of_the_client_is_noted_if_it_has_the_form(running: Running) -> None:
    for given, noted in (
        ("req-11111111-2222-3333-4444-555555555555", None),
        ("req-\xe9", "-"),
        ("req-1\tuser=root", "-"),
        ("REQ-1", "-"),
        ("req-1 user=root", "-"),
        ("x" * 500, "-"),
        ("req-" + "1" * 500, "-"),
    ):
        headers = {"X-Openstack-Request-Id": given}
        answer = running.basic("anna", "GET", "/v3/volumes", headers=headers)
        found = line(running, answer.headers["x-openstack-request-id"])
        assert found["global_id"] == (noted or given)


@pytest.mark.parametrize(
    "path",
    [
        "/v3/volumes/x%0A2026-01-01%20INFO%20request:%20user=root",
        "/v3/volumes/x%0D%1B[31m",
        "/v3/volumes/%E2%80%A8x",
        "/v3/volumes/a%20user=root",
        "/v3/volumes/" + "y" * 5000,
    ],
)
def test_a_path_cannot_write_a_line_or_a_field(running: Running, path: str) -> None:
    before = running.output().count("\n")
    answer = running.basic("anna", "GET", path)
    found = line(running, answer.headers["x-openstack-request-id"])
    assert found["user"] == "anna"
    assert re.fullmatch("[!-~]{1,1600}", found["path"])
    added = running.output().splitlines()[before:]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:", each) for each in added)


def test_the_path_is_logged_as_the_bytes_that_were_sent(running: Running) -> None:
    answer = running.basic("anna", "GET", "/v3/volumes/%C3%A9%FF")
    found = line(running, answer.headers["x-openstack-request-id"])
    assert found["path"] == "/v3/volumes/%C3%A9%FF"


def test_the_method_is_logged_as_it_was_sent(running: Running) -> None:
    answer = running.basic("anna", "PROPFIND", "/v3/volumes")
    assert answer.status == 405
    found = line(running, answer.headers["x-openstack-request-id"])
    assert (found["method"], found["status"]) == ("PROPFIND", "405")


def test_names_of_user_and_project_cannot_write_a_field(running: Running) -> None:
    headers = {"X-Auth-Token": "x:a project=b status=200"}
    answer = running.unix("GET", "/v3/volumes", headers=headers)
    found = line(running, answer.headers["x-openstack-request-id"])
    assert found["project"] == "a%20project%3Db%20status%3D200"
    assert found["user"] == str(os.getuid())
    assert found["status"] == str(answer.status)


def test_no_secret_of_a_request_is_in_the_log(running: Running) -> None:
    headers = {"X-Auth-Token": "a-token-of-somebody"}
    body = {"volume": {"size": 1, "name": "a-name-in-a-body"}}
    running.basic("anna", "POST", "/v3/volumes?x=a-query", body=body, headers=headers)
    running.basic("anna", "GET", "/v3/volumes", password="a-wrong-password")
    for word in ("a-token-of", "a-name-in", "a-wrong-password", PASSWORD):
        assert word not in running.output()
    assert "a-query" not in running.output()


def test_health_checks_are_details(running: Running) -> None:
    ident = running.http("GET", "/healthz").headers["x-openstack-request-id"]
    until(lambda: f"request_id={ident}" in running.output())
    (found,) = [each for each in running.output().splitlines() if f"[- {ident}" in each]
    assert " DEBUG lunshare.agent.api.access " in found
    assert " path=/healthz status=200 " in found


def test_the_log_can_be_turned_off(tmp_path: Path) -> None:
    options = OPTIONS.format(users=users(tmp_path, **ROLES), port=free_port())
    quiet = "default_log_levels = lunshare.agent.api.access=WARN\n"
    with daemon(tmp_path, options + quiet) as started:
        assert started.basic("anna", "GET", "/v3/volumes").status == 200
        assert "request: method" not in started.output()
        assert "READY" in started.output()
