# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks that can be managed as volumes, and foreign snapshots of volumes."""

from __future__ import annotations

from collections.abc import Callable

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas, paging, query, schemas
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.records import (
    Manageable,
    ManageableSnapshot,
    ManageRequest,
    ManageSnapshotRequest,
)


def manage_volume(call: Call) -> Answer:
    """POST /manageable_volumes and /os-volume-manage: manage a foreign disk"""
    fields = schemas.VOLUME_MANAGE.read(call)["volume"]
    bootable = str(fields.get("bootable") or False)
    new = ManageRequest(
        host=fields["host"],
        reference=fields["ref"]["source-name"],
        name=fields.get("name"),
        description=fields.get("description"),
        volume_type=fields.get("volume_type") or None,
        availability_zone=fields.get("availability_zone") or None,
        bootable=query.boolean("volume.bootable", bootable),
        metadata=fields.get("metadata") or {},
    )
    volume = call.services.managed_disks.manage(call.ctx, new)
    context = volume_views.ViewContext(
        call.version, call.root, call.project, call.services.node.host_of
    )
    return Answer(202, {"volume": volume_views.stored_volume(volume, context)})


def volumes(call: Call) -> Answer:
    """GET /manageable_volumes and /os-volume-manage: list foreign disks, brief"""
    return _volumes(call, volume_views.manageable_brief)


def volumes_detail(call: Call) -> Answer:
    """GET /manageable_volumes/detail and /os-volume-manage/detail: with reasons"""
    return _volumes(call, volume_views.manageable)


def manage_snapshot(call: Call) -> Answer:
    """POST /manageable_snapshots and /os-snapshot-manage: manage a foreign snapshot"""
    fields = operator_schemas.SNAPSHOT_MANAGE.read(call)["snapshot"]
    new = ManageSnapshotRequest(
        volume_id=fields["volume_id"].lower(),
        reference=fields["ref"]["source-name"],
        name=fields.get("name"),
        description=fields.get("description"),
        metadata=fields.get("metadata") or {},
    )
    snapshot = call.services.managed_snapshots.manage(call.ctx, new)
    return Answer(202, {"snapshot": volume_views.snapshot(snapshot, call.version)})


def snapshots(call: Call) -> Answer:
    """GET /manageable_snapshots and /os-snapshot-manage: list foreign ones, brief"""
    return _snapshots(call, volume_views.manageable_brief)


def snapshots_detail(call: Call) -> Answer:
    """GET /manageable_snapshots/detail and /os-snapshot-manage/detail: with reasons"""
    return _snapshots(call, volume_views.manageable)


def _volumes(call: Call, view: Callable[[Manageable], volume_views.View]) -> Answer:
    find = call.services.managed_disks.list
    return Answer(200, paging.manageable(call, "manageable-volumes", find, view))


def _snapshots(
    call: Call, view: Callable[[ManageableSnapshot], volume_views.View]
) -> Answer:
    find = call.services.managed_snapshots.list
    return Answer(200, paging.manageable(call, "manageable-snapshots", find, view))
