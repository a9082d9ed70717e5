# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The API reference is generated, and every route has its line in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.agent.api import reference, schemas
from lunshare.agent.api.handlers import volume_actions
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
