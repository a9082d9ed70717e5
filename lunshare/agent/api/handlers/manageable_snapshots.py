# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign snapshots of volumes that can be managed as their snapshots."""

from __future__ import annotations

from collections.abc import Callable

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.requests import paging
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.records import ManageableSnapshot, ManageSnapshotRequest


def create(call: Call) -> Answer:
    """POST /manageable_snapshots and /os-snapshot-manage: manage a foreign snapshot"""
    fields = schemas.SNAPSHOT_MANAGE.read(call)["snapshot"]
    new = ManageSnapshotRequest(
        volume_id=fields["volume_id"].lower(),
        reference=fields["ref"]["source-name"],
        name=fields.get("name"),
        description=fields.get("description"),
        metadata=fields.get("metadata") or {},
    )
    snapshot = call.services.managed_snapshots.manage(call.ctx, new)
    return Answer(202, {"snapshot": volume_views.snapshot(snapshot, call.version)})


def index(call: Call) -> Answer:
    """GET /manageable_snapshots and /os-snapshot-manage: list foreign ones, brief"""
    return _list(call, volume_views.manageable_brief)


def detail(call: Call) -> Answer:
    """GET /manageable_snapshots/detail and /os-snapshot-manage/detail: with reasons"""
    return _list(call, volume_views.manageable)


def _list(
    call: Call, view: Callable[[ManageableSnapshot], volume_views.View]
) -> Answer:
    find = call.services.managed_snapshots.list
    return Answer(200, paging.manageable(call, "manageable-snapshots", find, view))
