# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Forms of the values in a request. What does not have its form is refused.

The client is not trusted. A form takes the name of a field and what was sent, and
returns a checked value, or raises InvalidValue with the name, such as
``connectors[3].mode``, and what to send instead. A form knows the name of its own field
only. What contains it adds the rest when something is refused: names cost nothing in a
request without a mistake.
"""

from __future__ import annotations

import enum
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from lunshare.drivers.errors import InvalidValue
from lunshare.drivers.values import is_uuid, require_uuid

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.StrEnum)

Form = Callable[[str, object], _T]

#: Characters of a text: the longest path of the kernel (PATH_MAX).
MAX_TEXT = 4096
_MAX_SHOWN = 20  # names of fields in an error


def typed(name: str, given: object, kind: type[_T]) -> _T:
    """Return the value, if it is of that type; a bool is not an int."""
    # Not isinstance: orjson makes values of exactly these types, and a bool is an int.
    if type(given) is not kind:
        raise InvalidValue(name, type(given).__name__, f"give a {kind.__name__}")
    if isinstance(given, str) and len(given) > MAX_TEXT:
        much = f"{len(given)} characters"
        raise InvalidValue(name, much, f"give at most {MAX_TEXT}")
    return given


def text(pattern: re.Pattern[str] | None = None, remedy: str = "") -> Form[str]:
    """A text; with ``pattern`` one that matches it completely."""

    def read(name: str, given: object) -> str:
        if type(given) is not str or len(given) > MAX_TEXT:
            return typed(name, given, str)
        if pattern and not pattern.fullmatch(given):
            raise InvalidValue(name, given, remedy)
        return given

    return read


def integer(least: int, most: int, multiple: int = 1) -> Form[int]:
    """A whole number within these limits."""

    def read(name: str, given: object) -> int:
        number = given if type(given) is int else typed(name, given, int)
        if not least <= number <= most or number % multiple:
            steps = f", a multiple of {multiple}" if multiple > 1 else ""
            raise InvalidValue(name, number, f"give {least} to {most}{steps}")
        return number

    return read


def flag(name: str, given: object) -> bool:
    """A bool."""
    return typed(name, given, bool)


def mapping(name: str, given: object) -> dict[str, Any]:
    """An object with any fields."""
    return given if type(given) is dict else typed(name, given, dict)


def uuid(name: str, given: object) -> str:
    """A UUID in its canonical form."""
    if type(given) is str and is_uuid(given):
        return given
    return require_uuid(typed(name, given, str), name)


def choice(choices: Mapping[str, _T]) -> Form[_T]:
    """The value of one of these texts."""

    def read(name: str, given: object) -> _T:
        if isinstance(given, str) and given in choices:
            return choices[given]
        shown = given if isinstance(given, str) else type(given).__name__
        raise InvalidValue(name, shown[:MAX_TEXT], f"give one of {', '.join(choices)}")

    return read


def member(kind: type[_E]) -> Form[_E]:
    """A member of an enumeration, by its value."""
    return choice({value.value: value for value in kind})


def optional(form: Form[_T]) -> Form[_T | None]:
    """None, or what ``form`` allows."""
    return lambda name, given: None if given is None else form(name, given)


def many(form: Form[_T], most: int) -> Form[tuple[_T, ...]]:
    """A list of at most so many values of a form."""

    def read(name: str, given: object) -> tuple[_T, ...]:
        items = given if type(given) is list else typed(name, given, list)
        if len(items) > most:
            raise InvalidValue(name, f"{len(items)} values", f"give at most {most}")
        checked: list[_T] = []
        try:
            checked.extend(map(form, itertools.repeat(name), items))
        except InvalidValue as error:
            item_name = f"{name}[{len(checked)}]"
            below = error.name.removeprefix(name) if error.name.startswith(name) else ""
            _refuse(item_name + below, error)
        return tuple(checked)

    return read


def record(kind: Callable[..., _T], /, **forms: Form[Any]) -> Form[_T]:
    """An object with exactly these named fields, made into ``kind``."""

    names, checks = tuple(forms), tuple(forms.values())

    def read(name: str, given: object) -> _T:
        fields = given
        if type(fields) is not dict:
            fields = typed(name or "arguments", given, dict)
        if fields.keys() != forms.keys():
            shown = [key[:MAX_TEXT] for key in sorted(fields)[:_MAX_SHOWN]]
            exactly = ", ".join(forms) or "none"
            raise InvalidValue(name or "arguments", shown, f"give exactly: {exactly}")
        try:
            # Without a loop: a request has 20 fields, and checking it was a fifth of an
            # attach in the lab.
            values = [*map(operator.call, checks, names, map(fields.get, names))]
        except InvalidValue as error:
            _refuse(f"{name}.{error.name}" if name else error.name, error)
        return kind(**dict(zip(names, values, strict=True)))

    return read


def _refuse(name: str, error: InvalidValue) -> NoReturn:
    """Raise the error with the complete name of its field."""
    raise InvalidValue(name, error.value, error.remedy) from None
