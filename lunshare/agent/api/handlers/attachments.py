# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments: which host has access to which volume, and in which mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging, query, schemas
from lunshare.agent.api.views import volume_views
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.lease_records import NEXT, NewLease
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.records import Attachment, Mode, NewAttachment
from lunshare.agent.service.attachments import connectors, wanted_state


def create(call: Call) -> Answer:
    """POST /attachments: reserve a volume, or open the access of a host"""
    fields = schemas.ATTACHMENT_CREATE.read(call)["attachment"]
    instance = fields.get("instance_uuid")
    mode, connector = fields.get("mode"), _without_nulls(fields.get("connector") or {})
    new = NewAttachment(
        volume_id=fields["volume_uuid"].lower(),
        instance_uuid=instance and instance.lower(),
        mode=wanted_state.parse_mode(mode, "attachment.mode"),
        connector=connectors.parse(connector) if connector else None,
    )
    return _one(call.services.attachments.create(call.ctx, new))


def index(call: Call) -> Answer:
    """GET /attachments: list attachments, brief"""
    rows = _rows(call)
    body = {"attachments": [volume_views.attachment_brief(row) for row in rows]}
    return Answer(200, body | paging.more(call, "attachments", rows))


def detail(call: Call) -> Answer:
    """GET /attachments/detail: list attachments in full"""
    rows = _rows(call)
    body = {"attachments": [volume_views.attachment(row) for row in rows]}
    return Answer(200, body | paging.more(call, "attachments", rows))


def show(call: Call) -> Answer:
    """GET /attachments/{id}: show one attachment, its connection_info, its host live"""
    secrets = call.ctx.is_service or call.allows("volume:attachment_update")
    row = call.services.attachments.get(call.ctx, call.args["id"], secrets)
    access = call.services.hosts.of_attachment(row)
    names_hosts = call.ctx.is_admin or call.ctx.is_service
    live = volume_views.live(access, names_hosts)
    return Answer(200, {"attachment": volume_views.attachment(row) | live})


def update(call: Call) -> Answer:
    """PUT /attachments/{id}: open the access of a host, or change its mode"""
    fields = schemas.ATTACHMENT_UPDATE.read(call)["attachment"]
    mode = wanted_state.parse_mode(fields.get("mode"), "attachment.mode")
    if mode is not Mode.RO and "fence" in fields:
        raise Invalid("attachment.fence is for the mode ro: leave it out.")
    if mode is not None:
        return _change_mode(call, mode, fields)
    connector = connectors.parse(_without_nulls(fields["connector"]))
    connect = call.services.attachments.connect
    return _one(connect(call.ctx, call.args["id"], connector))


def _change_mode(call: Call, mode: Mode, fields: Mapping[str, Any]) -> Answer:
    drain = fields.get("fence", "drain") == "drain"
    lease = _lease(fields["lease"]) if "lease" in fields else None
    change = call.services.mode_changes.change
    changed = change(call.ctx, call.args["id"], mode, drain, lease)
    shown = volume_views.attachment(changed.row) | volume_views.mode_change(changed)
    return Answer(202 if changed.pending else 200, {"attachment": shown})


def _lease(fields: Mapping[str, Any]) -> NewLease:
    return NewLease(fields["ttl"], fields.get("then") == NEXT)


def renew(call: Call) -> Answer:
    """PUT /attachments/{id}/lease: renew the lease of the write access of a host"""
    ttl = schemas.LEASE.read(call)["lease"].get("ttl")
    return _one(call.services.leases.renew(call.ctx, call.args["id"], ttl))


def delete(call: Call) -> Answer:
    """DELETE /attachments/{id}: close the access; list what the volume has left"""
    force = query.flag(call.query, "force", False)
    rows = call.services.attachments.delete(call.ctx, call.args["id"], force)
    return Answer(
        200, {"attachments": [volume_views.attachment_brief(row) for row in rows]}
    )


def action(call: Call) -> Answer:
    """POST /attachments/{id}/action: confirm that the host is connected"""
    schemas.ATTACHMENT_ACTION.read(call)
    call.services.attachments.complete(call.ctx, call.args["id"])
    return Answer(204)


def _without_nulls(connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that have a value; cinderclient sends null for the others."""
    return {key: value for key, value in connector.items() if value is not None}


def _rows(call: Call) -> PageRows[Attachment]:
    return call.services.attachments.list(call.ctx, paging.page(call, "attachment"))


def _one(attachment: Attachment) -> Answer:
    return Answer(200, {"attachment": volume_views.attachment(attachment)})
