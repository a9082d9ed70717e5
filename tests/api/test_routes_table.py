# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The table of the API, and the project that clients put into their URLs."""

from __future__ import annotations

import re

import pytest

from lunshare.agent.api import routes
from lunshare.agent.api.access import identity
from lunshare.agent.model.errors import Invalid
from tools import routes_table


def test_no_route_is_listed_twice():
    lines = [(route.method, route.path) for route in routes.ROUTES]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("route", routes.ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_the_docstring_of_a_handler_names_its_route(route: routes.Route):
    said = (route.handler.__doc__ or "").removeprefix(f"{route.method} ")
    path = route.path.removeprefix("/v3") if route.path != "/v3" else "/v3"
    assert re.search(rf"(^|and ){re.escape(path)}($|[ :])", said), said


def test_the_table_can_be_printed():
    printed = routes_table.as_text()
    assert len(printed.splitlines()) == len(routes.ROUTES)
    line = "POST   /v3/attachments/{id}/action             3.44  attachments.action"
    assert line in printed


PATHS = {
    "/v3/volumes": ("/v3/volumes", None),
    "/v3/volumes/detail": ("/v3/volumes/detail", None),
    "/v3/p/volumes": ("/v3/volumes", "p"),
    "/v3/p/volumes/x": ("/v3/volumes/x", "p"),
    "/v3/p": ("/v3/", "p"),
    "/v3/a/b/c": ("/v3/b/c", "a"),
    "/v3//volumes": ("/v3/volumes", ""),
}


@pytest.mark.parametrize("path", PATHS)
def test_the_project_precedes_a_resource_of_the_table(path: str):
    assert routes.without_project(path) == PATHS[path]


WHO = {
    # token, project of the path: user, project
    ("u:p", None): ("u", "p"),
    ("u:p", "p"): ("u", "p"),
    ("u:", "p"): ("u", "p"),
    (":p", None): ("admin", "p"),
    ("u:p:q", None): ("u", "p:q"),
    (None, None): ("admin", "home"),
    (None, "p"): ("admin", "p"),
    ("notused", None): ("admin", "home"),
    ("notused", "p"): ("admin", "p"),
    ("", None): ("admin", "home"),
}


@pytest.mark.parametrize(("token", "project"), WHO)
def test_noauth_reads_user_and_project_from_the_token(
    token: str | None, project: str | None
):
    ctx = identity.noauth(token, project, "home", "req-1")
    assert (ctx.user_id, ctx.project_id) == WHO[token, project]
    assert ctx.is_admin
    assert ctx.request_id == "req-1"


def test_two_different_projects_are_refused():
    with pytest.raises(Invalid, match="Malformed request url"):
        identity.noauth("u:p", "q", "home", "req-1")


@pytest.mark.parametrize(
    ("token", "project"),
    [("u" * 256 + ":p", None), (None, "p" * 256), (None, "p\nq"), ("u\x7f:p", "p")],
)
def test_a_name_too_long_for_a_row_is_refused(token: str | None, project: str | None):
    with pytest.raises(Invalid, match="at most 255 printable"):
        identity.noauth(token, project, "home", "req-1")
