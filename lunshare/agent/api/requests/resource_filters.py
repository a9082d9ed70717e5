# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which filters of a list everybody may use. An administrator may use any.

The same as in Cinder's resource_filters.json, for what this node has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Version
from lunshare.agent.model.errors import Invalid

FILTERS: Mapping[str, tuple[str, ...]] = {
    "volume": (
        "name",
        "status",
        "metadata",
        "bootable",
        "migration_status",
        "availability_zone",
        "group_id",
        "size",
        "created_at",
        "updated_at",
        "consumes_quota",
    ),
    "snapshot": (
        "name",
        "status",
        "volume_id",
        "metadata",
        "availability_zone",
        "consumes_quota",
    ),
    "attachment": ("volume_id", "status", "instance_id", "attach_status"),
    "message": (
        "resource_uuid",
        "resource_type",
        "event_id",
        "request_id",
        "message_level",
    ),
    "pool": ("name", "volume_type"),
    "volume_type": ("is_public", "extra_specs"),
}


def allowed(
    resource: str, filters: Mapping[str, Any], is_admin: bool, version: Version
) -> dict[str, Any]:
    """Return the filters that the caller may use.

    Before 3.31 the others are left out, as in Cinder.

    :raises Invalid: names the first one that the caller may not use.
    """
    names = FILTERS.get(resource, ())
    others = [key for key in filters if key and key not in names]
    if is_admin or not others:
        return dict(filters)
    if version >= microversions.STRICT_FILTERS:
        raise Invalid(f"{others[0][:64]}: filter by {', '.join(names)}.")
    return {key: value for key, value in filters.items() if key not in others}
