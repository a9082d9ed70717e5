# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks that can be managed as volumes."""

from __future__ import annotations

from collections.abc import Callable

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging, query, schemas
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.records import Manageable, ManageRequest


def create(call: Call) -> Answer:
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


def index(call: Call) -> Answer:
    """GET /manageable_volumes and /os-volume-manage: list foreign disks, brief"""
    return _list(call, volume_views.manageable_brief)


def detail(call: Call) -> Answer:
    """GET /manageable_volumes/detail and /os-volume-manage/detail: with reasons"""
    return _list(call, volume_views.manageable)


def _list(call: Call, view: Callable[[Manageable], volume_views.View]) -> Answer:
    find = call.services.managed_disks.list
    return Answer(200, paging.manageable(call, "manageable-volumes", find, view))
