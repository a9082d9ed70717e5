# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the OpenAPI document says of an answer, at the microversion of its request."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from lunshare.agent.api.routes import Route
from tools.api_document.answer_parts import EXTENSION
from tools.api_document.openapi import BODILESS

FILE = Path(__file__).resolve().parents[2] / "lunshare/agent/api/openapi.json"
_JSON = "application/json"
_LATEST = "3.71"
_VERSION = re.compile(r"\d+\.\d+")


@functools.cache
def document() -> Any:
    """The document as it is checked in."""
    return json.loads(FILE.read_text())


@functools.cache
def at(version: str) -> Any:
    """The document of a lower microversion: without what came later."""
    found = _before(document(), _pair(version))
    header = found["components"]["parameters"]["microversion"]["schema"]
    header["enum"] = [f"volume {version}"]
    return found


def require(route: Route, version: str, answer: Any) -> None:
    """Fail if the document does not allow an answer: status, content type, body."""
    shown = _LATEST if version == "latest" else version
    if not _VERSION.fullmatch(shown):
        assert answer.status_code == 400, f"{route.method} {route.path} at {version}"
        return
    operation = at(shown)["paths"].get(route.path, {}).get(route.method.lower())
    where = f"{route.method} {route.path} at {shown}"
    if operation is None:
        assert answer.status_code in (400, 404, 406), where
        return
    found = operation["responses"].get(str(answer.status_code))
    assert found is not None, f"{where}: {answer.status_code}"
    content = _resolved(found).get("content")
    if not answer.content:
        assert content is None or BODILESS in found["description"], where
        return
    assert content is not None, f"{where}: {answer.text}"
    (kind,) = content
    assert answer.headers["content-type"].partition(";")[0] == kind, where
    body = answer.json if kind == _JSON else answer.text
    error = next(_validator(shown, route, answer.status_code)(body), None)
    assert error is None, f"{where}: {error}"


@functools.cache
def _validator(version: str, route: Route, status: int) -> Any:
    whole = at(version)
    responses = whole["paths"][route.path][route.method.lower()]["responses"]
    content = _resolved(responses[str(status)])["content"]
    (one,) = content.values()
    schema = {**one["schema"], "components": whole["components"]}
    return Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors


def _resolved(found: Any) -> Any:
    name = found.get("$ref", "").rpartition("/")[2]
    return document()["components"]["responses"][name] if name else found


def _before(value: Any, version: tuple[int, int]) -> Any:
    if isinstance(value, list):
        return [_before(each, version) for each in value if not _later(each, version)]
    if not isinstance(value, dict):
        return value
    gone = {key for key, each in value.items() if _later(each, version)}
    gone |= {k for k, v in value.get("properties", {}).items() if _later(v, version)}
    kept = {k: _before(v, version) for k, v in value.items() if k not in gone}
    if gone and isinstance(kept.get("required"), list):
        kept["required"] = [key for key in kept["required"] if key not in gone]
    return kept


def _later(value: Any, version: tuple[int, int]) -> bool:
    if not isinstance(value, dict) or EXTENSION not in value:
        return False
    return _pair(value[EXTENSION]["min-ver"]) > version


def _pair(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
