# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every route and action has one rule, and is asked for with a foreign id."""

from __future__ import annotations

import re
from typing import Any

from lunshare.agent.api.access import policies
from lunshare.agent.api.handlers import snapshot_actions, volume_actions
from lunshare.agent.api.routes import ROUTES
from tests.api.foreign_requests import IN_PATH, UNOWNED


def test_every_route_and_action_has_a_rule():
    named = [
        policies.rule_of(route.method, route.path.removeprefix("/v3"))
        for route in ROUTES
        if route.path.startswith("/v3/") and not route.path.endswith("/action")
    ]
    actions: dict[str, Any] = {
        "volumes": volume_actions.ACTIONS,
        "snapshots": snapshot_actions.ACTIONS,
        "attachments": ["os-complete"],
        "types": ["addProjectAccess", "removeProjectAccess"],
    }
    paths = {route.path for route in ROUTES if route.path.endswith("/action")}
    assert paths == {f"/v3/{kind}/{{id}}/action" for kind in actions}
    named += [
        policies.rule_of("POST", f"/{kind}/{{id}}/action", action)
        for kind, table in actions.items()
        for action in table
    ]
    assert len(named) > 140
    assert policies.UNDECLARED not in named


def test_an_operation_has_one_rule():
    operations = [
        f"{each['method']} {each['path']}"
        for rule in policies.list_rules()
        for each in getattr(rule, "operations", [])
    ]
    assert sorted(set(operations)) == sorted(operations)


def test_every_operation_of_a_rule_is_one_of_the_api():
    routes = {f"{r.method} {r.path.removeprefix('/v3')}" for r in ROUTES}
    for rule in policies.list_rules():
        for each in getattr(rule, "operations", []):
            path = each["path"].partition(" (")[0].partition("?")[0]
            assert f"{each['method']} {path}" in routes, rule.name


def test_every_route_that_names_something_is_asked():
    asked = {(method, pattern(path)) for method, path, _ in IN_PATH}
    routes = {
        (route.method, pattern(route.path.removeprefix("/v3")))
        for route in ROUTES
        if "{" in route.path and route.path.removeprefix("/v3") not in UNOWNED
    }
    assert asked == routes
    assert {route.path.removeprefix("/v3") for route in ROUTES} > set(UNOWNED)
    for table, path in (
        (volume_actions.ACTIONS, "/volumes/{volume}/action"),
        (snapshot_actions.ACTIONS, "/snapshots/{snapshot}/action"),
    ):
        named = {next(iter(body)) for _, where, body in IN_PATH if where == path}
        assert named == set(table)


def pattern(path: str) -> str:
    """A path without the names of its variables."""
    path = re.sub(r"/(metadata|extra_specs|encryption)/[a-z]+$", r"/\1/{}", path)
    return re.sub(r"{[^}]*}", "{}", path)
