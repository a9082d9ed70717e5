# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Compare the extra specs of a type with the capabilities of a pool.

The operators are those of Cinder's scheduler, with its meanings:
https://docs.openstack.org/cinder/latest/admin/ (extra specs requirements).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SCOPE = "capabilities"
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})

# A pool reports one spelling of its protocol; types are written with others.
_PROTOCOLS = (
    ("iSCSI", "iscsi", "ISCSI"),
    ("NFS", "nfs"),
    ("FC", "fc", "fibre_channel"),
    ("NVMe-oF", "NVMeOF", "nvmeof"),
)

Test = Callable[[Any, str], bool]


def unmet(specs: Mapping[str, str], capabilities: Mapping[str, Any]) -> Iterator[str]:
    """Return a sentence for each spec that the capabilities do not meet.

    A spec with another scope than ``capabilities:`` is not for the scheduler.
    """
    for key, requirement in specs.items():
        path = key.split(":")
        if len(path) > 1 and path[0] != _SCOPE:
            continue
        name = path[1:] if path[0] == _SCOPE and len(path) > 1 else path
        has = _value(capabilities, name)
        if not any(meets(spelling, requirement) for spelling in _spellings(name, has)):
            yield f"{':'.join(name)} is {has}, not {requirement}"


def meets(has: Any, wanted: str) -> bool:
    """Whether a capability meets one extra spec.

    A value that is not a number never meets a numeric operator. A capability that
    the pool does not have meets nothing. A spec without an operator must be equal.
    """
    if has is None:
        return False
    operation, _, operand = wanted.strip().partition(" ")
    operand = operand.strip()
    if operation == "<or>":
        return str(has) in (text.strip() for text in operand.split("<or>"))
    if operation not in _TESTS:
        return str(has) == wanted
    try:
        return bool(operand) and _TESTS[operation](has, operand)
    except ValueError:
        return False


def _value(capabilities: Mapping[str, Any], path: list[str]) -> Any:
    value: Any = capabilities
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _spellings(path: list[str], has: Any) -> list[Any]:
    """Return every spelling of this capability; one of them must meet the spec."""
    values = list(has) if isinstance(has, list | tuple) else [has]
    if path == ["storage_protocol"]:
        values += [
            spelling for group in _PROTOCOLS if has in group for spelling in group
        ]
    return values


def _compare_numbers(compare: Callable[[float, float], bool]) -> Test:
    return lambda has, wanted: compare(float(has), float(wanted))


def _compare_texts(compare: Callable[[str, str], bool]) -> Test:
    return lambda has, wanted: compare(str(has), wanted)


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in _TRUE


_TESTS: Mapping[str, Test] = {
    "<is>": lambda has, wanted: _is_true(has) is _is_true(wanted),
    "<in>": lambda has, wanted: wanted in str(has),
    # "=" means at least, as in Cinder.
    "=": _compare_numbers(operator.ge),
    "==": _compare_numbers(operator.eq),
    "!=": _compare_numbers(operator.ne),
    ">=": _compare_numbers(operator.ge),
    "<=": _compare_numbers(operator.le),
    "s==": _compare_texts(operator.eq),
    "s!=": _compare_texts(operator.ne),
    "s<": _compare_texts(operator.lt),
    "s<=": _compare_texts(operator.le),
    "s>": _compare_texts(operator.gt),
    "s>=": _compare_texts(operator.ge),
}
