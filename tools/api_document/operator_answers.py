# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of what operators see: operator_views, placement_views, health."""

from __future__ import annotations

from lunshare.agent.model.operator_records import Verdict
from lunshare.agent.model.qos_table import CONSUMERS
from lunshare.drivers.drifts import DriftKind
from tools.api_document import answer_schemas as shows
from tools.api_document.answer_parts import (
    ANY_OBJECT,
    FLAG,
    ID,
    LINKS,
    NULL,
    NUMBER,
    TEXT,
    TEXTS,
    TIME,
    Schema,
    many,
    null,
    one,
    shown,
    since,
    words,
)

_STATUS = words(["enabled", "disabled"])
_STATE = words(["up", "down"])

SERVICE = shown(
    {
        "binary": TEXT,
        "host": TEXT,
        "zone": TEXT,
        "status": _STATUS,
        "state": _STATE,
        "updated_at": TIME,
        "disabled_reason": null(TEXT),
        "cluster": since((3, 7), NULL),
    },
    maybe={
        "replication_status": TEXT,
        "active_backend_id": NULL,
        "frozen": FLAG,
        "backend_state": since((3, 49), _STATE),
    },
)
CHANGED_SERVICE = shown(
    {
        "host": TEXT,
        "service": TEXT,
        "binary": TEXT,
        "status": _STATUS,
        "disabled": FLAG,
    },
    maybe={"disabled_reason": TEXT},
)
LOG_LEVELS = shown({"binary": TEXT, "host": TEXT, "levels": TEXTS})
POOL = shown(
    {"name": TEXT},
    maybe={"capabilities": {**ANY_OBJECT, "description": "pool stats; sizes are GiB"}},
)
_PROPERTY = shown({"title": TEXT, "description": TEXT, "type": TEXT, "default": FLAG})
CAPABILITIES = shown(
    {
        "namespace": TEXT,
        "vendor_name": TEXT,
        "volume_backend_name": TEXT,
        "driver_version": TEXT,
        "storage_protocol": TEXT,
        "pool_name": TEXT,
        "display_name": TEXT,
        "description": TEXT,
        "visibility": TEXT,
        "replication_targets": many(TEXT),
        "properties": {"type": "object", "additionalProperties": _PROPERTY},
    }
)
_REAL: Schema = {"type": "number"}
_CANDIDATE = shown(
    {
        "name": TEXT,
        "passed": FLAG,
        "filters": many(shown({"name": TEXT, "passed": FLAG, "reason": TEXT})),
        "weighers": many(
            shown({"name": TEXT, "value": _REAL, "multiplier": _REAL, "weight": _REAL})
        ),
        "weight": null(_REAL),
    }
)
EXPLANATION = shown(
    {
        "asked": shown(
            {
                "size": NUMBER,
                "volume_type": null(TEXT),
                "extra_specs": TEXTS,
                "availability_zone": null(TEXT),
            }
        ),
        "chosen": null(TEXT),
        "pools": many(_CANDIDATE),
    }
)

