# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How much metadata a row may have. Each page of a list reads all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.model.errors import Invalid
from lunshare.drivers import writers
from lunshare.drivers.errors import InvalidValue

_ITEMS = 512
#: Characters of all keys and values. Cinder's 128 items with keys and values of 255
#: have 65,280; Glance's properties have up to 65,535 bytes each.
_SIZES = {"metadata": 65_536, "image_metadata": 262_144}


def check(columns: Mapping[str, Any]) -> None:
    """Check what is about to be written to a row, among it perhaps metadata.

    :raises Invalid: it has too many items, or they are too large together; or its
        writers policy has no meaning.
    """
    try:
        writers.check(columns.get("metadata") or {}, "metadata")
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    for name, most in _SIZES.items():
        items: Mapping[str, str | None] = columns.get(name) or {}
        size = sum(len(key) + len(value or "") for key, value in items.items())
        if len(items) > _ITEMS or size > most:
            raise Invalid(
                f"{name.replace('_', ' ')} would have {len(items)} items of {size}"
                f" characters together, more than {_ITEMS} or {most}: give fewer or"
                " shorter ones"
            )
