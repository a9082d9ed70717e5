# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document is generated, complete, and says what the handlers say."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.api.handlers import (
    catalog,
    snapshot_actions,
    type_encryption,
    volume_actions,
    volumes,
)
from lunshare.agent.api.microversions import MAX, MIN, text
from lunshare.agent.api.routes import PUBLIC, ROUTES, Route
from tests.api import documented
from tests.api.calls import Api
from tools.api_document import openapi, reference
from tools.api_document.answer_table import BODIES
from tools.api_document.query_table import PARAMETERS

ROOT = Path(__file__).resolve().parents[2]
ACTIONS = {**snapshot_actions.ACTIONS, **volume_actions.ACTIONS}
ROUTED: set[Callable[..., Any]] = {route.handler for route in ROUTES}
HANDLERS = ROUTED | {action.run for action in ACTIONS.values()}


def operation(route: Route) -> Any:
    return documented.document()["paths"][route.path][route.method.lower()]


def name(handler: Callable[..., Any]) -> str:
    return f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"


#: In the same order in every process that runs a part of the tests.
BY_NAME: list[Callable[..., Any]] = [
    each for _, each in sorted((name(each), each) for each in HANDLERS)
]


def test_the_file_is_generated_from_the_routes():
    assert documented.FILE.read_text() == openapi.text()


def test_the_file_in_docs_is_the_one_that_is_served():
    assert (ROOT / "docs" / "openapi.json").samefile(documented.FILE)


def test_the_document_is_served_to_everyone(api: Api):
    answer = api.client.simulate_get("/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == documented.document()


def test_the_document_is_valid_openapi():
    # Here, so that it is not imported by every process that runs a part of the tests.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(documented.document()).validate()


def test_every_route_is_an_operation_with_its_microversion():
    found = {
        (method.upper(), path): each.get("x-openstack", {}).get("min-ver", text(MIN))
        for path, methods in documented.document()["paths"].items()
        for method, each in methods.items()
    }
    assert found == {(each.method, each.path): text(each.since) for each in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_an_operation_names_what_its_path_varies(route: Route):
    named = {p["name"] for p in operation(route)["parameters"] if p.get("in") == "path"}
    assert named == {p[1:-1] for p in route.path.split("/") if p.startswith("{")}


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_an_operation_has_a_body_if_its_handler_reads_one(route: Route):
    reads = bool(reference.forms(route.handler) or reference.actions(route))
    assert ("requestBody" in operation(route)) is reads


def test_only_handlers_with_an_answer_have_one_in_the_table():
    assert set(BODIES) <= HANDLERS
    for route in ROUTES:
        assert route.answers or route.handler not in BODIES, route.path


@pytest.mark.parametrize(
    "handler", [each for each in BY_NAME if each in ROUTED], ids=name
)
def test_the_table_has_every_parameter_that_a_handler_names(handler: Any):
    module = inspect.getmodule(handler)
    assert module is not None
    found = {each.name for each in PARAMETERS.get(handler, ())}
    assert set(_named(ast.parse(inspect.getsource(handler)))) <= found


def _named(tree: ast.AST) -> list[str]:
    """The texts in calls on ``call.query`` or with it."""
    return [
        each.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and "call.query" in ast.unparse(node)
        for each in node.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def test_every_action_is_one_body():
    for route in ROUTES:
        if actions := reference.actions(route):
            content = operation(route)["requestBody"]["content"]
            bodies = content["application/json"]["schema"]["oneOf"]
            assert [each["required"] for each in bodies] == [[each] for each in actions]


def test_a_field_of_a_body_has_the_microversion_that_added_it():
    path = documented.document()["paths"]["/v3/attachments"]["post"]
    body = path["requestBody"]["content"]["application/json"]["schema"]
    mode = body["properties"]["attachment"]["properties"]["mode"]
    assert mode["x-openstack"] == {"min-ver": "3.54"}
    volume = documented.document()["components"]["schemas"]["Volume"]["properties"]
    assert volume["shared_targets"]["x-openstack"] == {"min-ver": "3.48"}


def test_an_answer_with_a_new_volume_links_to_the_operations_on_it():
    (created,) = [each for each in ROUTES if each.handler is volumes.create]
    links = operation(created)["responses"]["202"]["links"]
    assert links["volumes/id:get"] == {
        "operationId": "volumes/id:get",
        "parameters": {"id": "$response.body#/volume/id"},
    }


def test_every_operation_below_v3_lists_the_errors_of_storage_and_database():
    for route in ROUTES:
        if route.path.startswith("/v3/"):
            assert {"409", "500", "503"} <= operation(route)["responses"].keys()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_an_operation_needs_an_identity_unless_it_is_public(route: Route):
    whole = documented.document()
    asks = route.path not in PUBLIC
    schemes: list[Any] = [{name: []} for name in whole["components"]["securitySchemes"]]
    assert operation(route).get("security", []) == (schemes if asks else [])
    assert ("401" in operation(route)["responses"]) is asks


def test_an_answer_to_a_wrong_proof_says_what_to_prove():
    responses = documented.document()["components"]["responses"]
    assert "WWW-Authenticate" in responses["401"]["headers"]
    assert "Retry-After" in responses["503"]["headers"]


def test_the_document_is_of_the_newest_microversion():
    assert documented.document()["info"]["version"] == text(MAX)
    assert {catalog.document, type_encryption.index} <= set(BODIES)
