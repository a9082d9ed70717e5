# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The parts that the JSON Schemas of several request bodies have in common."""

from __future__ import annotations

from typing import Any

from lunshare.agent.api.requests.forms import INT_MAX, Schema

TEXT_MAX = 255


def object_of(
    properties: dict[str, Any],
    required: tuple[str, ...] = (),
    strict: bool = True,
    **more: Any,
) -> Schema:
    """Return the schema of an object. ``strict``: other keys are refused."""
    keys = " and ".join(required) or " or ".join(properties)
    return {
        "type": "object",
        "description": f"an object with {keys}",
        "properties": properties,
        "required": list(required),
        "additionalProperties": not strict,
        **more,
    }


def text(least: int = 0, null: bool = True, most: int = TEXT_MAX) -> Schema:
    """Return the schema of a text of ``least`` to ``most`` characters."""
    return {
        "type": ["string", "null"] if null else "string",
        "minLength": least,
        "maxLength": most,
        "description": f"a text of {least} to {most} characters",
    }


def texts(null: bool, most: int = TEXT_MAX) -> Schema:
    """Return the schema of an object of texts: metadata, extra specs.

    ``most``: the characters of a value.
    """
    return {
        "type": ["object", "null"] if null else "object",
        "description": "an object whose values are texts",
        "propertyNames": {
            "minLength": 1,
            "maxLength": TEXT_MAX,
            "description": f"keys of 1 to {TEXT_MAX} characters",
        },
        "additionalProperties": text(null=False, most=most),
    }


# 36 characters and no more: "$" alone would let a line feed pass.
UUID = {
    "type": "string",
    "maxLength": 36,
    "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "description": "a UUID",
}
BOOLEAN = {"type": ["boolean", "string"], "description": "true or false"}
MODE = {"enum": ["rw", "ro"], "description": "rw or ro"}
NAME = {"type": "string", "pattern": r"\S", **text(1, null=False)}
GIB = {
    "type": ["integer", "string"],
    "maximum": INT_MAX,
    "description": "a whole number of GiB, 1 or more",
}
HOST = {**text(1, null=False), "description": "host@backend, or host@backend#pool"}
