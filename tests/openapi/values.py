# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Values that a client would send, by the field or parameter that has them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.openapi.population import CONNECTOR, KEY, Population

#: How many random values are replaced by one that means something.
SHARE = 0.8

Value = Callable[[Population, Random], Any]
_MAPPING = f"{{'{KEY}': 'v'}}"


def _one(*choices: Any) -> Value:
    return lambda _, chances: chances.choice(choices)


def _of(*resources: str) -> Value:
    return lambda population, chances: population.of(chances.choice(resources))


_FIELDS: Mapping[str, Value] = {
    "volume_id": _of("volumes"),
    "volume_uuid": _of("volumes", "volumes to share"),
    "source_volid": _of("volumes", "none"),
    "snapshot_id": _of("snapshots", "none"),
    "volume_type": _of("types in use"),
    "new_type": _of("types in use"),
    "attachment_id": _of("attachments"),
    "instance_uuid": lambda _, chances: str(uuid.UUID(int=chances.getrandbits(128))),
    "host": lambda population, _: population.host,
    "binary": _one("cinder-volume"),
    "service": _one("cinder-volume"),
    "size": _one(1, 2, "3"),
    "control_location": _one("front-end", "back-end"),
    "key_size": _one(256, "128", None),
    "new_size": _one(2, 3, "4"),
    "connector": _one(CONNECTOR, {**CONNECTOR, "mode": "ro"}),
    "availability_zone": _one("nova"),
    "multiattach": _one(False),
    "status": _one("available", "error"),
    "level": _one("INFO"),
    "name": _one("a", "b", "c", None),
    "quota_set": _one({"volumes": -1, "gigabytes": 10**6}),
    "quota_class_set": _one({"volumes": -1}),
    **dict.fromkeys(("imageRef", "image_id", "backup_id"), _one(None)),
    **dict.fromkeys(("group_id", "consistencygroup_id"), _one(None)),
    **dict.fromkeys(("bootable", "readonly", "is_public", "force"), _one(True, False)),
    "os-volume-type-access:is_public": _one(True, False),
}
_PARAMETERS: Mapping[str, Value] = {
    "host": lambda population, _: population.host,
    "sort": _one("name", "name:asc", "created_at:desc,id:asc", "id"),
    "sort_key": _one("name", "id"),
    "vol_type_id": _of("types"),
    "volume_type": _of("types in use"),
    "metadata": _one(_MAPPING, "{}"),
    "extra_specs": _one(_MAPPING, "{}"),
    "created_at": _one("gt:2026-01-31T12:00:00"),
    "updated_at": _one("lt:2126-01-31T12:00:00"),
    "is_public": _one("none", "true"),
}


def of_body(value: Any, population: Population, chances: Random) -> Any:
    """The body with most of its known fields replaced."""
    if not isinstance(value, dict):
        return value
    return {
        key: _FIELDS[key](population, chances)
        if key in _FIELDS and _is_plain(key, each) and chances.random() < SHARE
        else of_body(each, population, chances)
        for key, each in value.items()
    }


def _is_plain(key: str, value: Any) -> bool:
    """Whether a value is no object, if the field may also be the name of one."""
    return key != "volume_type" or not isinstance(value, dict)


def of_query(
    query: Mapping[str, Any], population: Population, chances: Random
) -> dict[str, Any]:
    """The parameters with most of the known ones replaced."""
    kept = dict(query)
    if chances.random() < SHARE:
        # A marker is the id of a row, and sort excludes the other two.
        for name in ("marker", *(("sort_key", "sort_dir") if "sort" in kept else ())):
            kept.pop(name, None)
    return {
        key: _PARAMETERS[key](population, chances)
        if key in _PARAMETERS and chances.random() < SHARE
        else each
        for key, each in kept.items()
    }
