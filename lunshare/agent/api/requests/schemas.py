# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of every request body; ``forms`` checks with it.

https://docs.openstack.org/api-ref/block-storage/v3/
"""

from __future__ import annotations

from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.requests.forms import Form, Schema
from lunshare.agent.api.requests.schema_parts import BOOLEAN as _BOOLEAN
from lunshare.agent.api.requests.schema_parts import GIB as _GIB
from lunshare.agent.api.requests.schema_parts import HOST as _HOST
from lunshare.agent.api.requests.schema_parts import MODE as _MODE
from lunshare.agent.api.requests.schema_parts import NAME as _NAME
from lunshare.agent.api.requests.schema_parts import UUID as _UUID
from lunshare.agent.api.requests.schema_parts import object_of as _object
from lunshare.agent.api.requests.schema_parts import text as _text
from lunshare.agent.api.requests.schema_parts import texts as _texts
from lunshare.agent.model.lease_records import NEXT, TTL_LEAST, TTL_MOST

_SOURCES = ("snapshot_id", "source_volid")
# The handler refuses any value of these. Clients send all of them as null.
_UNSUPPORTED = ("backup_id", "imageRef", "image_id", "consistencygroup_id", "group_id")

_NAMING = {
    "name": _text(),
    "display_name": _text(),
    "description": _text(),
    "display_description": _text(),
    "metadata": _texts(null=True),
}

_VOLUME = {
    **_NAMING,
    # Not required here: if a volume has a source, the source is checked first.
    "size": {**_GIB, "type": ["integer", "string", "null"]},
    "volume_type": _text(),
    "availability_zone": _text(),
    "multiattach": {**_BOOLEAN, "type": ["boolean", "string", "null"]},
    **dict.fromkeys(_SOURCES, _text()),
    **{key: {**_text(), "$comment": "null (unsupported)"} for key in _UNSUPPORTED},
}
_HINTS = {"type": ["object", "null"], "description": "an object"}


def _new_volume(strict: bool) -> Schema:
    volume = _object(_VOLUME, strict=strict, description="an object with size")
    keys = {"volume": volume, "OS-SCH-HNT:scheduler_hints": _HINTS}
    return _object(keys, ("volume",), strict)


def _changed_volume(least: int) -> Schema:
    volume = _object(_NAMING, minProperties=least)
    return _object({"volume": volume}, ("volume",))


VOLUME_CREATE = Form(
    {
        microversions.MIN: _new_volume(strict=False),
        microversions.STRICT_BODIES: _new_volume(strict=True),
    }
)

# The choice of a pool depends on these. Names and metadata are accepted, unused.
_PLACED = {
    **_NAMING,
    "size": _GIB,
    "volume_type": _text(),
    "availability_zone": _text(),
}

EXPLAIN = Form(
    {microversions.MIN: _object({"volume": _object(_PLACED, ("size",))}, ("volume",))}
)

VOLUME_UPDATE = Form(
    {
        microversions.MIN: _changed_volume(least=0),
        microversions.STRICT_BODIES: _changed_volume(least=1),
    }
)

_NEW_SNAPSHOT = {
    **_NAMING,
    # Null names no volume: 404, as in Cinder.
    "volume_id": {**_UUID, "type": ["string", "null"]},
    "force": {**_BOOLEAN, "type": ["boolean", "string", "null"]},
}


def _new_snapshot(strict: bool) -> Schema:
    snapshot = _object(_NEW_SNAPSHOT, ("volume_id",), strict)
    return _object({"snapshot": snapshot}, ("snapshot",), strict)


def _changed_snapshot(least: int) -> Schema:
    snapshot = _object(_NAMING, minProperties=least)
    return _object({"snapshot": snapshot}, ("snapshot",))


SNAPSHOT_CREATE = Form(
    {
        microversions.MIN: _new_snapshot(strict=False),
        microversions.STRICT_BODIES: _new_snapshot(strict=True),
    }
)

SNAPSHOT_UPDATE = Form(
    {
        microversions.MIN: _changed_snapshot(least=0),
        microversions.STRICT_BODIES: _changed_snapshot(least=1),
    }
)


_MANAGED = {
    "host": _HOST,
    "ref": {
        **_object(
            {"source-name": _text(1, null=False)}, ("source-name",), strict=False
        ),
        "description": "an object with source-name",
    },
    "name": _text(),
    "description": _text(),
    "metadata": _texts(null=True),
    "volume_type": _text(),
    "availability_zone": _text(),
    "bootable": {**_BOOLEAN, "type": ["boolean", "string", "null"]},
}


def _managed(strict: bool) -> Schema:
    volume = _object(_MANAGED, ("host", "ref"), strict)
    return _object({"volume": volume}, ("volume",), strict)


VOLUME_MANAGE = Form(
    {
        microversions.MIN: _managed(strict=False),
        microversions.STRICT_BODIES: _managed(strict=True),
    }
)


RECOVER = Form(
    {
        microversions.MIN: _object(
            {
                "volume": _object(
                    {"id": _UUID, "name": _text(), "volume_type": _text()}, ("id",)
                )
            },
            ("volume",),
        )
    }
)

# Other keys of a connector are accepted unchecked. The service checks the form of
# the initiator name, and that there is one if the volume's target is iSCSI.
_CONNECTOR_KEYS = {
    "initiator": {
        **_text(1),
        "description": "the host's iSCSI name, such as iqn.1994-05.com.example:host1",
    },
    "host": {**_text(1, null=False), "description": "the host's name"},
}
_CONNECTOR = {**_object(_CONNECTOR_KEYS, ("host",), strict=False), "minProperties": 1}
# An empty connector reserves the volume, like a missing one: cinderclient sends {}.
_CONNECTOR_OR_NONE = {
    "description": "a connector, or leave it out to reserve the volume",
    "if": {"type": "object", "minProperties": 1},
    "then": _CONNECTOR,
    "else": {
        "type": ["object", "null"],
        "description": "a connector, or leave it out to reserve the volume",
    },
}


def _new_attachment(mode: dict[str, Any]) -> Schema:
    attachment = _object(
        {
            "volume_uuid": _UUID,
            "instance_uuid": _UUID,
            "connector": _CONNECTOR_OR_NONE,
            **mode,
        },
        ("volume_uuid",),
    )
    return _object({"attachment": attachment}, ("attachment",))


ATTACHMENT_CREATE = Form(
    {
        microversions.ATTACHMENTS: _new_attachment({}),
        microversions.ATTACHMENT_MODE: _new_attachment({"mode": _MODE}),
    }
)

_TTL = {
    "type": "integer",
    "minimum": TTL_LEAST,
    "maximum": TTL_MOST,
    "description": f"a whole number of seconds, {TTL_LEAST} to {TTL_MOST}",
}
_THEN = {"enum": [NEXT, None], "description": f"{NEXT}, or null"}
_TO_CONNECT = _object({"connector": _CONNECTOR}, ("connector",))
_TO_CHANGE = _object(
    {
        "mode": _MODE,
        "fence": {
            "enum": ["drain", "immediate"],
            "description": "drain or immediate, how a host loses its write access",
        },
        "lease": _object({"ttl": _TTL, "then": _THEN}, ("ttl",)),
    },
    ("mode",),
)
_WITHOUT_CONNECTOR = {"required": ["mode"], "not": {"required": ["connector"]}}

ATTACHMENT_UPDATE = Form(
    {
        microversions.ATTACHMENTS: _object(
            {"attachment": _TO_CONNECT}, ("attachment",)
        ),
        # The mode alone is lunshare's own.
        microversions.ATTACHMENT_MODE: _object(
            {
                "attachment": {
                    "if": {"type": "object", **_WITHOUT_CONNECTOR},
                    "then": _TO_CHANGE,
                    "else": _TO_CONNECT,
                    "description": "an object with connector, or with mode",
                }
            },
            ("attachment",),
        ),
    }
)

LEASE = Form(
    {
        microversions.ATTACHMENT_MODE: _object(
            {"lease": _object({"ttl": _TTL})}, ("lease",)
        )
    }
)

# The value is ignored: cinderclient sends null, openstackclient the id.
ATTACHMENT_ACTION = Form(
    {
        microversions.ATTACHMENT_COMPLETE: _object(
            {"os-complete": {"description": "null, the only action here"}},
            ("os-complete",),
        )
    }
)

_PUBLIC = "os-volume-type-access:is_public"
_SPECS = _texts(null=False)

TYPE_CREATE = Form(
    {
        microversions.MIN: _object(
            {
                "volume_type": _object(
                    {
                        "name": _NAME,
                        "description": _text(),
                        "extra_specs": _texts(null=True),
                        _PUBLIC: _BOOLEAN,
                    },
                    ("name",),
                )
            },
            ("volume_type",),
        )
    }
)

TYPE_UPDATE = Form(
    {
        microversions.MIN: _object(
            {
                "volume_type": _object(
                    {
                        "name": {**_NAME, "type": ["string", "null"]},
                        "description": _text(),
                        "is_public": _BOOLEAN,
                        _PUBLIC: _BOOLEAN,
                    },
                    minProperties=1,
                )
            },
            ("volume_type",),
        )
    }
)

SPECS_CREATE = Form(
    {
        microversions.MIN: _object(
            {"extra_specs": {**_SPECS, "minProperties": 1}}, ("extra_specs",)
        )
    }
)

#: One extra spec under its own key.
SPEC_UPDATE = Form(
    {microversions.MIN: {**_SPECS, "minProperties": 1, "maxProperties": 1}}
)

_SERVICE = {
    "host": _text(1, null=False),
    "binary": _text(1, null=False),
    "service": _text(1, null=False),
}
_REASON = _text(1, null=False)

FENCE = Form(
    {
        microversions.MIN: _object(
            {"fence": _object({"writes_only": {**_BOOLEAN, "type": "boolean"}})},
            ("fence",),
        )
    }
)

VERIFY = Form(
    {
        microversions.MIN: _object(
            {
                "verify": _object(
                    {"volume_id": _UUID, "repair": {**_BOOLEAN, "type": "boolean"}}
                )
            },
            ("verify",),
        )
    }
)

SERVICE = Form({microversions.MIN: _object(_SERVICE, ("host",))})

SERVICE_REASON = Form(
    {
        microversions.MIN: _object(
            {**_SERVICE, "disabled_reason": _REASON}, ("host", "disabled_reason")
        )
    }
)
