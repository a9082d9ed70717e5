# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""QoS specs, and the volume types that have them."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.requests import paging, query
from lunshare.agent.api.views import operator_views
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.qos_table import QosSpecs

_FILTERS = ("id", "name", "consumer")


def create(call: Call) -> Answer:
    """POST /qos-specs: create QoS specs"""
    asked = dict(schemas.QOS_CREATE.read(call)["qos_specs"])
    name = asked.pop("name").strip()
    return _one(call, call.services.qos.create(call.ctx, name, _texts(asked)))


def index(call: Call) -> Answer:
    """GET /qos-specs: list QoS specs"""
    page = paging.page(call)
    wanted = {key: call.query[key] for key in _FILTERS if key in call.query}
    found = [
        each
        for each in call.services.qos.list(call.ctx)
        if all(getattr(each, key) == text for key, text in wanted.items())
    ]
    rows = paging.cut(call, page, found, _FILTERS)
    body = {"qos_specs": [operator_views.qos(row) for row in rows]}
    return Answer(200, body | paging.more(call, "qos_specs", page, rows))


def show(call: Call) -> Answer:
    """GET /qos-specs/{id}: show QoS specs"""
    return _one(call, call.services.qos.get(call.ctx, call.args["id"]))


def update(call: Call) -> Answer:
    """PUT /qos-specs/{id}: add or replace specs"""
    asked = schemas.QOS_UPDATE.read(call)["qos_specs"]
    call.services.qos.update(call.ctx, call.args["id"], _texts(asked))
    return Answer(200, {"qos_specs": dict(asked)})


def delete(call: Call) -> Answer:
    """DELETE /qos-specs/{id}: delete QoS specs, with force=true also used ones"""
    force = query.flag(call.query, "force", False)
    call.services.qos.delete(call.ctx, call.args["id"], force)
    return Answer(202)


def delete_keys(call: Call) -> Answer:
    """PUT /qos-specs/{id}/delete_keys: delete some of the specs"""
    keys = schemas.QOS_KEYS.read(call)["keys"]
    call.services.qos.delete_keys(call.ctx, call.args["id"], keys)
    return Answer(202)


def associations(call: Call) -> Answer:
    """GET /qos-specs/{id}/associations: list the volume types that have these specs"""
    found = call.services.qos.associations(call.ctx, call.args["id"])
    rows = [operator_views.qos_association(*each) for each in found]
    return Answer(200, {"qos_associations": rows})


def associate(call: Call) -> Answer:
    """GET /qos-specs/{id}/associate: give these specs to the type vol_type_id"""
    call.services.qos.associate(call.ctx, call.args["id"], _type(call))
    return Answer(202)


def disassociate(call: Call) -> Answer:
    """GET /qos-specs/{id}/disassociate: take these specs from the type vol_type_id"""
    call.services.qos.disassociate(call.ctx, call.args["id"], _type(call))
    return Answer(202)


def disassociate_all(call: Call) -> Answer:
    """GET /qos-specs/{id}/disassociate_all: take these specs from all types"""
    call.services.qos.disassociate_all(call.ctx, call.args["id"])
    return Answer(202)


def _type(call: Call) -> str:
    found = call.query.get("vol_type_id")
    if not found:
        raise Invalid("vol_type_id is missing: give the id of a volume type.")
    return found


def _texts(asked: dict[str, object]) -> dict[str, str]:
    """Return numbers as texts: specs are stored as texts."""
    return {key: str(value) for key, value in asked.items()}


def _one(call: Call, found: QosSpecs) -> Answer:
    rest = f"{call.project}/qos-specs/{found.id}"
    links = [
        {"rel": "self", "href": f"{call.root}/v3{rest}"},
        {"rel": "bookmark", "href": f"{call.root}{rest}"},
    ]
    return Answer(200, {"qos_specs": operator_views.qos(found), "links": links})