FOREIGN_DISK_BRIEF = shown(
    {"reference": shown({"source-name": TEXT}), "size": NUMBER, "safe_to_manage": FLAG}
)
FOREIGN_DISK = shown(
    {
        **FOREIGN_DISK_BRIEF["properties"],
        "reason_not_safe": null(TEXT),
        "cinder_id": NULL,
        "extra_info": NULL,
    }
)
_ENCRYPTION = {
    "provider": TEXT,
    "control_location": TEXT,
    "cipher": null(TEXT),
    "key_size": null(NUMBER),
}
_ENCRYPTION_IDS = {"volume_type_id": TEXT, "encryption_id": TEXT}
_SHOWN_ENCRYPTION = {
    **_ENCRYPTION,
    **_ENCRYPTION_IDS,
    "created_at": TEXT,
    "updated_at": null(TEXT),
    "deleted_at": NULL,
    "deleted": {"const": False},
}
NEW_ENCRYPTION = shown(_ENCRYPTION_IDS, maybe=_ENCRYPTION)
CHANGED_ENCRYPTION = shown({}, maybe=_ENCRYPTION)
#: Empty without an encryption; one field where a request names it.
ENCRYPTION = shown({}, maybe=_SHOWN_ENCRYPTION)
_SOURCE = {"source_reference": shown({"source-name": TEXT})}
FOREIGN_SNAPSHOT_BRIEF = shown({**FOREIGN_DISK_BRIEF["properties"], **_SOURCE})
FOREIGN_SNAPSHOT = shown({**FOREIGN_DISK["properties"], **_SOURCE})
HOST_ACCESS = shown(
    {
        "volume_id": TEXT,
        "volume_name": null(TEXT),
        "backend": TEXT,
        "host": null(TEXT),
        "initiator": TEXT,
        "attachment_id": null(ID),
        "mode": null(TEXT),
        "status": null(TEXT),
        "allowed": null(TEXT),
        "sessions": null(NUMBER),
        "addresses": many(TEXT),
        "refused_mib": null(NUMBER),
        "reservation_keys": many(TEXT),
        "reservation": null(TEXT),
        "fence": {
            "type": ["string", "null"],
            "enum": ["fenced", "fence pending", None],
        },
        "verified_at": null(TIME),
        "problem": null(TEXT),
        "lease": null(shows.LEASE),
    }
)
_FENCED = shown(
    {
        "volume_id": ID,
        "attachment_id": ID,
        "host": null(TEXT),
        "initiator": TEXT,
        "mode": words(["ro", "rw"]),
        "status": words(["fenced", "fence pending", "open", "pending"]),
        "fenced_at": null(TIME),
        "fencing_generation": NUMBER,
        "reason": null(TEXT),
    }
)
FENCE = shown(
    {
        "host": TEXT,
        "fence": {"type": ["string", "null"], "enum": ["all", "writes", None]},
        "status": words(["fenced", "fence pending", "unfenced", "pending"]),
        "since": null(TIME),
        "initiators": many(TEXT),
        "volumes": many(_FENCED),
    }
)
_DRIFT = shown(
    {"kind": words([*DriftKind]), "initiator": null(TEXT), "what": TEXT, "left": FLAG}
)
_VERIFIED = shown(
    {
        "volume_id": ID,
        "status": words([*Verdict]),
        "compared_at": TIME,
        "drift": many(_DRIFT),
        "problem": null(TEXT),
    }
)
VERIFICATION = shown(
    {
        "counts": shown({verdict.value: NUMBER for verdict in Verdict}),
        "targets": many(_VERIFIED),
    }
)
ORPHAN = shown({"kind": TEXT, "id": TEXT, "backend": TEXT, "where": TEXT})
WIPE = shown(
    {"name": TEXT, "backend": TEXT, "size": NUMBER, "left": NUMBER, "percent": NUMBER}
)
HEALTH = shown(
    {"ready": FLAG, "problems": many(TEXT), "failed": many(TEXT), "unknown": many(TEXT)}
)
PORTALS = shown(
    {"backend": TEXT, "open": TEXT, "refused": NUMBER, "sources": many(TEXT)}
)
FULL_HEALTH = shown({**HEALTH["properties"], "portals": many(PORTALS)})
READINESS = shown(
    {**HEALTH["properties"], "counts": shown({"failed": NUMBER, "unknown": NUMBER})}
)

#: Keys are quotas, such as volumes and volumes_gold.
QUOTAS: Schema = {"type": "object", "additionalProperties": NUMBER}
QUOTA_SET: Schema = {**QUOTAS, "properties": {"id": TEXT}, "required": ["id"]}
QUOTA_USAGE: Schema = {
    "type": "object",
    "properties": {"id": TEXT},
    "required": ["id"],
    "additionalProperties": shown(
        {"limit": NUMBER, "in_use": NUMBER, "reserved": NUMBER}
    ),
}
LIMITS = shown({"rate": many(ANY_OBJECT), "absolute": {**QUOTAS, "minProperties": 5}})
TYPE_ACCESS = shown({"volume_type_id": ID, "project_id": TEXT})
DEFAULT_TYPE = shown({"project_id": TEXT, "volume_type_id": ID})
QOS = shown({"id": ID, "name": TEXT, "consumer": words(CONSUMERS), "specs": TEXTS})
#: Specs as the client sent them.
SENT_SPECS: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer"]},
}
QOS_WITH_LINKS = shown({"qos_specs": QOS, "links": LINKS})
QOS_ASSOCIATION = shown({"association_type": TEXT, "id": ID, "name": TEXT})

ZONE = shown({"zoneName": TEXT, "zoneState": shown({"available": FLAG})})
SERVICE_HOST = shown(
    {
        "host_name": TEXT,
        "service": TEXT,
        "zone": TEXT,
        "service-status": words(["available", "unavailable"]),
        "service-state": _STATUS,
        "last-update": TIME,
    }
)
HOST_TOTALS = one(
    "resource",
    shown(
        {
            "host": TEXT,
            "project": TEXT,
            "volume_count": TEXT,
            "total_volume_gb": TEXT,
            "snapshot_count": TEXT,
            "total_snapshot_gb": TEXT,
        }
    ),
)
EXTENSION = shown(
    {"alias": TEXT, "name": TEXT, "description": TEXT, "updated": TEXT, "links": LINKS}
)
RESOURCE_FILTERS = shown({"resource": TEXT, "filters": many(TEXT)})
API_VERSION = shown(
    {
        "id": TEXT,
        "status": TEXT,
        "version": TEXT,
        "min_version": TEXT,
        "updated": TEXT,
        "links": many(shown({"rel": TEXT, "href": TEXT}, {"type": TEXT})),
        "media-types": many(shown({"base": TEXT, "type": TEXT})),
    }
)
