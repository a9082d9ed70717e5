# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How much metadata a row may have. Each page of a list reads all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lunshare.agent.model.errors import Invalid
from lunshare.drivers import writers
from lunshare.drivers.errors import InvalidValue

_ITEMS = 512
#: Of all keys and values together. Cinder's 128 items with keys and values of 255
#: characters have 65,280.
_CHARACTERS, _IMAGE_BYTES = 65_536, 262_144
#: Of a value. A property of an image in Glance has so many.
_IMAGE_VALUE_BYTES = 65_535


def check(columns: Mapping[str, Any]) -> None:
    """Check what is about to be written to a row, among it perhaps metadata.

    :raises Invalid: it has too many items, or too large ones; or its writers policy has
        no meaning.
    """
    metadata, image = columns.get("metadata") or {}, columns.get("image_metadata") or {}
    try:
        writers.check(metadata, "metadata")
    except InvalidValue as error:
        raise Invalid(str(error)) from error
    for key, value in image.items():
        if (size := _bytes(value)) > _IMAGE_VALUE_BYTES:
            most = f"give at most {_IMAGE_VALUE_BYTES}"
            raise Invalid(f"image metadata {key} has {size} bytes: {most}")
    _check_total("metadata", metadata, len, _CHARACTERS, "characters")
    _check_total("image metadata", image, _bytes, _IMAGE_BYTES, "bytes")


def _bytes(text: str) -> int:
    return len(text.encode())


def _check_total(
    name: str,
    items: Mapping[str, str | None],
    measure: Callable[[str], int],
    most: int,
    unit: str,
) -> None:
    size = sum(measure(key) + measure(value or "") for key, value in items.items())
    if len(items) > _ITEMS or size > most:
        raise Invalid(
            f"{name} would have {len(items)} items of {size} {unit} together, more"
            f" than {_ITEMS} or {most}: give fewer or shorter ones"
        )
