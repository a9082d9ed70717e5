# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The metadata of a snapshot, as a resource of its own."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import metadata_schemas
from lunshare.agent.model.errors import Invalid, NotFound


def index(call: Call) -> Answer:
    """GET /snapshots/{id}/metadata: show all metadata"""
    return _all(_metadata(call))


def merge(call: Call) -> Answer:
    """POST /snapshots/{id}/metadata: add or replace items"""
    metadata = metadata_schemas.METADATA.read(call)["metadata"]
    return _all(_change(call, metadata, keep=True))


def replace(call: Call) -> Answer:
    """PUT /snapshots/{id}/metadata: replace all metadata"""
    metadata = metadata_schemas.METADATA.read(call)["metadata"]
    return _all(_change(call, metadata, keep=False))


def show(call: Call) -> Answer:
    """GET /snapshots/{id}/metadata/{key}: show one item"""
    key, metadata = call.args["key"], _metadata(call)
    if key not in metadata:
        raise NotFound("metadata item", key[:64])
    return Answer(200, {"meta": {key: metadata[key]}})


def update(call: Call) -> Answer:
    """PUT /snapshots/{id}/metadata/{key}: add or replace one item"""
    metadata = metadata_schemas.METADATA_ITEM.read(call)["meta"]
    key = call.args["key"]
    if key not in metadata:
        raise Invalid(f"meta: give the key of the URL, {key[:64]}, and no other.")
    _change(call, metadata, keep=True)
    return Answer(200, {"meta": metadata})


def delete(call: Call) -> Answer:
    """DELETE /snapshots/{id}/metadata/{key}: delete one item"""
    call.services.snapshots.delete_metadata(call.ctx, call.args["id"], call.args["key"])
    return Answer(200)


def _metadata(call: Call) -> dict[str, str]:
    return dict(call.services.snapshots.get(call.ctx, call.args["id"]).metadata)


def _change(call: Call, metadata: dict[str, str], keep: bool) -> dict[str, str]:
    snapshot = call.services.snapshots.change_metadata(
        call.ctx, call.args["id"], metadata, keep
    )
    return dict(snapshot.metadata)


def _all(metadata: dict[str, str]) -> Answer:
    return Answer(200, {"metadata": metadata})
