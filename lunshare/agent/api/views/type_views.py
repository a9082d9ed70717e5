# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume types as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lunshare.agent.model.operator_records import Encryption
from lunshare.agent.model.records import VolumeType

View = dict[str, Any]

#: Extra specs that every user may see; the others say how the storage is built.
USER_VISIBLE_SPECS = frozenset(
    {"multiattach", "replication_enabled", "RESKEY:availability_zones"}
)


def volume_type(shown: VolumeType, all_specs: bool) -> View:
    """Show a volume type; with ``all_specs`` also what describes the storage."""
    return {
        "id": shown.id,
        "name": shown.name,
        "is_public": shown.is_public,
        "description": shown.description,
        "extra_specs": visible_specs(shown.extra_specs, all_specs),
        "os-volume-type-access:is_public": shown.is_public,
        "qos_specs_id": shown.qos_specs_id,
    }


def encryption(shown: Encryption) -> View:
    """Show the encryption of a volume type."""
    return {
        "volume_type_id": shown.volume_type_id,
        "encryption_id": shown.encryption_id,
        "provider": shown.provider,
        "control_location": shown.control_location,
        "cipher": shown.cipher,
        "key_size": shown.key_size,
        "created_at": _time(shown.created_at),
        "updated_at": _time(shown.updated_at),
        "deleted_at": None,
        "deleted": False,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds")


def visible_specs(specs: Mapping[str, str], all_specs: bool) -> View:
    """Return those extra specs that a user may see."""
    return {
        key: text
        for key, text in specs.items()
        if all_specs or key in USER_VISIBLE_SPECS
    }


# What Cinder shows for GET, but not in the answers to a create and an update, where
# Tempest's schemas refuse it.
_NOT_CREATED = frozenset({"qos_specs_id"})
_NOT_CHANGED = _NOT_CREATED | {"os-volume-type-access:is_public"}


def created_type(view: View) -> View:
    """Show a volume type as its create returns it."""
    return {key: value for key, value in view.items() if key not in _NOT_CREATED}


def changed_type(view: View) -> View:
    """Show a volume type as its update returns it."""
    return {key: value for key, value in view.items() if key not in _NOT_CHANGED}
