# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The metadata of a volume, as a resource of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.faults import Fault
from lunshare.agent.api.requests import metadata_schemas
from lunshare.agent.model.errors import Invalid, NotFound

Metadata = Mapping[str, str]


def index(call: Call) -> Answer:
    """GET /volumes/{id}/metadata: show all metadata, with an ETag from 3.15 on"""
    metadata = call.services.volumes.get(call.ctx, call.args["id"]).metadata
    tagged = call.version >= microversions.METADATA_ETAG
    headers = {"ETag": f'"{_etag(metadata)}"'} if tagged else {}
    return Answer(200, {"metadata": dict(metadata)}, headers)


def encryption(call: Call) -> Answer:
    """GET /volumes/{id}/encryption: show that a volume is not encrypted"""
    call.services.volumes.get(call.ctx, call.args["id"])
    return Answer(200, {"encryption_key_id": None})


def merge(call: Call) -> Answer:
    """POST /volumes/{id}/metadata: add or replace items"""
    items = metadata_schemas.METADATA.read(call)["metadata"]
    return Answer(
        200, {"metadata": _change(call, lambda metadata: {**metadata, **items})}
    )


def replace(call: Call) -> Answer:
    """PUT /volumes/{id}/metadata: replace all metadata"""
    items = metadata_schemas.METADATA.read(call)["metadata"]
    return Answer(200, {"metadata": _change(call, lambda metadata: items)})


def show(call: Call) -> Answer:
    """GET /volumes/{id}/metadata/{key}: show one item"""
    key = call.args["key"]
    metadata = call.services.volumes.get(call.ctx, call.args["id"]).metadata
    _require(metadata, key)
    return Answer(200, {"meta": {key: metadata[key]}})


def update(call: Call) -> Answer:
    """PUT /volumes/{id}/metadata/{key}: add or replace one item"""
    items = metadata_schemas.METADATA_ITEM.read(call)["meta"]
    key = call.args["key"]
    if key not in items:
        raise Invalid(f"meta: give the key of the URL, {key[:64]}, and no other.")
    _change(call, lambda metadata: {**metadata, **items})
    return Answer(200, {"meta": items})


def delete(call: Call) -> Answer:
    """DELETE /volumes/{id}/metadata/{key}: delete one item"""
    key = call.args["key"]

    def without(metadata: Metadata) -> Metadata:
        _require(metadata, key)
        return {name: value for name, value in metadata.items() if name != key}

    _change(call, without)
    return Answer(200)


def _change(call: Call, change: Callable[[Metadata], Metadata]) -> dict[str, Any]:
    """Write what ``change`` returns for the present metadata, if If-Match allows it."""

    def checked(metadata: Metadata) -> Metadata:
        _check_match(call, metadata)
        return change(metadata)

    changed = call.services.metadata.change(call.ctx, call.args["id"], checked)
    return dict(changed)


def _check_match(call: Call, metadata: Metadata) -> None:
    if call.if_match is None or call.version < microversions.METADATA_ETAG:
        return
    tags = [tag.strip().strip('"') for tag in call.if_match.split(",")]
    if "*" not in tags and _etag(metadata) not in tags:
        raise Fault(412, "If-Match: the metadata has changed since; read it again.")


def _etag(metadata: Metadata) -> str:
    body = orjson.dumps({"metadata": dict(metadata)})
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def _require(metadata: Metadata, key: str) -> None:
    if key not in metadata:
        raise NotFound("metadata item", key[:64])
