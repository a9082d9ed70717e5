# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which handler answers with which body: one table.

A handler that is not in it answers without a body. The statuses are in the route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lunshare.agent.api.handlers import (
    attachments,
    catalog,
    fences,
    health,
    manageable,
    messages,
    operator_resources,
    qos,
    quotas,
    services,
    snapshot_metadata,
    snapshots,
    transfers,
    type_access,
    type_encryption,
    types,
    volume_actions,
    volume_metadata,
    volumes,
)
from tools.api_document import answer_schemas as shows
from tools.api_document import operator_answers as operators
from tools.api_document.answer_parts import (
    ANY_OBJECT,
    NULL,
    TEXT,
    TEXTS,
    Schema,
    one,
    pages,
    rows,
    shown,
)

_VOLUME = one("volume", shows.VOLUME)
_WRITTEN_VOLUME = one("volume", shows.WRITTEN_VOLUME)
_SNAPSHOT = one("snapshot", shows.SNAPSHOT)
_ATTACHMENT = one("attachment", shows.ATTACHMENT)
_TYPE = one("volume_type", shows.VOLUME_TYPE)
_SPECS = one("extra_specs", TEXTS)
_TRANSFER = one("transfer", shows.TRANSFER)
_MESSAGE = one("message", shows.MESSAGE)
_FENCE = one("fence", operators.FENCE)
_VERSIONS = rows("versions", operators.API_VERSION)
_ALIVE = one("status", {"const": "ok"})
_DEFAULT_TYPE = one("default_type", operators.DEFAULT_TYPE)
_QUOTA_SET = one("quota_set", operators.QUOTA_SET)
_QUOTAS = one("quota_set", operators.QUOTAS)
_SHOWN_QUOTAS: Schema = one(
    "quota_set", {"anyOf": [operators.QUOTA_SET, operators.QUOTA_USAGE]}
)
_FOREIGN, _FOREIGN_SNAPSHOTS = "manageable-volumes", "manageable-snapshots"
_NO_CLUSTER = shown({"clusters": {"type": "array", "maxItems": 0}})
_CLEANED = shown({"cleaning": {"type": "array"}, "unavailable": {"type": "array"}})
_ACTIONS = volume_actions.ACTIONS

#: The media type of a body that is not JSON.
OTHER_TYPES: Mapping[Callable[..., Any], str] = {health.metrics: "text/plain"}

