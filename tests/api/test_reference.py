# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The API reference is generated, and every route has its line in it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lunshare.agent.api.handlers import (
    catalog,
    fences,
    quotas,
    services,
    snapshot_actions,
    type_access,
    volume_actions,
)
from lunshare.agent.api.routes import ROUTES, Route
from tools.api_document import reference

ROOT = Path(__file__).resolve().parents[2]
page = functools.cache(reference.page)

#: What this node does not have: every answer is a sentence that says so.
REFUSED = (
    services.fail_over,
    catalog.cluster,
    catalog.enable_cluster,
    catalog.disable_cluster,
)
#: The id is that of a project, a class or a host, which is not looked up.
NOT_LOOKED_UP = (
    type_access.set_default,
    type_access.unset_default,
    quotas.show,
    quotas.defaults,
    quotas.update,
    quotas.delete,
    quotas.show_class,
    quotas.update_class,
    fences.fence,
    fences.unfence,
)


def test_the_page_is_generated_from_the_routes():
    assert (ROOT / "docs" / "api-reference.md").read_text() == page()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_route_has_a_line_that_describes_it(route: Route):
    (line,) = [
        each
        for each in page().splitlines()
        if each.startswith(f"| `{route.method} {route.path}` |")
    ]
    assert line.split(" | ")[-1].removesuffix(" |")


@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES if each.method in ("POST", "PUT")],
    ids=lambda r: f"{r.method} {r.path}",
)
def test_every_route_with_a_body_shows_one_form(route: Route):
    tables = (volume_actions.action, snapshot_actions.action)
    expected = 0 if route.handler in tables else 1
    assert len(reference.forms(route.handler)) == expected
    heading = f"Body of `{route.method} {route.path}`:"
    assert page().count(heading) == expected


def test_every_action_shows_its_fields():
    for name in (*volume_actions.ACTIONS, *snapshot_actions.ACTIONS):
        assert f"| `{name}` | yes |" in page()
    assert "| `os-extend.new_size` | yes | 3.0 | a whole number of GiB" in page()


def test_a_field_shows_the_microversion_that_added_it():
    assert "| `attachment.mode` |  | 3.54 | rw or ro |" in page()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_route_shows_the_status_of_a_success(route: Route):
    successes, refused = reference.statuses(route)
    if route.handler in REFUSED:
        assert not successes
        assert refused
    else:
        assert successes <= {200, 202, 204, 300, 503}
        assert successes - {503}


def test_statuses_are_those_of_the_route():
    text = page()
    assert "| `DELETE /v3/messages/{id}` | 3.3 | 204 | 404 |" in text
    assert "| `GET /readyz` |  | 200, 503 |  |" in text
    assert (
        "can also answer 400, 401, 403, 404, 405, 406, 415, 503, which come\n" in text
    )


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_a_route_that_reads_a_body_can_refuse_it(route: Route):
    if reference.forms(route.handler) or reference.actions(route):
        assert 400 in reference.statuses(route)[1]


@pytest.mark.parametrize(
    "route",
    [e for e in ROUTES if "{" in e.path and e.handler not in NOT_LOOKED_UP],
    ids=lambda r: f"{r.method} {r.path}",
)
def test_every_route_of_one_object_can_answer_404(route: Route):
    assert 404 in reference.statuses(route)[1]


def test_fields_of_answers_are_those_of_the_schemas():
    text = page()
    assert "| `volume-summary` | `GET /v3/volumes/summary` | `total_count`," in text
    assert "| `connection_info` | action `os-initialize_connection` |" in text
    assert "`shared_targets` (3.48)" in text
    assert "| `count` (3.45) | `GET /v3/volumes`, `GET /v3/volumes/detail` |" in text
