# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Actions on a snapshot, and its metadata."""

from __future__ import annotations

from typing import Any

from lunshare.agent.api import operator_schemas as schemas
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.states import SnapshotStatus


def action(call: Call) -> Answer:
    """POST /snapshots/{id}/action: set the status, delete in any status, unmanage"""
    body = schemas.SNAPSHOT_ACTION.read(call)
    ((name, asked),) = body.items()
    statuses, ident = call.services.snapshot_statuses, call.args["id"]
    if name == "os-reset_status":
        statuses.reset(call.ctx, ident, SnapshotStatus(asked["status"]))
    elif name == "os-force_delete":
        statuses.force_delete(call.ctx, ident)
    elif name == "os-update_snapshot_status":
        new = SnapshotStatus(asked["status"])
        statuses.update(call.ctx, ident, new, asked.get("progress"))
    else:
        call.services.snapshots.get(call.ctx, ident)
        raise Invalid(
            f"os-unmanage: the backend of snapshot {ident} can not unmanage a snapshot;"
            " keep it, or delete it."
        )
    return Answer(202)


def index(call: Call) -> Answer:
    """GET /snapshots/{id}/metadata: list the metadata of a snapshot"""
    return _all(_metadata(call))


def add(call: Call) -> Answer:
    """POST /snapshots/{id}/metadata: add or replace some of the metadata"""
    given = schemas.SNAPSHOT_METADATA.read(call)["metadata"]
    return _all(_change(call, {**given}, keep=True))


def replace_all(call: Call) -> Answer:
    """PUT /snapshots/{id}/metadata: replace all of the metadata"""
    given = schemas.SNAPSHOT_METADATA.read(call)["metadata"]
    return _all(_change(call, {**given}, keep=False))


def show(call: Call) -> Answer:
    """GET /snapshots/{id}/metadata/{key}: show one item of the metadata"""
    return _item(call, _metadata(call))


def replace(call: Call) -> Answer:
    """PUT /snapshots/{id}/metadata/{key}: replace one item of the metadata"""
    given = schemas.SNAPSHOT_META.read(call)["meta"]
    if call.args["key"] not in given:
        raise Invalid("meta: give one item, under the key of the URL.")
    return _item(call, _change(call, given, keep=True))


def delete(call: Call) -> Answer:
    """DELETE /snapshots/{id}/metadata/{key}: delete one item of the metadata"""
    call.services.snapshots.delete_metadata(call.ctx, call.args["id"], call.args["key"])
    return Answer(200)


def _metadata(call: Call) -> dict[str, str]:
    return dict(call.services.snapshots.get(call.ctx, call.args["id"]).metadata)


def _change(call: Call, given: dict[str, str], keep: bool) -> dict[str, str]:
    found = call.services.snapshots.change_metadata(
        call.ctx, call.args["id"], given, keep
    )
    return dict(found.metadata)


def _all(found: Any) -> Answer:
    return Answer(200, {"metadata": found})


def _item(call: Call, found: dict[str, str]) -> Answer:
    key = call.args["key"]
    one = {name: text for name, text in found.items() if name == key}
    if not one:
        raise NotFound("metadata of the snapshot:", key)
    return Answer(200, {"meta": one})
