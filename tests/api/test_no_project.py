# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Administrators without a project: tokens of the system, of a domain, and unscoped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from lunshare.agent.api.routes import ROUTES
from tests.api.foreign_requests import IN_BODY, IN_PATH, Request
from tests.api.identity_daemon import Answer, Running, daemon
from tests.api.keystone_stand_in import Keystone
from tests.api.test_foreign_projects import filled
from tests.stands.node import connector

pytestmark = pytest.mark.daemon

SYSTEM, DOMAIN, MEMBER = "system", "domain", "anna"
NOBODY = "00000000-0000-4000-8000-000000000000"

#: What makes a row that belongs to a project; each is refused.
CREATES: list[Request] = [
    ("POST", "/volumes", {"volume": {"size": 1}}),
    ("POST", "/volumes", {"volume": {"size": 1, "source_volid": "{volume}"}}),
    ("POST", "/volumes", {"volume": {"snapshot_id": "{snapshot}"}}),
    ("POST", "/snapshots", {"snapshot": {"volume_id": "{volume}"}}),
    (
        "POST",
        "/manageable_volumes",
        {"volume": {"host": "{host}", "ref": {"source-name": "x"}}},
    ),
    ("POST", "/volume-transfers/{transfer}/accept", {"accept": {"auth_key": "{key}"}}),
    (
        "POST",
        "/os-volume-transfer/{transfer}/accept",
        {"accept": {"auth_key": "{key}"}},
    ),
    ("POST", "/lunshare/orphans", {"volume": {"id": NOBODY}}),
]


@pytest.fixture(scope="module")
def keystone() -> Iterator[Keystone]:
    made = Keystone()
    made.issue(MEMBER, "member", "reader", project="one")
    made.issue(SYSTEM, "admin", "member", "reader", system=True)
    made.issue(DOMAIN, "admin", "member", "reader", project=None)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def running(
    keystone: Keystone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("no_project")
    with daemon(path, "auth_strategy = keystone\n" + keystone.options) as started:
        yield started


def ask(running: Running, token: str, request: Request, project: str = "") -> Answer:
    method, path, body = request
    headers = {"X-Auth-Token": token}
    return running.http(method, f"/v3{project}{path}", headers=headers, body=body)


@pytest.fixture(scope="module")
def made(running: Running) -> dict[str, str]:
    """Ids of resources of project one, by name."""

    def post(path: str, key: str, token: str = MEMBER, **fields: Any) -> Any:
        answer = ask(running, token, ("POST", path, {key: fields}))
        assert answer.status in (200, 202), answer.body
        return answer.body[key]

    shared = {"multiattach": "<is> True"}
    kind = post("/types", "volume_type", SYSTEM, name="p", extra_specs=shared)["id"]
    volume = post("/volumes", "volume", size=1, volume_type=kind)["id"]
    second = post("/volumes", "volume", size=1)["id"]
    host = {"volume_uuid": volume, "connector": connector("a")}
    offered = post("/volumes", "volume", size=1)["id"]
    transfer = post("/volume-transfers", "transfer", volume_id=offered)
    pools = ask(running, SYSTEM, ("GET", "/scheduler-stats/get_pools", None))
    attachment = post("/attachments", "attachment", **host)["id"]
    names = dict.fromkeys(
        ("third attachment", "second attachment", "second transfer", "message"), NOBODY
    )
    return names | {
        "volume": volume,
        "snapshot": post("/snapshots", "snapshot", volume_id=volume)["id"],
        "second volume": second,
        "second snapshot": post("/snapshots", "snapshot", volume_id=second)["id"],
        "attachment": attachment,
        "transfer": transfer["id"],
        "key": transfer["auth_key"],
        "public": kind,
        "type": kind,
        "own": second,
        "qos": post("/qos-specs", "qos_specs", SYSTEM, name="q")["id"],
        "host": pools.body["pools"][0]["name"],
    }


def at(request: Request, made: dict[str, str]) -> Request:
    method, path, body = request
    return method, filled(path, made), filled(body, made)


@pytest.mark.parametrize("token", [SYSTEM, DOMAIN])
@pytest.mark.parametrize("request_", CREATES, ids=str)
def test_a_token_without_a_project_creates_nothing(
    running: Running, made: dict[str, str], token: str, request_: Request
) -> None:
    answer = ask(running, token, at(request_, made))
    assert answer.fault[:2] == (400, "badRequest")
    assert "has no project" in answer.fault[2]


def test_an_administrator_names_the_project_in_the_path(
    running: Running, keystone: Keystone
) -> None:
    body = {"volume": {"size": 1}}
    for token in (SYSTEM, DOMAIN):
        answer = ask(running, token, ("POST", "/volumes", body), "/three")
        assert answer.status == 202, answer.body
        path = f"/volumes/{answer.body['volume']['id']}"
        shown = ask(running, token, ("GET", path, None)).body["volume"]
        assert shown["os-vol-tenant-attr:tenant_id"] == "three"
        assert ask(running, MEMBER, ("GET", path, None)).status == 404
    long = "/" + "x" * 256
    assert ask(running, SYSTEM, ("GET", "/volumes", None), long).status == 400
    weak = keystone.issue("weak", "member", "reader", project=None)
    assert ask(running, weak, ("GET", "/volumes", None), "/three").status == 403


def test_lists_are_empty_or_of_all_projects(
    running: Running, made: dict[str, str]
) -> None:
    for path in ("/volumes", "/snapshots", "/attachments", "/volume-transfers"):
        none = ask(running, SYSTEM, ("GET", path, None)).body
        every = ask(running, SYSTEM, ("GET", f"{path}?all_tenants=1", None)).body
        (rows,), (found,) = none.values(), every.values()
        assert rows == []
        assert found


def test_every_route_answers_and_every_row_has_a_project(
    running: Running, made: dict[str, str]
) -> None:
    """The last test of this file: it deletes what the others use."""
    lists: list[tuple[str, str, Any]] = [
        (route.method, route.path.removeprefix("/v3"), {} if method else None)
        for route in ROUTES
        for method in [route.method in ("POST", "PUT")]
        if "{" not in route.path
        and route.path.startswith("/v3/")
        and not route.path.endswith("/metrics")  # it is text, and of the node
    ]
    assert len(lists) > 40
    for request in [*lists, *IN_BODY, *IN_PATH]:
        answer = ask(running, SYSTEM, at(request, made))
        assert answer.status < 500 or answer.status == 501, (request, answer.body)
        assert answer.status not in (401, 403), (request, answer.body)
    database = sqlite3.connect(running.path / "state" / "lunshare.sqlite")
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    counted = 0
    for (table,) in tables.fetchall():
        rows = database.execute(f"PRAGMA table_info({table})").fetchall()
        if "project_id" in [row[1] for row in rows]:
            where = "project_id IS NULL OR project_id = ''"
            query = f"SELECT count(*) FROM {table} WHERE {where}"
            assert database.execute(query).fetchone() == (0,), table
            counted += 1
    assert counted >= 5
    assert "CRASHED" not in running.output()
