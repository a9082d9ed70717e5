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


def volume_type(volume_type: VolumeType, all_specs: bool) -> View:
    """Show a volume type; with ``all_specs`` also what describes the storage."""
    return {
        "id": volume_type.id,
        "name": volume_type.name,
        "is_public": volume_type.is_public,
        "description": volume_type.description,
        "extra_specs": visible_specs(volume_type.extra_specs, all_specs),
        "os-volume-type-access:is_public": volume_type.is_public,
        "qos_specs_id": volume_type.qos_specs_id,
    }


def encryption(encryption: Encryption) -> View:
    """Show the encryption of a volume type."""
    return {
        "volume_type_id": encryption.volume_type_id,
        "encryption_id": encryption.encryption_id,
        "provider": encryption.provider,
        "control_location": encryption.control_location,
        "cipher": encryption.cipher,
        "key_size": encryption.key_size,
        "created_at": _time(encryption.created_at),
        "updated_at": _time(encryption.updated_at),
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
