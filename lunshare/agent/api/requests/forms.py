# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Check a body against JSON Schema; the error is one sentence.

The ``description`` of a schema ends the sentence "<field>: give <description>.",
so it is short and repeats only keys of what the client sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft4Validator, Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from lunshare.agent.api.exchange import Call, Version
from lunshare.agent.model.errors import Invalid

Schema = Mapping[str, Any]

# From draft 6 on, 1.0 is an integer. A size of 1.0 is refused here.
_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, type_checker=Draft4Validator.TYPE_CHECKER
)

_KEY_MAX = 64
#: Fields whose values are not repeated in an answer.
_SECRETS = frozenset({"auth_key"})

#: The largest integer of a column and of an answer: orjson has 64 bits.
INT_MAX = 2**63 - 1
_INT_MIN = -(2**63)


class Form:
    """The schemas of one body, each from some microversion on, compiled once."""

    def __init__(self, schemas: Mapping[Version, Schema]) -> None:
        self.schemas = schemas
        newest_first = sorted(schemas, reverse=True)
        self._validators: tuple[tuple[Version, Validator], ...] = tuple(
            (since, _Validator(schemas[since])) for since in newest_first
        )

    def read(self, call: Call) -> Any:
        """Return the body of the request, checked.

        :raises Invalid: names the field and what to give.
        """
        body = call.body()
        self.check(body, call.version)
        return body

    def check(self, body: Any, version: Version) -> None:
        """Raise Invalid for the first field of ``body`` that does not fit."""
        validator = next(v for since, v in self._validators if since <= version)
        error = next(validator.iter_errors(body), None)
        if error is not None:
            begin = refused_value(error.absolute_path, error.instance)
            raise Invalid(begin + sentence(error))
        _check_numbers(body, [])


def _check_numbers(value: Any, path: list[str]) -> None:
    """Check numbers also where no schema applies, as in a connector."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, [*path, _short(key)])
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check_numbers(item, [*path, str(number)])
    elif isinstance(value, int) and not _INT_MIN <= value <= INT_MAX:
        raise Invalid(
            f"{'.'.join(path)}: give a number from {_INT_MIN} to {INT_MAX}, or a text."
        )


def sentence(error: ValidationError) -> str:
    """Return a sentence that names the field and what to give."""
    path = [_short(step) for step in error.absolute_path]
    schema: Any = error.schema
    properties = schema.get("properties", {})
    instance: Any = error.instance
    if error.validator == "required":
        missing = next(key for key in schema["required"] if key not in instance)
        return _give([*path, missing], properties[missing])
    if error.validator == "additionalProperties":
        extra = next(key for key in instance if key not in properties)
        return f"{'.'.join([*path, _short(extra)])} is unknown here: leave it out."
    return _give(path, schema)


def _give(path: list[str], schema: Schema) -> str:
    return f"{'.'.join(path) or 'The body'}: give {schema['description']}."


def refused_value(path: Sequence[str | int], value: Any) -> str:
    """Return what Cinder begins such a sentence with, for clients that look for it.

    Secrets, what objects contain and the end of a long value are left out.
    """
    if not path:
        return ""
    name = str(path[-1])
    shown = "***" if name in _SECRETS else _shown(value)
    return f"Invalid input for field/attribute {_short(name)}. Value: {shown}. "


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{...}" if value else "{}"
    if isinstance(value, list):
        return "[...]" if value else "[]"
    return _short(value)


def _short(step: object) -> str:
    text = str(step)
    return text if len(text) <= _KEY_MAX else f"{text[:_KEY_MAX]}..."
