# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The encryption of volume types. Volumes of an encrypted type can not be created.

A type has one encryption at most, so its id in a path is not read, as in Cinder:
clients send the word "provider" there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.requests import query
from lunshare.agent.api.views import type_views
from lunshare.agent.model.errors import NotFound

_KEY_SIZE, _BITS_MAX = "encryption.key_size", 2**31 - 1
_NAMES = ("provider", "control_location", "cipher", "key_size")


def index(call: Call) -> Answer:
    """GET /types/{id}/encryption: show the encryption of a type; empty without one"""
    return Answer(200, _shown(call))


def create(call: Call) -> Answer:
    """POST /types/{id}/encryption: encrypt a type that no volume uses"""
    fields = _fields(schemas.ENCRYPTION_CREATE.read(call)["encryption"])
    encryption = call.services.type_encryption.create(
        call.ctx,
        call.args["id"],
        provider=fields["provider"],
        control_location=fields["control_location"],
        cipher=fields.get("cipher"),
        key_size=fields.get("key_size"),
    )
    ids = {
        "volume_type_id": encryption.volume_type_id,
        "encryption_id": encryption.encryption_id,
    }
    return Answer(200, {"encryption": {**fields, **ids}})


def show(call: Call) -> Answer:
    """GET /types/{id}/encryption/{key}: show one field of the encryption"""
    key, fields = call.args["key"], _shown(call)
    if key not in fields:
        raise NotFound("encryption field", key)
    return Answer(200, {key: fields[key]})


def update(call: Call) -> Answer:
    """PUT /types/{id}/encryption/{key}: change the encryption of an unused type"""
    fields = _fields(schemas.ENCRYPTION_UPDATE.read(call)["encryption"])
    call.services.type_encryption.update(call.ctx, call.args["id"], fields)
    return Answer(200, {"encryption": fields})


def delete(call: Call) -> Answer:
    """DELETE /types/{id}/encryption/{key}: delete the encryption of an unused type"""
    call.services.type_encryption.delete(call.ctx, call.args["id"])
    return Answer(202)


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are stored; Cinder's clients may send others."""
    fields = {key: body[key] for key in _NAMES if key in body}
    if fields.get("key_size") is not None:
        bits = {_KEY_SIZE: str(fields["key_size"])}
        fields["key_size"] = query.number(bits, _KEY_SIZE, 0, _BITS_MAX)
    return fields


def _shown(call: Call) -> type_views.View:
    encryption = call.services.type_encryption.get(call.ctx, call.args["id"])
    return type_views.encryption(encryption) if encryption else {}
