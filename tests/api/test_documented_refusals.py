# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who proves nothing, or may do nothing, is refused as the OpenAPI document says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from lunshare.agent.api.routes import PUBLIC, ROUTES, Route
from tests.api import documented
from tests.api.identity_daemon import PASSWORD, Running, daemon, proof, users

IDENT = "22222222-3333-4444-5555-666666666666"
OPTIONS = "auth_strategy = http_basic\nhttp_basic_auth_user_file = {}\n"
pytestmark = pytest.mark.daemon
ASKING = [each for each in ROUTES if each.path not in PUBLIC]
OPEN = [each for each in ROUTES if each.path in PUBLIC]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("refusals")
    with daemon(path, OPTIONS.format(users(path, nobody=""))) as started:
        yield started


def status(running: Running, route: Route, headers: Mapping[str, str]) -> int:
    """The status of an answer that the document has, body and all."""
    path = re.sub(r"{\w+}", IDENT, route.path)
    answer = requests.request(
        route.method,
        f"http://127.0.0.1:{running.port}{path}",
        headers={"OpenStack-API-Version": "volume 3.71", **headers},
        json={} if route.method in ("POST", "PUT") else None,
        timeout=30,
    )
    documented.require(route, "3.71", _shown(answer))
    return answer.status_code


def _shown(answer: requests.Response) -> Any:
    return SimpleNamespace(
        status_code=answer.status_code,
        content=answer.content,
        headers=answer.headers,
        text=answer.text,
        json=answer.json() if answer.content else None,
    )


@pytest.mark.parametrize("route", ASKING, ids=lambda r: f"{r.method} {r.path}")
def test_a_request_without_a_proof_is_401(running: Running, route: Route):
    assert status(running, route, {}) == 401
    assert status(running, route, {"X-Auth-Token": "admin:default"}) == 401


@pytest.mark.parametrize("route", ASKING, ids=lambda r: f"{r.method} {r.path}")
def test_a_user_without_a_role_is_403(running: Running, route: Route):
    allowed = 400 if route.path.endswith("/action") else 403
    # The rule of the catalog lets everybody in who has a name.
    found = status(running, route, proof("nobody", PASSWORD))
    assert found == allowed or found in CATALOG.get(route.path, ())


CATALOG = {
    "/v3/os-availability-zone": (200,),
    "/v3/extensions": (200,),
    "/v3/extensions/{id}": (404,),
    "/v3/resource_filters": (200,),
    "/v3/limits": (200,),
}


@pytest.mark.parametrize("route", OPEN, ids=lambda r: f"{r.method} {r.path}")
def test_public_routes_need_no_proof(running: Running, route: Route):
    assert status(running, route, {}) in (200, 300)
