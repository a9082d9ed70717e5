# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What schemathesis does here beside its own: ids that exist, and one more check.

``SCHEMATHESIS_HOOKS`` names this module in the process of tests/openapi/main.py.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import schemathesis
from schemathesis import CheckContext, HookContext, Response
from schemathesis.core import NotSet
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import EnsureResourceAvailability

from lunshare.agent.api import microversions
from tests.openapi import actions, values
from tests.openapi.ended import Ended
from tests.openapi.population import KEY, Population
from tools.api_document.openapi import BODILESS

_HEADERS = json.loads(os.environ["LUNSHARE_HEADERS"])
_POPULATION = Population(
    os.environ["LUNSHARE_ENDPOINT"],
    os.environ["LUNSHARE_PROJECT"],
    {**json.loads(os.environ["LUNSHARE_PROOF"]), microversions.HEADER: "volume latest"},
)
_ANSWERS: dict[str, Counter[int]] = {}
_ENDED = Ended()

Case = schemathesis.Case[Any]


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Replace random values in a valid request, and ids in any request.

    Every request has the microversion of the document, also those that try to lack it.
    """
    case.headers.update(_HEADERS)
    known = (case.method, case.path, case.path_parameters, case.query, case.body)
    chances, meta = Random(repr(known)), case.meta
    if meta is None or meta.phase.name.name != "STATEFUL":
        _fill_path(case, chances)
    if meta is None or meta.generation.mode.is_positive:
        case.query = values.of_query(case.query or {}, _POPULATION, chances)
        case.body = _body(case, chances)


def _fill_path(case: Case, chances: Random) -> None:
    resource = _resource(case)
    if resource == "volumes":
        resource = chances.choice(["volumes", "volumes to share"])
    for name in case.path_parameters:
        found = KEY if name == "key" else _POPULATION.of(resource)
        if found is not None and chances.random() < values.SHARE:
            case.path_parameters[name] = found


def _resource(case: Case) -> str:
    return case.path.removeprefix("/v3/").partition("/")[0]


def _body(case: Case, chances: Random) -> Any:
    if case.path.endswith("/action") and chances.random() < values.SHARE:
        found = actions.body(_resource(case), _POPULATION, chances)
        if found is not None:
            return found
    body = values.of_body(case.body, _POPULATION, chances)
    if isinstance(body, dict) and "host" in body and "os-services" in case.path:
        body["host"] = _POPULATION.other_host
    if isinstance(body, dict) and case.path.endswith("{key}"):
        one_item = {KEY: "v"}
        return {"meta": one_item} if "metadata" in case.path else one_item
    return body


@schemathesis.hook
def after_call(context: HookContext, case: Case, response: Response) -> None:
    """Count the answers of each operation by their status; note what may be gone."""
    counts = _ANSWERS.setdefault(case.operation.label, Counter())
    counts[response.status_code] += 1
    _ENDED.note(case.method, response.status_code, case.path_parameters)
    if response.status_code == 202 and case.method == "DELETE":
        # What the next request finds must not depend on how busy the machine is.
        _POPULATION.await_deletion(str(response.request.url).partition("?")[0])


@atexit.register
def _save() -> None:
    Path("answers.json").write_text(json.dumps(_ANSWERS))


@schemathesis.hook
def filter_failure(
    context: HookContext, failure: Failure, case: Case, response: Response
) -> bool:
    """Drop what is no defect.

    OpenAPI cannot say that a status has a body after some actions alone. And what was
    created may be gone without a DELETE, or the 404 is that of something in the body.
    """
    if isinstance(failure, EnsureResourceAvailability):
        has_body = not isinstance(case.body, NotSet)
        return not _ENDED.explains(case.path, case.path_parameters, has_body)
    found = case.operation.responses.find_by_status_code(response.status_code)
    described = "" if found is None else found.definition.get("description", "")
    return bool(response.content) or BODILESS not in described


@schemathesis.check
def body_only_where_documented(
    ctx: CheckContext, response: Response, case: Case
) -> None:
    """A status without content in the document is answered without a body."""
    found = case.operation.responses.find_by_status_code(response.status_code)
    if found is not None and not found.definition.get("content"):
        assert not response.content, "a body that the document does not have"
