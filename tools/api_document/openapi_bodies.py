# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The bodies of requests in the OpenAPI document, from the forms that check them.

A form has a schema for each range of microversions. The document has the newest, and
notes since when each field exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.api.requests.actions import Action
from lunshare.agent.api.requests.forms import Form
from lunshare.agent.api.routes import Route
from tools.api_document import reference
from tools.api_document.answer_parts import EXTENSION, Schema, since


def of(route: Route) -> Schema | None:
    """Return the schema of the body that a route takes, or None."""
    actions = reference.actions(route)
    if actions:
        return {"oneOf": [_of_action(action) for action in actions.values()]}
    forms = reference.forms(route.handler)
    return newest(forms[0], route.since) if forms else None


def _of_action(action: Action) -> Schema:
    schema = newest(action.form, action.since)
    return schema if action.since == microversions.MIN else since(action.since, schema)


def newest(form: Form, first: Version) -> Schema:
    """Return the newest schema of a form; ``first`` is that of its route."""
    versions = sorted(form.schemas)
    schema = form.schemas[versions[-1]]
    for version in reversed(versions[1:]):
        before = [form.schemas[since] for since in versions if since < version]
        schema = _noted(schema, before, max(version, first))
    return schema


def _noted(schema: Schema, before: list[Schema], version: Version) -> Schema:
    """Note ``version`` at each field that the schemas before it do not have."""
    properties = schema.get("properties", {})
    noted: dict[str, Any] = {}
    for name, field in properties.items():
        older = [former["properties"][name] for former in before if _has(former, name)]
        if older:
            noted[name] = _noted(field, older, version)
        else:
            noted[name] = field if EXTENSION in field else since(version, field)
    return {**schema, "properties": noted} if properties else schema


def _has(schema: Mapping[str, Any], name: str) -> bool:
    return name in schema.get("properties", {})
