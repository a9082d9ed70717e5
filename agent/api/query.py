# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One parameter of a query string: its text as a value, or a sentence why not."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.errors import Invalid

_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})
_BOOLEANS = frozenset({"bootable", "multiattach"})
_NUMBERS = frozenset({"size"})
_TIMES = frozenset({"created_at", "updated_at"})
_OPERATORS = frozenset({"gt", "gte", "eq", "neq", "lt", "lte"})
_DIGITS_MAX = 18
_MAPPING_MAX = 1024
_BROKEN = re.compile(r"[\x00\ud800-\udfff]")

# A volume is addressed in GiB; 2**31 - 1 is what an INTEGER column holds.
_SIZE_MAX = 2**31 - 1

#: A filter value that no row has.
NOTHING: list[str] = []


def boolean(name: str, text: str) -> bool:
    """A yes or no in any of the spellings that clients use.

    :raises Invalid: it is neither.
    """
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise Invalid(f"{name} must be true or false.")


def only(asked: Mapping[str, str], *known: str) -> Mapping[str, str]:
    """The parameters, if they are among these.

    :raises Invalid: names the one that is not.
    """
    strange = sorted(asked.keys() - set(known))
    if strange:
        raise Invalid(f"{strange[0][:64]} is not known here: leave it out.")
    return asked


def flag(asked: Mapping[str, str], name: str, default: bool) -> bool:
    """A yes or no parameter.

    :raises Invalid: it is neither.
    """
    return boolean(name, asked[name]) if name in asked else default


def number(asked: Mapping[str, str], name: str, default: int, most: int | None) -> int:
    """A count of 0 or more.

    :raises Invalid: it is no such number, or above ``most``.
    """
    text = asked.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit():
        # Of a longer number the first digits do: it is above any bound of ours.
        value = int(text.lstrip("0")[: _DIGITS_MAX + 1] or "0")
        if most is None or value <= most:
            return value
    upper = "" if most is None else f" of at most {most}"
    raise Invalid(f"{name} must be a whole number{upper}, 0 or more.")


def gib(name: str, size: object) -> int:
    """A size as clients give it: a whole number, or its digits as a text.

    :raises Invalid: it is anything else, or out of range.
    """
    if isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= 10:
        size = int(size)
    if isinstance(size, int) and 1 <= size <= _SIZE_MAX:
        return size
    raise Invalid(f"{name}: give a whole number of GiB, 1 to {_SIZE_MAX}.")


def mapping(name: str, text: str) -> dict[str, str]:
    """A filter written as ``{'key': 'value'}``, the way Cinder's clients send it.

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
            f"{name} has a text with a NUL or half a surrogate pair: use only whole"
            " characters."
        )
    return value


def wanted(key: str, text: str, version: Version) -> Any:
    """A filter's value as rows have it.

    (operator, time) pairs compare, and all of them must hold. What cannot be
    the value of any row is NOTHING, not an error, as in Cinder.

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
    return mapping(key, text) if key == "metadata" else text


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
