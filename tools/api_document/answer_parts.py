# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts that the JSON Schemas of several answers have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version

Schema = Mapping[str, Any]

#: The key for what OpenAPI has no word for; the same as in OpenStack's own documents.
EXTENSION = "x-openstack"

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ID: Schema = {"type": "string", "format": "uuid"}
TIME: Schema = {
    "type": "string",
    "description": "UTC, without a zone",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}$",
}
ANY_OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def shown(fields: Mapping[str, Schema], maybe: Mapping[str, Schema] = {}) -> Schema:
    """Return the schema of an object with these fields and no others.

    ``maybe`` are those that an answer may lack: without a value, or because the
    client may not see them.
    """
    return {
        "type": "object",
        "properties": {**fields, **maybe},
        "required": list(fields),
        "additionalProperties": False,
    }


def one(name: str, item: Schema) -> Schema:
    """Return the schema of an answer with one object under its name."""
    return shown({name: item})


def rows(name: str, item: Schema) -> Schema:
    """Return the schema of an answer with a complete list."""
    return shown({name: many(item)})


def pages(name: str, item: Schema, links: str = "", counted: bool = False) -> Schema:
    """Return the schema of an answer with one page of a list.

    ``links`` is the start of the key of the next page's link, if it is not ``name``.
    """
    maybe: dict[str, Schema] = {f"{links or name}_links": NEXT}
    if counted:
        maybe["count"] = since(microversions.LIST_COUNT, NUMBER)
    return shown({name: many(item)}, maybe)


def many(item: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


def null(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null."""
    return {**schema, "type": [schema["type"], "null"]}


def words(allowed: Iterable[str]) -> Schema:
    """Return the schema of a text that is one of these."""
    return {"type": "string", "enum": sorted(allowed)}


def since(version: Version, schema: Schema) -> Schema:
    """Return the schema of a field that exists from a microversion on."""
    return {**schema, EXTENSION: {"min-ver": microversions.text(version)}}


def without(schema: Schema, *names: str) -> Schema:
    """Return the schema of an object without some of its fields."""
    properties = {
        key: field for key, field in schema["properties"].items() if key not in names
    }
    required = [key for key in schema["required"] if key not in names]
    return {**schema, "properties": properties, "required": required}


_LINK = shown({"rel": TEXT, "href": TEXT})
LINKS: Schema = many(_LINK)
NEXT: Schema = {**LINKS, "description": "the next page, if this one is full"}
