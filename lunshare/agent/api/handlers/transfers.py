# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Transfers of volumes to other projects."""

from __future__ import annotations

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import metadata_schemas, paging, query
from lunshare.agent.api.views import volume_views


def create(call: Call) -> Answer:
    """POST /os-volume-transfer and /volume-transfers: offer a volume

    The answer has the key, which is not shown again.
    """
    fields = metadata_schemas.TRANSFER_CREATE.read(call)["transfer"]
    # Before 3.55 snapshots stayed with the project.
    may_keep = call.version >= microversions.TRANSFER_SNAPSHOTS
    text = str(fields.get("no_snapshots", False))
    without_snapshots = not may_keep or query.boolean("transfer.no_snapshots", text)
    transfer, key = call.services.transfers.create(
        call.ctx, fields["volume_id"].lower(), fields.get("name"), without_snapshots
    )
    view = volume_views.transfer(transfer, call.version, call.base)
    return Answer(202, {"transfer": {**view, "auth_key": key}})


def index(call: Call) -> Answer:
    """GET /os-volume-transfer and /volume-transfers: list offers, brief"""
    page = paging.page(call)
    rows = call.services.transfers.list(call.ctx, page)
    views = [volume_views.transfer_brief(row, call.base) for row in rows]
    body = {"transfers": views}
    return Answer(200, body | paging.more(call, "transfers", rows))


def detail(call: Call) -> Answer:
    """GET /os-volume-transfer/detail and /volume-transfers/detail: list them in full"""
    page = paging.page(call)
    rows = call.services.transfers.list(call.ctx, page)
    views = [volume_views.transfer(row, call.version, call.base) for row in rows]
    body = {"transfers": views}
    return Answer(200, body | paging.more(call, "transfers", rows))


def show(call: Call) -> Answer:
    """GET /os-volume-transfer/{id} and /volume-transfers/{id}: show one offer"""
    transfer = call.services.transfers.get(call.ctx, call.args["id"])
    view = volume_views.transfer(transfer, call.version, call.base)
    return Answer(200, {"transfer": view})


def delete(call: Call) -> Answer:
    """DELETE /os-volume-transfer/{id} and /volume-transfers/{id}: withdraw an offer"""
    call.services.transfers.delete(call.ctx, call.args["id"])
    return Answer(202)


def accept(call: Call) -> Answer:
    """POST /os-volume-transfer/{id}/accept and /volume-transfers/{id}/accept: take"""
    key = metadata_schemas.TRANSFER_ACCEPT.read(call)["accept"]["auth_key"]
    transfer = call.services.transfers.accept(call.ctx, call.args["id"], key)
    return Answer(202, {"transfer": volume_views.transfer_brief(transfer, call.base)})
