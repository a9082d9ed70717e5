# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign snapshots. No driver can manage them yet, and the answers say so."""

from __future__ import annotations

from lunshare.agent.api import operator_schemas as schemas
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.errors import Invalid


def create(call: Call) -> Answer:
    """POST /manageable_snapshots and /os-snapshot-manage: 400, no driver supports it"""
    asked = schemas.SNAPSHOT_MANAGE.read(call)["snapshot"]
    volume = call.services.volumes.get(call.ctx, asked["volume_id"].lower())
    host = call.services.node.host_of(volume.backend)
    raise _unsupported("snapshot.ref", host)


def index(call: Call) -> Answer:
    """GET /manageable_snapshots and /os-snapshot-manage: 400, no driver supports it"""
    host = call.query.get("host")
    if not host:
        raise Invalid("host is missing: give host@backend or host@backend#pool.")
    raise _unsupported("host", call.services.node.pool(call.ctx, host).name)


def detail(call: Call) -> Answer:
    """GET /manageable_snapshots/detail and /os-snapshot-manage/detail: 400, as above"""
    return index(call)


def _unsupported(field: str, host: str) -> Invalid:
    return Invalid(
        f"{field}: the driver of backend {host} can not manage foreign snapshots;"
        " create new ones, or manage the disks as volumes."
    )
