# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of the actions of volumes and snapshots.

https://docs.openstack.org/api-ref/block-storage/v3/
"""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.requests.forms import Form, Schema
from lunshare.agent.api.requests.schema_parts import (
    BOOLEAN,
    GIB,
    HOST,
    MODE,
    NAME,
    UUID,
    object_of,
    text,
    texts,
)


def action_form(name: str, body: Schema) -> Form:
    """Return the form of an action. The body has the name of the action as its key."""
    return Form({microversions.MIN: object_of({name: body}, (name,))})


EXTEND = action_form("os-extend", object_of({"new_size": GIB}, ("new_size",)))
# The value is ignored: clients send null or an object without keys.
UNMANAGE = action_form("os-unmanage", {"description": "null"})
_POLICY = {"enum": ["never", "on-demand", None], "description": "never or on-demand"}
RETYPE = action_form(
    "os-retype",
    object_of({"new_type": NAME, "migration_policy": _POLICY}, ("new_type",)),
)
MIGRATE = action_form(
    "os-migrate_volume",
    object_of(
        {"host": HOST, "force_host_copy": BOOLEAN, "lock_volume": BOOLEAN}, ("host",)
    ),
)
# What os-reset_status may ask for. A client sends one to three of them.
_RESET = {
    "status": {**text(1, null=True), "description": "a status of a volume"},
    "attach_status": {
        "enum": ["attached", "detached", None],
        "description": "attached or detached",
    },
    "migration_status": {
        "enum": [
            "migrating",
            "error",
            "success",
            "completing",
            "none",
            "starting",
            None,
        ],
        "description": "migrating, error, success, completing, none or starting",
    },
}
RESET = action_form("os-reset_status", object_of(_RESET, minProperties=1))
_CONNECTOR_OR_NULL = {"type": ["object", "null"], "description": "a connector or null"}
FORCE_DETACH = action_form(
    "os-force_detach",
    {
        **object_of(
            {
                "attachment_id": {**UUID, "type": ["string", "null"]},
                "connector": _CONNECTOR_OR_NULL,
            }
        ),
        "type": ["object", "null"],
    },
)
REVERT = action_form("revert", object_of({"snapshot_id": UUID}, ("snapshot_id",)))


def _ignored(name: str) -> Form:
    """Return the form of an action without fields: clients send null or {}."""
    return action_form(name, {"description": "null"})


FORCE_DELETE = _ignored("os-force_delete")
RESERVE = _ignored("os-reserve")
UNRESERVE = _ignored("os-unreserve")
BEGIN_DETACHING = _ignored("os-begin_detaching")
ROLL_DETACHING = _ignored("os-roll_detaching")
SHOW_IMAGE_METADATA = _ignored("os-show_image_metadata")

SET_BOOTABLE = action_form(
    "os-set_bootable", object_of({"bootable": BOOLEAN}, ("bootable",))
)
UPDATE_READONLY = action_form(
    "os-update_readonly_flag", object_of({"readonly": BOOLEAN}, ("readonly",))
)
# A property of an image in Glance has so many.
_IMAGE_TEXT_MAX = 65_535
_IMAGE_METADATA = {**texts(null=False, most=_IMAGE_TEXT_MAX), "minProperties": 1}
SET_IMAGE_METADATA = action_form(
    "os-set_image_metadata", object_of({"metadata": _IMAGE_METADATA}, ("metadata",))
)
UNSET_IMAGE_METADATA = action_form(
    "os-unset_image_metadata", object_of({"key": text(1, null=False)}, ("key",))
)

ATTACH = action_form(
    "os-attach",
    {
        **object_of(
            {
                "mountpoint": text(1, null=False),
                "instance_uuid": UUID,
                "host_name": text(1, null=False),
                "mode": MODE,
            },
            ("mountpoint",),
        ),
        "minProperties": 2,
        "description": "an object with mountpoint, and instance_uuid or host_name",
    },
)
DETACH = action_form(
    "os-detach",
    {
        **object_of({"attachment_id": {**UUID, "type": ["string", "null"]}}),
        "type": ["object", "null"],
    },
)
_CONNECTOR = {
    "type": "object",
    "minProperties": 1,
    "description": "the connector of the host",
}
INITIALIZE = action_form(
    "os-initialize_connection", object_of({"connector": _CONNECTOR}, ("connector",))
)
TERMINATE = action_form(
    "os-terminate_connection",
    object_of(
        {
            "connector": {
                **_CONNECTOR,
                "type": ["object", "null"],
                "description": "the connector of the host, or null for the only one",
            }
        },
        ("connector",),
    ),
)

HANDOVER = action_form(
    "lunshare:handover",
    object_of(
        {
            "to": UUID,
            "from": {**UUID, "type": ["string", "null"]},
            "force": {"type": "boolean", "description": "true or false"},
        },
        ("to",),
    ),
)

#: Of one request: their rows are one transaction, which other changes wait for.
_MOST_HOSTS = 500
ATTACH_HOSTS = action_form(
    "lunshare:attach",
    object_of(
        {
            "key": {
                **text(1, null=False),
                "description": "a text of 1 to 255 characters, another one for each"
                " list of hosts",
            },
            "mode": MODE,
            "hosts": {
                "type": "array",
                "minItems": 1,
                "maxItems": _MOST_HOSTS,
                "items": {
                    "type": "object",
                    "minProperties": 1,
                    "description": "the connector of a host",
                },
                "description": f"a list of 1 to {_MOST_HOSTS} connectors",
            },
        },
        ("key", "hosts"),
    ),
)
DETACH_HOSTS = action_form(
    "lunshare:detach",
    object_of(
        {
            "attachments": {
                "type": "array",
                "minItems": 1,
                "maxItems": _MOST_HOSTS,
                "items": UUID,
                "description": f"a list of the ids of 1 to {_MOST_HOSTS} attachments",
            },
            "force": {"type": "boolean", "description": "true or false"},
        },
        ("attachments",),
    ),
)

SNAPSHOT_RESET = action_form(
    "os-reset_status",
    object_of(
        {"status": {**text(1, null=False), "description": "a status of a snapshot"}},
        ("status",),
    ),
)
SNAPSHOT_PROGRESS = action_form(
    "os-update_snapshot_status",
    object_of(
        {
            "status": {**text(1, null=False), "description": "a status of a snapshot"},
            "progress": {
                "type": "string",
                "maxLength": 4,
                "pattern": "^(100|[0-9]{1,2})%$",
                "description": "a percentage such as 80%",
            },
        },
        ("status",),
    ),
)
