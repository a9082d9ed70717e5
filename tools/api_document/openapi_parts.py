# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The named schemas of the OpenAPI document: constants become components."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tools.api_document import answer_schemas, operator_answers

_MODULES = (answer_schemas, operator_answers)


@functools.cache
def _names() -> Mapping[int, str]:
    """Return the name of each schema that its module defines, by identity."""
    return {
        id(value): name.title().replace("_", "")
        for module in _MODULES
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and not _is_part(value)
    }


def _is_part(value: Any) -> bool:
    """Return whether a value is no object, so that a name would say less than it."""
    return not isinstance(value, Mapping) or "properties" not in value


def components() -> dict[str, Any]:
    """Return every named schema. One that has another inside refers to it."""
    schemas = {
        name: _inner(value)
        for module in _MODULES
        for value in vars(module).values()
        if (name := _names().get(id(value)))
    }
    return dict(sorted(schemas.items()))


def named(schema: Any) -> Any:
    """Return a schema with references in place of the named schemas in it."""
    name = _names().get(id(schema))
    return {"$ref": f"#/components/schemas/{name}"} if name else _inner(schema)


def _inner(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {key: named(value) for key, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [named(item) for item in schema]
    return schema
