# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of what the views of clients show.

One schema for each function in lunshare.agent.api.views, in volume_views and
type_views. The tests of the API check every answer with them.
"""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus
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
    many,
    null,
    one,
    shown,
    since,
    without,
    words,
)

_REASON = since((3, 27), TEXT)
_MODE = {"enum": ["rw", "ro", None]}

_VOLUME_ATTACHMENT = shown(
    {
        "id": ID,
        "attachment_id": ID,
        "volume_id": ID,
        "server_id": null(TEXT),
        "host_name": null(TEXT),
        "device": null(TEXT),
        "attached_at": null(TIME),
    }
)

VOLUME = shown(
    {
        "id": ID,
        "status": words(
            {volume_views.MASKED.get(status, status) for status in VolumeStatus}
        ),
        "size": NUMBER,
        "availability_zone": TEXT,
        "created_at": TIME,
        "updated_at": null(TIME),
        "name": null(TEXT),
        "description": null(TEXT),
        "volume_type": null(TEXT),
        "snapshot_id": null(ID),
        "source_volid": null(ID),
        "metadata": TEXTS,
        "links": LINKS,
        "user_id": TEXT,
        "bootable": words(["true", "false"]),
        "multiattach": FLAG,
        "attachments": many(_VOLUME_ATTACHMENT),
        "encrypted": FLAG,
        "replication_status": NULL,
        "consistencygroup_id": NULL,
        "group_id": since((3, 13), NULL),
        "shared_targets": since((3, 48), FLAG),
        "service_uuid": since((3, 48), null(ID)),
        "volume_type_id": since((3, 63), null(ID)),
        "consumes_quota": since((3, 65), FLAG),
    },
    maybe={
        "migration_status": null(TEXT),
        "provider_id": since((3, 21), NULL),
        "cluster_name": since((3, 61), NULL),
        "status_reason": _REASON,
        "volume_image_metadata": TEXTS,
        "os-vol-host-attr:host": null(TEXT),
        "os-vol-tenant-attr:tenant_id": TEXT,
        "os-vol-mig-status-attr:migstat": null(TEXT),
        "os-vol-mig-status-attr:name_id": NULL,
    },
)
WRITTEN_VOLUME = without(VOLUME, *volume_views.ONLY_SHOWN)
VOLUME_BRIEF = shown({"id": ID, "name": null(TEXT), "links": LINKS})
VOLUME_SUMMARY = shown(
    {
        "total_count": NUMBER,
        "total_size": NUMBER,
        "metadata": since(
            microversions.SUMMARY_METADATA,
            {"type": "object", "additionalProperties": many(TEXT)},
        ),
    }
)
CONNECTION_INFO = shown({"driver_volume_type": null(TEXT), "data": ANY_OBJECT})

SNAPSHOT_BRIEF = shown(
    {
        "id": ID,
        "created_at": TIME,
        "updated_at": null(TIME),
        "name": null(TEXT),
        "description": null(TEXT),
        "volume_id": ID,
        "status": words(SnapshotStatus),
        "size": NUMBER,
        "metadata": TEXTS,
    }
)
SNAPSHOT = shown(
    {
        **SNAPSHOT_BRIEF["properties"],
        "group_snapshot_id": since((3, 14), NULL),
        "user_id": since((3, 41), TEXT),
        "consumes_quota": since((3, 65), FLAG),
    }
)
SNAPSHOT_SHOWN = shown(
    SNAPSHOT["properties"],
    maybe={
        "status_reason": _REASON,
        "os-extended-snapshot-attributes:project_id": TEXT,
        "os-extended-snapshot-attributes:progress": TEXT,
    },
)

ATTACHMENT_BRIEF = shown(
    {"id": ID, "status": words(AttachStatus), "instance": null(ID), "volume_id": ID}
)
_ATTACHMENT = {
    **ATTACHMENT_BRIEF["properties"],
    "attached_at": null(TIME),
    "detached_at": null(TIME),
    "attach_mode": _MODE,
    "connection_info": {
        **ANY_OBJECT,
        "description": "what the host needs to log in; empty without a host",
    },
}
LEASE = shown(
    {
        "ttl": NUMBER,
        "then": {"enum": ["next", None]},
        "status": words(["running", "fence pending", "ended"]),
        "seconds_left": {"type": "number"},
        "ended_at": null(TIME),
    }
)
_MAYBE = {
    "status_reason": TEXT,
    "fence": words(["fenced", "fence pending"]),
    "lease": LEASE,
}
ATTACHMENT = shown(_ATTACHMENT, maybe=_MAYBE)
_LIVE = shown(
    {
        "allowed": null(TEXT),
        "sessions": null(NUMBER),
        "addresses": null(many(TEXT)),
        "refused_mib": null(NUMBER),
        "fence": {"enum": ["fenced", "fence pending", None]},
        "verified_at": null(TIME),
        "problem": null(TEXT),
    }
)
SHOWN_ATTACHMENT = shown({**_ATTACHMENT, "live": null(_LIVE)}, maybe=_MAYBE)
CHANGED_ATTACHMENT = shown(
    _ATTACHMENT, maybe={**_MAYBE, "fence_reason": TEXT, "host_must": TEXT}
)

_HANDOVER = shown(
    {
        "status": words(["fence pending", "promoting", "done", "failed"]),
        "from": many(ID),
        "to": ID,
        "force": FLAG,
        "fencing_generation": NUMBER,
        "started_at": TIME,
        "fenced_at": null(TIME),
        "promoted_at": null(TIME),
        "reason": null(TEXT),
    }
)
HANDOVER = shown(
    {"volume_id": ID, "fencing_generation": NUMBER, "handover": null(_HANDOVER)}
)

_PUBLIC = "os-volume-type-access:is_public"
VOLUME_TYPE = shown(
    {"id": ID, "name": TEXT, "is_public": FLAG, "description": null(TEXT)},
    maybe={"extra_specs": TEXTS, _PUBLIC: FLAG, "qos_specs_id": null(ID)},
)
CREATED_TYPE = without(VOLUME_TYPE, "qos_specs_id")
CHANGED_TYPE = without(VOLUME_TYPE, "qos_specs_id", _PUBLIC)

TRANSFER_BRIEF = shown({"id": ID, "name": null(TEXT), "volume_id": ID, "links": LINKS})
_TRANSFER = {
    **TRANSFER_BRIEF["properties"],
    "created_at": TIME,
    "no_snapshots": since(microversions.TRANSFER_SNAPSHOTS, FLAG),
    "source_project_id": since(microversions.TRANSFER_HISTORY, TEXT),
    "destination_project_id": since(microversions.TRANSFER_HISTORY, NULL),
    "accepted": since(microversions.TRANSFER_HISTORY, FLAG),
}
TRANSFER = shown(_TRANSFER)
NEW_TRANSFER = shown({**_TRANSFER, "auth_key": TEXT})

MESSAGE = shown(
    {
        "id": ID,
        "event_id": TEXT,
        "user_message": TEXT,
        "message_level": TEXT,
        "created_at": TIME,
        "guaranteed_until": TIME,
        "request_id": TEXT,
        "links": LINKS,
    },
    maybe={"resource_type": TEXT, "resource_uuid": TEXT},
)

METADATA = one("metadata", TEXTS)
META = one("meta", {**TEXTS, "minProperties": 1})