BODIES: Mapping[Callable[..., Any], Schema] = {
    catalog.choices: _VERSIONS,
    catalog.version: _VERSIONS,
    catalog.document: {**ANY_OBJECT, "description": "this document"},
    health.alive: _ALIVE,
    health.ready: operators.READINESS,
    health.full: one("health", operators.FULL_HEALTH),
    health.metrics: TEXT,
    volumes.create: _WRITTEN_VOLUME,
    volumes.index: pages("volumes", shows.VOLUME_BRIEF, counted=True),
    volumes.detail: pages("volumes", shows.VOLUME, counted=True),
    volumes.summary: one("volume-summary", shows.VOLUME_SUMMARY),
    volumes.show: _VOLUME,
    volumes.update: _WRITTEN_VOLUME,
    volume_metadata.encryption: shown({"encryption_key_id": NULL}),
    volume_metadata.index: shows.METADATA,
    volume_metadata.merge: shows.METADATA,
    volume_metadata.replace: shows.METADATA,
    volume_metadata.show: shows.META,
    volume_metadata.update: shows.META,
    _ACTIONS["os-initialize_connection"].run: one(
        "connection_info", shows.CONNECTION_INFO
    ),
    _ACTIONS["os-set_image_metadata"].run: shows.METADATA,
    _ACTIONS["os-show_image_metadata"].run: shows.METADATA,
    _ACTIONS["lunshare:handover"].run: shows.HANDOVER,
    volume_actions.handover: shows.HANDOVER,
    _ACTIONS["lunshare:attach"].run: rows("attachments", shows.ATTACHMENT),
    _ACTIONS["lunshare:detach"].run: rows("attachments", shows.ATTACHMENT_BRIEF),
    transfers.create: one("transfer", shows.NEW_TRANSFER),
    transfers.index: pages("transfers", shows.TRANSFER_BRIEF),
    transfers.detail: pages("transfers", shows.TRANSFER),
    transfers.show: _TRANSFER,
    transfers.accept: one("transfer", shows.TRANSFER_BRIEF),
    snapshots.create: _SNAPSHOT,
    snapshots.index: pages("snapshots", shows.SNAPSHOT_BRIEF, counted=True),
    snapshots.detail: pages("snapshots", shows.SNAPSHOT_SHOWN, counted=True),
    snapshots.show: one("snapshot", shows.SNAPSHOT_SHOWN),
    snapshots.update: _SNAPSHOT,
    snapshot_metadata.index: shows.METADATA,
    snapshot_metadata.merge: shows.METADATA,
    snapshot_metadata.replace: shows.METADATA,
    snapshot_metadata.show: shows.META,
    snapshot_metadata.update: shows.META,
    manageable.manage_volume: _WRITTEN_VOLUME,
    manageable.volumes: pages(_FOREIGN, operators.FOREIGN_DISK_BRIEF),
    manageable.volumes_detail: pages(_FOREIGN, operators.FOREIGN_DISK),
    manageable.manage_snapshot: _SNAPSHOT,
    manageable.snapshots: pages(_FOREIGN_SNAPSHOTS, operators.FOREIGN_SNAPSHOT_BRIEF),
    manageable.snapshots_detail: pages(_FOREIGN_SNAPSHOTS, operators.FOREIGN_SNAPSHOT),
    attachments.create: _ATTACHMENT,
    attachments.index: pages("attachments", shows.ATTACHMENT_BRIEF),
    attachments.detail: pages("attachments", shows.ATTACHMENT),
    attachments.show: one("attachment", shows.SHOWN_ATTACHMENT),
    attachments.renew: _ATTACHMENT,
    attachments.update: one("attachment", shows.CHANGED_ATTACHMENT),
    attachments.delete: rows("attachments", shows.ATTACHMENT_BRIEF),
    types.create: one("volume_type", shows.CREATED_TYPE),
    types.index: pages("volume_types", shows.VOLUME_TYPE, links="volume_type"),
    types.default: _TYPE,
    types.show: _TYPE,
    types.update: one("volume_type", shows.CHANGED_TYPE),
    types.specs: _SPECS,
    types.set_specs: _SPECS,
    types.spec: TEXTS,
    types.set_spec: TEXTS,
    type_encryption.index: operators.ENCRYPTION,
    type_encryption.create: one("encryption", operators.NEW_ENCRYPTION),
    type_encryption.show: operators.ENCRYPTION,
    type_encryption.update: one("encryption", operators.CHANGED_ENCRYPTION),
    type_access.index: rows("volume_type_access", operators.TYPE_ACCESS),
    type_access.defaults: rows("default_types", operators.DEFAULT_TYPE),
    type_access.default: _DEFAULT_TYPE,
    type_access.set_default: _DEFAULT_TYPE,
    services.index: rows("services", operators.SERVICE),
    services.enable: operators.CHANGED_SERVICE,
    services.disable: operators.CHANGED_SERVICE,
    services.disable_with_reason: operators.CHANGED_SERVICE,
    services.get_log: rows("log_levels", operators.LOG_LEVELS),
    services.pools: rows("pools", operators.POOL),
    services.explain: one("explanation", operators.EXPLANATION),
    services.capabilities: operators.CAPABILITIES,
    catalog.zones: rows("availabilityZoneInfo", operators.ZONE),
    catalog.hosts: rows("hosts", operators.SERVICE_HOST),
    catalog.host: rows("host", operators.HOST_TOTALS),
    catalog.extensions: rows("extensions", operators.EXTENSION),
    catalog.extension: one("extension", operators.EXTENSION),
    catalog.filters: rows("resource_filters", operators.RESOURCE_FILTERS),
    catalog.clusters: _NO_CLUSTER,
    catalog.clean_up: _CLEANED,
    qos.create: operators.QOS_WITH_LINKS,
    qos.index: pages("qos_specs", operators.QOS),
    qos.show: operators.QOS_WITH_LINKS,
    qos.update: one("qos_specs", operators.SENT_SPECS),
    qos.associations: rows("qos_associations", operators.QOS_ASSOCIATION),
    quotas.limits: one("limits", operators.LIMITS),
    quotas.show: _SHOWN_QUOTAS,
    quotas.defaults: _QUOTA_SET,
    quotas.update: _QUOTAS,
    quotas.show_class: one("quota_class_set", operators.QUOTA_SET),
    quotas.update_class: one("quota_class_set", operators.QUOTAS),
    messages.index: pages("messages", shows.MESSAGE),
    messages.show: _MESSAGE,
    operator_resources.wipes: rows("wipes", operators.WIPE),
    operator_resources.hosts: pages("hosts", operators.HOST_ACCESS),
    operator_resources.verify: one("verify", operators.VERIFICATION),
    fences.index: pages("fences", operators.FENCE),
    fences.show: _FENCE,
    fences.fence: _FENCE,
    fences.unfence: _FENCE,
    operator_resources.orphans: rows("orphans", operators.ORPHAN),
    operator_resources.recover: _WRITTEN_VOLUME,
}
