# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Parse the body of a request into JSON values, or raise an error sentence.

Only values that can be stored and returned unchanged are accepted: UTF-8, each
key once, finite numbers, no NUL, no half of a surrogate pair, limited nesting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

from lunshare.agent.api.faults import Fault
from lunshare.agent.model.errors import Invalid

_DEPTH_MAX = 32
_DIGITS_MAX = 4300
_JSON_TYPE = "application/json"
#: The media type that the list of versions names; its body is the same JSON.
MEDIA_TYPE = "application/vnd.openstack.volume+json"
_NAMES = {"display_name": "name", "display_description": "description"}


class Readable(Protocol):
    """A WSGI input that ends with the body of this request."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes; fewer means the end."""


def check_type(content_type: str | None) -> None:
    """Accept JSON alone. A web page cannot send that to another origin unasked.

    :raises Fault: 415.
    """
    named = (content_type or "").partition(";")[0].strip().lower()
    if named not in (_JSON_TYPE, MEDIA_TYPE):
        raise Fault(415, f"Content-Type must be {_JSON_TYPE}.")


def read(stream: Readable, length: int | None, limit: int) -> bytes:
    """Return the complete body. ``length``: its Content-Length, if it has one.

    :raises Fault: 413, the body has more than ``limit`` bytes.
    :raises Invalid: the connection ended before the body did.
    """
    too_large = Fault(413, f"The request body must have at most {limit} bytes.")
    if length is not None and length > limit:
        raise too_large
    try:
        raw = stream.read(limit + 1 if length is None else length)
    except (OSError, ValueError) as error:
        raise Invalid("The request body is incomplete: send it again.") from error
    if len(raw) > limit:
        raise too_large
    return raw


def parse(raw: bytes) -> Any:
    """Return the JSON value in ``raw``.

    :raises Invalid: it is not valid; the sentence names the problem.
    """
    if not raw:
        raise Invalid("The request body is missing: send a JSON object.")
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
        _check(value, 0)
    except UnicodeDecodeError:
        raise Invalid("The request body must be UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise Invalid(
            f"The request body is not JSON: {error.msg} at line {error.lineno},"
            f" column {error.colno}."
        ) from None
    return value


def short_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields by their short names, which override the long ones."""
    plain = {_NAMES[key]: fields[key] for key in _NAMES if key in fields}
    return plain | {key: fields[key] for key in fields if key not in _NAMES}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Invalid("The request body has a key twice in one object: send it once.")
    return value


def _constant(name: str) -> Any:
    raise Invalid(f"The request body has {name}, which is not a JSON number.")


def _int(digits: str) -> int:
    # int() accepts at most sys.get_int_max_str_digits() digits. A number too large
    # for a column is refused by ``forms``, which knows the field.
    if len(digits) > _DIGITS_MAX:
        raise Invalid("The request body has a number that is too long.")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise Invalid("The request body has a number that is too large.")
    return value


def _check(value: Any, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise _too_deep()
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)


def _check_text(text: str) -> None:
    if text.isascii():
        wrong = "\0" in text
    else:
        wrong = any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)
    if wrong:
        raise Invalid(
            "The request body has a text with a NUL or half a surrogate pair:"
            " send only complete characters."
        )


def _too_deep() -> Invalid:
    return Invalid(
        f"The request body is nested too deeply: use at most {_DEPTH_MAX} levels."
    )
