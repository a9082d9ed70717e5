# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The API reference is generated, and every route has its line in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.api import reference, reference_answers, schemas
from lunshare.agent.api.handlers import volume_actions, volumes
from lunshare.agent.api.routes import ROUTES, Route

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_generated_from_the_routes():
    assert (ROOT / "docs" / "api-reference.md").read_text() == reference.page()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_route_has_a_line_that_describes_it(route: Route):
    (line,) = [
        each
        for each in reference.page().splitlines()
        if each.startswith(f"| `{route.method} {route.path}` |")
    ]
    assert line.split(" | ")[-1].removesuffix(" |")


@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES if each.method in ("POST", "PUT")],
    ids=lambda r: f"{r.method} {r.path}",
)
def test_every_route_with_a_body_shows_one_form(route: Route):
    expected = 0 if route.handler is volume_actions.action else 1
    found = [
        form for form in reference.forms(route.handler) if form is not schemas.ACTION
    ]
    assert len(found) == expected
    heading = f"Body of `{route.method} {route.path}`:"
    assert reference.page().count(heading) == expected


def test_every_action_shows_its_fields():
    page = reference.page()
    for name in volume_actions.ACTIONS:
        assert f"| `{name}` | yes |" in page
    assert "| `os-extend.new_size` | yes | 3.0 | a whole number of GiB" in page


def test_a_field_shows_the_microversion_that_added_it():
    assert "| `attachment.mode` |  | 3.54 | rw or ro |" in reference.page()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_route_shows_the_status_of_a_success(route: Route):
    for handler in reference.handlers(route):
        assert reference_answers.successes(handler) <= {200, 202, 204, 300, 503}
        assert reference_answers.successes(handler) - {503}


def test_status_and_refusals_are_read_from_the_source():
    found = reference.page()
    assert "| `DELETE /v3/messages/{id}` | 3.3 | 204 | 404 |" in found
    assert "| `GET /readyz` |  | 200, 503 |  |" in found
    assert "can also answer 400, 401, 403, 404, 405, 406, 415, 503, which" in found
    assert reference_answers.refusals(volumes.create) == {400, 403, 404, 413, 500}


def test_fields_of_answers_are_read_from_the_views():
    shown = reference_answers.fields(volumes.show)["volume"]
    written = reference_answers.fields(volumes.create)["volume"]
    assert {"id", "shared_targets", "service_uuid", "status_reason"} <= set(written)
    assert set(shown) - set(written) >= {"os-vol-host-attr:host"}
    assert set(reference_answers.fields(volumes.index)) == {
        "volumes",
        "volumes_links",
        "count",
    }
