# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Actions on a resource: the body has one key, which names one of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lunshare.agent.api import faults, microversions, missing_features
from lunshare.agent.api.exchange import Answer, Call, Version
from lunshare.agent.api.requests.forms import Form
from lunshare.agent.model.errors import Invalid

#: The body of any action: one key, its name.
_BODY = Form(
    {
        microversions.MIN: {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "description": "an object with one key, the action",
        }
    }
)


@dataclass(frozen=True, slots=True)
class Action:
    """One action: below microversion ``since`` it does not exist (404).

    ``rule`` is its rule of access, ``status`` that of its success, ``refused`` are
    those of the errors that it raises.
    """

    since: Version
    form: Form
    run: Callable[[Call, Any], Answer]
    rule: str
    status: int
    refused: tuple[int, ...]


def run(call: Call, table: Mapping[str, Action]) -> Answer:
    """Run the action that the body names.

    :raises Invalid: the body, or the table has no such action.
    """
    body = call.body()
    _BODY.check(body, call.version)
    (name,) = body
    missing_features.check_action(name)
    action = table.get(name)
    if action is None:
        raise Invalid(f"The body: give one of {', '.join(table)} as its key.")
    if call.version < action.since:
        raise faults.no_such_path()
    action.form.check(body, call.version)
    return action.run(call, body[name])
