# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The API reference is generated, and every route has its line in it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lunshare.agent.api.handlers import (
    catalog_pages,
    quotas,
    services,
    snapshot_actions,
    type_access,
    volume_actions,
    volumes,
)
from lunshare.agent.api.routes import ROUTES, Route
from tools.api_document import reference, reference_answers

ROOT = Path(__file__).resolve().parents[2]
#: Half a second of reading the source, once for all tests.
page = functools.cache(reference.page)

#: What this node does not have: every answer is a sentence that says so.
REFUSED = (
    services.fail_over,
    catalog_pages.cluster,
    catalog_pages.enable_cluster,
    catalog_pages.disable_cluster,
)
#: The id is that of a project or a class, which is not looked up.
NOT_LOOKED_UP = (
    type_access.set_default,
    type_access.unset_default,
    quotas.show,
    quotas.defaults,
    quotas.update,
    quotas.delete,
    quotas.show_class,
    quotas.update_class,
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
    for handler in reference.handlers(route):
        if handler in REFUSED:
            assert not reference_answers.successes(handler)
            assert reference_answers.refusals(handler)
            continue
        assert reference_answers.successes(handler) <= {200, 202, 204, 300, 503}
        assert reference_answers.successes(handler) - {503}


def test_status_and_refusals_are_read_from_the_source():
    found = page()
    assert "| `DELETE /v3/messages/{id}` | 3.3 | 204 | 404 |" in found
    assert "| `GET /readyz` |  | 200, 503 |  |" in found
    assert "can also answer 400, 401, 403, 404, 405, 406, 415, 503, which" in found
    assert reference_answers.refusals(volumes.create) == {
        400,
        403,
        404,
        409,
        413,
        500,
    }


@pytest.mark.parametrize(
    "route",
    [e for e in ROUTES if "{" in e.path and e.handler not in NOT_LOOKED_UP],
    ids=lambda r: f"{r.method} {r.path}",
)
def test_every_route_of_one_object_can_answer_404(route: Route):
    assert 404 in reference_answers.refusals(route.handler)


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
