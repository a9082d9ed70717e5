# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Parse one parameter of a query string, or raise an error sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.api.requests.forms import refused_value
from lunshare.agent.model.errors import Invalid

_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})
_BOOLEANS = frozenset({"bootable", "multiattach", "consumes_quota"})
_NUMBERS = frozenset({"size"})
_MAPPINGS = frozenset({"metadata", "glance_metadata"})
_TIMES = frozenset({"created_at", "updated_at"})
_OPERATORS = frozenset({"gt", "gte", "eq", "neq", "lt", "lte"})
_DIGITS_MAX = 18
_MAPPING_MAX = 1024
_BROKEN = re.compile(r"[\x00\ud800-\udfff]")

# The size is in GiB. An INTEGER column holds at most 2**31 - 1.
_SIZE_MAX = 2**31 - 1

#: A filter value that matches no row.
NOTHING: list[str] = []


def boolean(name: str, text: str) -> bool:
    """Parse true or false in any of the spellings that clients use.

    :raises Invalid: it is neither.
    """
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise Invalid(f"{name} must be true or false.")


def only(parameters: Mapping[str, str], *names: str) -> Mapping[str, str]:
    """Return the parameters if all of them are ``known``.

    :raises Invalid: names the first one that is unknown.
    """
    others = sorted(parameters.keys() - set(names))
    if others:
        raise Invalid(f"{others[0][:64]} is unknown here: leave it out.")
    return parameters


def flag(parameters: Mapping[str, str], name: str, default: bool) -> bool:
    """Parse a parameter that is true or false.

    :raises Invalid: it is neither.
    """
    return boolean(name, parameters[name]) if name in parameters else default


def number(
    parameters: Mapping[str, str], name: str, default: int, most: int | None
) -> int:
    """Parse a whole number of 0 or more.

    :raises Invalid: it is not such a number, or above ``most``.
    """
    text = parameters.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit():
        # The first digits of a longer number are enough: it is above any bound.
        value = int(text.lstrip("0")[: _DIGITS_MAX + 1] or "0")
        if most is None or value <= most:
            return value
    upper = "" if most is None else f" of at most {most}"
    raise Invalid(f"{name} must be a whole number{upper}, 0 or more.")


def gib(name: str, size: object) -> int:
    """Parse a size in GiB: a whole number, or its digits as a text.

    :raises Invalid: it is something else, or out of range.
    """
    if isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= 10:
        size = int(size)
    if isinstance(size, int) and 1 <= size <= _SIZE_MAX:
        return size
    begin = refused_value(name.split("."), size)
    raise Invalid(f"{begin}{name}: give a whole number of GiB, 1 to {_SIZE_MAX}.")


def mapping(name: str, text: str) -> dict[str, str]:
    """Parse a filter of the form ``{'key': 'value'}``, as Cinder's clients send it.

    :raises Invalid: it is not of that form.
    """
    try:
        value = ast.literal_eval(text) if len(text) <= _MAPPING_MAX else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(
        isinstance(part, str) for item in value.items() for part in item
    ):
        raise Invalid(f"{name} must be of the form {{'key': 'value'}}.")
    if any(_BROKEN.search(part) for item in value.items() for part in item):
        raise Invalid(
            f"{name} has a text with a NUL or half a surrogate pair: use only complete"
            " characters."
        )
    return value


def filter_value(key: str, text: str, version: Version) -> Any:
    """Return the value of a filter in the form that rows have.

    It may be (operator, time) pairs, all of which must hold. A value that no row
    can have is NOTHING instead of an error, as in Cinder.

    :raises Invalid: a comparison or a mapping is not of its form.
    """
    if key.endswith("~"):
        return text if _is_text(key[:-1]) else NOTHING
    if key in _TIMES and version >= microversions.TIME_FILTERS:
        return _comparisons(key, text)
    if key in _TIMES:
        return _time(text) or NOTHING
    if key in _BOOLEANS:
        word = text.strip().lower()
        return word in _TRUE if word in _TRUE | _FALSE else NOTHING
    if key in _NUMBERS:
        return int(text) if _is_number(text) else NOTHING
    return mapping(key, text) if key in _MAPPINGS else text


def _is_text(key: str) -> bool:
    return key not in _BOOLEANS | _NUMBERS | _TIMES


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _comparisons(key: str, text: str) -> tuple[tuple[str, datetime], ...]:
    parts = text.split(",")
    if len(parts) > len(_OPERATORS):
        raise Invalid(f"{key} must have at most {len(_OPERATORS)} comparisons.")
    return tuple(_comparison(key, part.strip()) for part in parts)


def _comparison(key: str, text: str) -> tuple[str, datetime]:
    operator, _, time = text.partition(":")
    parsed = _time(time)
    if operator in _OPERATORS and parsed is not None:
        return operator, parsed
    raise Invalid(
        f"{key} must be comparisons such as gt:2026-01-31T12:00:00, with commas"
        f" between them ({', '.join(sorted(_OPERATORS))})."
    )


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):
        return None
