# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every route and action has one rule, and is asked for with a foreign id."""

from __future__ import annotations

import re

from lunshare.agent.api import policies
from lunshare.agent.api.handlers import snapshot_actions, volume_actions
from lunshare.agent.api.routes import HEALTH, PUBLIC, ROUTES, UNDECLARED
from tests.api.foreign_requests import IN_PATH, UNOWNED


def test_every_route_and_action_has_a_rule():
    names = {rule.name for rule in policies.RULES}
    for route in ROUTES:
        if route.path.endswith("/action"):
            assert route.rule == UNDECLARED
            assert route.rules
            assert set(route.rules.values()) <= names
        elif route.path not in PUBLIC:
            assert route.rule in names, route.path
    assert len(ROUTES) + sum(len(route.rules) for route in ROUTES) > 160


def test_only_paths_without_an_identity_have_no_rule():
    assert {"/", "/v3", "/openapi.json", *HEALTH} == PUBLIC
    assert not any(path.startswith("/v3/") for path in PUBLIC)


def test_every_rule_decides_on_something():
    for rule in policies.list_rules():
        assert getattr(rule, "operations", True), rule.name


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
