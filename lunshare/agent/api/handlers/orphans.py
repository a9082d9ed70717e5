# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Orphans: what has a name of lunshare and no row. Cinder has no such resource."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import schemas
from lunshare.agent.api.views import operator_views, volume_views
from lunshare.agent.model.errors import NotFound
from lunshare.agent.model.operator_records import RecoverRequest

_KINDS = ("export", "disk", "snapshot")


def index(call: Call) -> Answer:
    """GET /lunshare/orphans: list exports, disks and snapshots without a row"""
    orphans = call.services.orphans.list(call.ctx)
    return Answer(
        200, {"orphans": [operator_views.orphan(orphan) for orphan in orphans]}
    )


def recover(call: Call) -> Answer:
    """POST /lunshare/orphans: recover a volume from its disk"""
    fields = schemas.RECOVER.read(call)["volume"]
    new = RecoverRequest(
        fields["id"], fields.get("name"), fields.get("volume_type") or None
    )
    volume = call.services.orphans.recover(call.ctx, new)
    context = volume_views.ViewContext(
        call.version, call.root, call.project, call.services.node.host_of
    )
    return Answer(202, {"volume": volume_views.stored_volume(volume, context)})


def delete(call: Call) -> Answer:
    """DELETE /lunshare/orphans/{kind}/{id}: delete one orphan"""
    kind, ident = call.args["kind"], call.args["id"]
    if kind not in _KINDS:
        raise NotFound("kind of orphan", kind)
    call.services.orphans.delete(call.ctx, kind, ident)
    return Answer(204)
