# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens: valid, expired, forged, foreign, of services; and a Keystone that is down."""

from __future__ import annotations

import http.client
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.api.identity_daemon import Answer, Running, daemon
from tests.api.keystone_stand_in import Keystone
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def keystone() -> Iterator[Keystone]:
    made = Keystone()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def running(
    keystone: Keystone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("keystone")
    with daemon(path, "auth_strategy = keystone\n" + keystone.options) as started:
        yield started


def new() -> str:
    return uuid.uuid4().hex


def ask(running: Running, token: str, path: str = "/v3/volumes", **more: str) -> Answer:
    return running.http("GET", path, headers={"X-Auth-Token": token, **more})


def line_with(running: Running, text: str) -> str:
    """The line of the log with the text; there is one."""
    until(lambda: text in running.output())
    (found,) = [each for each in running.output().splitlines() if text in each]
    return found


def status(running: Running, path: str, headers: dict[str, str]) -> int:
    """The status of an answer that need not be JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.request("GET", path, headers=headers)
    found = connection.getresponse().status
    connection.close()
    return found


def test_a_token_decides_user_project_and_roles(running: Running, keystone: Keystone):
    member = keystone.issue(new(), "member", "reader", project="one")
    made = running.http(
        "POST",
        "/v3/volumes",
        headers={"X-Auth-Token": member},
        body={"volume": {"size": 1}},
    )
    assert made.status == 202
    assert made.body["volume"]["user_id"] == f"user of {member}"
    path = f"/v3/volumes/{made.body['volume']['id']}"
    reader = keystone.issue(new(), "reader", project="one")
    assert ask(running, reader, path).status == 200
    other = keystone.issue(new(), "member", "reader", project="two")
    assert ask(running, other, path).fault[:2] == (404, "itemNotFound")
    admin = keystone.issue(new(), "admin", "member", "reader", project="two")
    assert ask(running, admin, path).status == 200
    assert ask(running, member, "/v3/os-services").status == 403
    system = keystone.issue(new(), "admin", "member", "reader", system=True)
    assert ask(running, system, "/v3/os-services").status == 200


def test_the_project_of_the_path_is_that_of_the_token(
    running: Running, keystone: Keystone
):
    admin = keystone.issue(new(), "admin", "member", "reader", project="one")
    assert ask(running, admin, "/v3/one/volumes").status == 200
    assert ask(running, admin, "/v3/two/volumes").fault[:2] == (400, "badRequest")


def test_a_token_without_a_project_is_403(running: Running, keystone: Keystone):
    """Tokens of domains and of the system would share what has no project."""
    for system in (False, True):
        token = keystone.issue(new(), "member", "reader", project=None, system=system)
        for path in ("/v3/volumes", "/v3/one/volumes"):
            answer = ask(running, token, path)
            assert answer.fault[:2] == (403, "forbidden")
            assert "get a token of a project" in answer.fault[2]


def test_bad_tokens_are_401_with_where_to_get_one(running: Running, keystone: Keystone):
    expired = keystone.issue(new(), "admin", seconds=-1)
    own_headers = {"X-Roles": "admin", "X-Project-Id": "one", "X-User-Id": "root"}
    own_headers |= {"X-Identity-Status": "Confirmed", "X_Roles": "admin"}
    for headers in (
        {},
        {"X-Auth-Token": expired},
        {"X-Auth-Token": "forged"},
        {"X-Auth-Token": "admin:admin"},
        {"X-Auth-Token": ""},
        own_headers,
    ):
        answer = running.http("GET", "/v3/volumes", headers=headers)
        assert answer.fault[:2] == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{keystone.url}"'
        assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_headers_of_the_client_add_no_role(running: Running, keystone: Keystone):
    reader = keystone.issue(new(), "reader")
    spoofed = {"X-Roles": "admin", "X_ROLES": "admin", "X-Service-Roles": "service"}
    for _ in range(2):  # the second time the token is known
        assert ask(running, reader, "/v3/os-services", **spoofed).status == 403


def test_a_known_token_ends_when_it_expires(running: Running, keystone: Keystone):
    token = keystone.issue(new(), "reader", seconds=2)
    assert ask(running, token).status == 200
    until(lambda: ask(running, token).status == 401)
    assert keystone.asked[token] == 1


def test_versions_health_and_the_unix_socket_need_no_token(running: Running):
    for path, status in (("/", 300), ("/v3", 200), ("/v3/", 200), ("/healthz", 200)):
        assert running.http("GET", path).status == status
    assert running.unix("GET", "/v3/os-services").status == 200


def test_metrics_need_a_token_of_an_administrator(running: Running, keystone: Keystone):
    member = keystone.issue(new(), "member", "reader")
    admin = keystone.issue(new(), "admin", "member", "reader")
    for path in ("/metrics", "/metrics/", "/v3/lunshare/metrics"):
        assert running.http("GET", path).status == 401
        assert ask(running, "forged", path).status == 401
        assert ask(running, member, path).status == 403
        assert status(running, path, {"X-Auth-Token": admin}) == 200
    for path in ("//metrics", "/metrics/x", "/metricsx", "/v3/../metrics"):
        assert status(running, path, {"X-Auth-Token": admin}) in (400, 404)


def test_a_line_about_a_token_has_the_id_of_its_request(
    running: Running, keystone: Keystone
):
    """The token is checked before the application has the request."""
    before = len(running.output())
    ident = ask(running, "forged").headers["x-openstack-request-id"]
    until(lambda: f" request_id={ident} " in running.output())
    lines = [
        each
        for each in running.output()[before:].splitlines()
        if " keystonemiddleware" in each
    ]
    assert lines
    assert all(f" [- {ident} -] " in each for each in lines)


def test_the_access_log_has_user_and_project_of_the_token(
    running: Running, keystone: Keystone
):
    of_project = keystone.issue(new(), "reader", project="one")
    of_system = keystone.issue(new(), "admin", "reader", system=True)
    for token, project in ((of_project, "one"), (of_system, "-")):
        answer = ask(running, token)
        assert answer.status == 200
        noted = f" request_id={answer.headers['x-openstack-request-id']} "
        line = line_with(running, noted)
        assert f" user=user%20of%20{token} project={project} " in line
        assert line.count(token) == 1  # in the name that the stand-in gives its user


def test_a_service_token_counts_only_with_its_role(
    running: Running, keystone: Keystone
):
    member = keystone.issue(new(), "member", "reader")
    service = keystone.issue(new(), "service")
    none = keystone.issue(new(), "reader")
    assert ask(running, member, **{"X-Service-Token": service}).status == 200
    assert ask(running, member, **{"X-Service-Token": none}).status == 401
    assert ask(running, member, **{"X-Service-Token": "forged"}).status == 401
    assert ask(running, member).status == 200
    assert ask(running, member, **{"X-Service-Token": "forged"}).status == 401
    # A long operation of Nova goes on although the token of its user has expired.
    late = keystone.issue(new(), "member", "reader", seconds=-60)
    assert ask(running, late, **{"X-Service-Token": service}).status == 200


def test_a_token_is_validated_once_by_many_clients(
    running: Running, keystone: Keystone
):
    token = keystone.issue(new(), "reader")
    with ThreadPoolExecutor(32) as clients:
        found = list(clients.map(lambda _: ask(running, token).status, range(96)))
    assert set(found) == {200}
    assert keystone.asked[token] == 1


def test_known_tokens_are_accepted_while_keystone_is_down(
    running: Running, keystone: Keystone
):
    known, unknown = (keystone.issue(new(), "reader") for _ in range(2))
    assert ask(running, known).status == 200
    keystone.stop()
    try:
        assert ask(running, known).status == 200
        answer = ask(running, unknown)
        assert answer.fault[:2] == (503, "serviceUnavailable")
        assert answer.headers["Retry-After"] == "5"
        assert running.unix("GET", "/v3/volumes").status == 200
    finally:
        keystone.start()
    assert ask(running, unknown).status == 200


def _without(body: Any, *keys: str) -> Any:
    token = {key: value for key, value in body["token"].items() if key not in keys}
    return {"token": token}


NONSENSE: dict[str, Callable[[Any], Any]] = {
    "null": lambda body: None,
    "list": lambda body: [],
    "text": lambda body: "no",
    "empty": lambda body: {},
    "no token": lambda body: {"error": {"code": 200, "message": "ok"}},
    "token is text": lambda body: {"token": "admin"},
    "token is empty": lambda body: {"token": {}},
    "no user": lambda body: _without(body, "user"),
    "user is text": lambda body: {"token": {**body["token"], "user": "root"}},
    "user without id": lambda body: {"token": {**body["token"], "user": {"id": ""}}},
    "no end": lambda body: _without(body, "expires_at"),
    "end is a word": lambda body: {"token": {**body["token"], "expires_at": "soon"}},
    "end is a number": lambda body: {"token": {**body["token"], "expires_at": 9**9}},
    "roles are text": lambda body: {"token": {**body["token"], "roles": "admin"}},
    "role is text": lambda body: {"token": {**body["token"], "roles": ["admin"]}},
    "role without name": lambda body: {"token": {**body["token"], "roles": [{}]}},
    "project is text": lambda body: {"token": {**body["token"], "project": "one"}},
    "project without id": lambda body: {
        "token": {**body["token"], "project": {"id": "", "name": "one"}}
    },
    "project is null": lambda body: {"token": {**body["token"], "project": None}},
    "system is text": lambda body: {"token": {**body["token"], "system": "all"}},
}


@pytest.mark.parametrize("kind", NONSENSE)
@pytest.mark.parametrize("header", ["X-Auth-Token", "X-Service-Token"])
def test_a_malformed_answer_is_503_and_not_remembered(
    running: Running, keystone: Keystone, kind: str, header: str
):
    user = keystone.issue(new(), "reader")
    token = keystone.issue(new(), "admin", "reader", "service")
    headers = {"X-Auth-Token": user, header: token}
    right = keystone.tokens[token]
    keystone.tokens[token] = NONSENSE[kind](right)
    for _ in range(2):
        answer = running.http("GET", "/v3/volumes", headers=headers)
        assert answer.fault[:2] == (503, "serviceUnavailable")
        assert answer.headers["Retry-After"] == "5"
    assert keystone.asked[token] >= 2
    keystone.tokens[token] = right
    assert running.http("GET", "/v3/volumes", headers=headers).status == 200


def test_a_keystone_that_hangs_does_not_block_others(
    running: Running, keystone: Keystone
):
    known = keystone.issue(new(), "reader")
    assert ask(running, known).status == 200
    port = keystone.port
    keystone.stop()
    try:
        with (
            socket.create_server(("127.0.0.1", port), backlog=256),
            ThreadPoolExecutor(40) as clients,
        ):
            waiting = [clients.submit(ask, running, new()) for _ in range(40)]
            assert ask(running, known).status == 200
            assert {each.result().status for each in waiting} == {503}
    finally:
        keystone.start()


def test_eventlet_is_not_in_the_process(running: Running):
    mapped = Path(f"/proc/{running.pid}/maps").read_text()
    assert "sqlite" in mapped
    assert "greenlet" not in mapped
