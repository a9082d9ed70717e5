# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks that can be managed as volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lunshare.agent.api import paging, query, schemas, views
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.errors import Invalid
from lunshare.agent.records import ForeignDisk, ManageRequest

_KEYS = ("reference", "size")


def create(call: Call) -> Answer:
    """POST /manageable_volumes and /os-volume-manage: manage a foreign disk"""
    asked = schemas.VOLUME_MANAGE.read(call)["volume"]
    bootable = str(asked.get("bootable") or False)
    new = ManageRequest(
        host=asked["host"],
        reference=asked["ref"]["source-name"],
        name=asked.get("name"),
        description=asked.get("description"),
        volume_type=asked.get("volume_type") or None,
        availability_zone=asked.get("availability_zone") or None,
        bootable=query.boolean("volume.bootable", bootable),
        metadata=asked.get("metadata") or {},
    )
    volume = call.services.foreign_disks.manage(call.ctx, new)
    context = views.ViewContext(
        call.version, call.root, call.project, call.services.node.host_of
    )
    return Answer(202, {"volume": views.written_volume(volume, context)})


def index(call: Call) -> Answer:
    """GET /manageable_volumes and /os-volume-manage: list foreign disks, brief"""
    return _list(call, views.foreign_disk_brief)


def detail(call: Call) -> Answer:
    """GET /manageable_volumes/detail and /os-volume-manage/detail: with reasons"""
    return _list(call, views.foreign_disk)


def _list(call: Call, view: Callable[[ForeignDisk], views.View]) -> Answer:
    host = call.query.get("host")
    if not host:
        raise Invalid("host is missing: give host@backend or host@backend#pool.")
    page = paging.page(call)
    found = call.services.foreign_disks.list(call.ctx, host)
    rows = paging.cut(call, page, found, _KEYS)
    body: dict[str, Any] = {"manageable-volumes": [view(row) for row in rows]}
    return Answer(200, body | paging.more(call, "manageable-volumes", page, rows))
