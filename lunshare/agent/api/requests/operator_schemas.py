# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of bodies about quotas, types, services, foreign snapshots.

https://docs.openstack.org/api-ref/block-storage/v3/
"""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.requests.forms import Form
from lunshare.agent.api.requests.schema_parts import (
    NAME,
    TEXT_MAX,
    UUID,
    object_of,
    text,
    texts,
)

# The handler parses a limit, and the service knows the keys.
_LIMITS = {
    "type": "object",
    "description": "an object with quotas and their limits",
    "minProperties": 1,
    "maxProperties": 1000,
    "propertyNames": {
        "minLength": 1,
        "maxLength": 2 * TEXT_MAX,
        "description": "the names of quotas as keys",
    },
    "additionalProperties": {
        "type": ["integer", "string"],
        "description": "a whole number, -1 or more",
    },
}

QUOTA_SET = Form({microversions.MIN: object_of({"quota_set": _LIMITS}, ("quota_set",))})
QUOTA_CLASS_SET = Form(
    {microversions.MIN: object_of({"quota_class_set": _LIMITS}, ("quota_class_set",))}
)

_PROJECT = object_of({"project": text(1, null=False)}, ("project",))

#: Exactly one of the two.
TYPE_ACTION = Form(
    {
        microversions.MIN: object_of(
            {"addProjectAccess": _PROJECT, "removeProjectAccess": _PROJECT},
            minProperties=1,
            maxProperties=1,
        )
    }
)

DEFAULT_TYPE = Form(
    {
        microversions.DEFAULT_TYPES: object_of(
            {"default_type": object_of({"volume_type": NAME}, ("volume_type",))},
            ("default_type",),
        )
    }
)

_SPEC = {
    "type": ["string", "integer"],
    "minLength": 0,
    "maxLength": TEXT_MAX,
    "description": f"a text of 0 to {TEXT_MAX} characters, or a whole number",
}
_SPECS = {**texts(null=False), "additionalProperties": _SPEC}

QOS_CREATE = Form(
    {
        microversions.MIN: object_of(
            {
                "qos_specs": {
                    **_SPECS,
                    "properties": {"name": NAME},
                    "required": ["name"],
                    "description": "an object with name, consumer and specs",
                }
            },
            ("qos_specs",),
        )
    }
)
_ENCRYPTION = {
    "provider": text(null=False),
    "control_location": {
        "enum": ["front-end", "back-end"],
        "description": "front-end or back-end",
    },
    "cipher": text(),
    "key_size": {
        "type": ["integer", "string", "null"],
        "description": "a number of bits, 0 or more",
    },
}


def _encryption(*required: str) -> Form:
    """Return the form of an encryption; Cinder accepts other keys, too."""
    of_it = {
        **object_of(_ENCRYPTION, required, strict=False),
        "description": "an object with provider and control_location",
    }
    return Form({microversions.MIN: object_of({"encryption": of_it}, ("encryption",))})


ENCRYPTION_CREATE = _encryption("provider", "control_location")
ENCRYPTION_UPDATE = _encryption()

QOS_UPDATE = Form(
    {
        microversions.MIN: object_of(
            {
                "qos_specs": {
                    **_SPECS,
                    "minProperties": 1,
                    "description": "an object with specs",
                }
            },
            ("qos_specs",),
        )
    }
)
QOS_KEYS = Form(
    {
        microversions.MIN: object_of(
            {
                "keys": {
                    "type": "array",
                    "items": text(1, null=False),
                    "uniqueItems": True,
                    "description": "a list of keys, each once",
                }
            },
            ("keys",),
        )
    }
)

_HOST = text(1, null=False)
FREEZE = Form(
    {microversions.MIN: object_of({"host": _HOST, "cluster": text()}, ("host",))}
)
FAILOVER = Form(
    {
        microversions.MIN: object_of(
            {"host": _HOST, "backend_id": text(), "cluster": text()}, ("host",)
        )
    }
)

_BINARIES = (
    "cinder-api",
    "cinder-scheduler",
    "cinder-volume",
    "cinder-backup",
    "*",
    "",
    None,
)
_LOGS = {
    "binary": {"enum": list(_BINARIES), "description": "a cinder service, or *"},
    "server": text(),
    "prefix": text(),
}
_LEVEL = {**text(1, null=False), "description": "DEBUG, INFO, WARNING or ERROR"}

SET_LOG = Form(
    {microversions.LOG_LEVELS: object_of({**_LOGS, "level": _LEVEL}, ("level",))}
)
GET_LOG = Form({microversions.LOG_LEVELS: object_of(_LOGS)})

_CLUSTER = {"name": text(1, null=False), "binary": text()}
ENABLE_CLUSTER = Form({microversions.CLUSTERS: object_of(_CLUSTER, ("name",))})
DISABLE_CLUSTER = Form(
    {
        microversions.CLUSTERS: object_of(
            {**_CLUSTER, "disabled_reason": text()}, ("name",)
        )
    }
)

_ANY = {"description": "a text, a number or null"}
CLEANUP = Form(
    {
        microversions.CLEANUP: object_of(
            dict.fromkeys(
                (
                    "cluster_name",
                    "service_id",
                    "host",
                    "binary",
                    "is_up",
                    "disabled",
                    "resource_id",
                    "resource_type",
                ),
                _ANY,
            )
        )
    }
)

SNAPSHOT_MANAGE = Form(
    {
        microversions.MIN: object_of(
            {
                "snapshot": object_of(
                    {
                        "volume_id": UUID,
                        "ref": {
                            **object_of(
                                {"source-name": text(1, null=False)},
                                ("source-name",),
                                strict=False,
                            ),
                            "description": "an object with source-name",
                        },
                        "name": text(),
                        "description": text(),
                        "metadata": texts(null=True),
                    },
                    ("volume_id", "ref"),
                    strict=False,
                )
            },
            ("snapshot",),
            strict=False,
        )
    }
)
