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
    fields = dict(schemas.QOS_CREATE.read(call)["qos_specs"])
    name = fields.pop("name").strip()
    return _one(call, call.services.qos.create(call.ctx, name, _texts(fields)))


def index(call: Call) -> Answer:
    """GET /qos-specs: list QoS specs"""
    page = paging.page(call)
    conditions = {key: call.query[key] for key in _FILTERS if key in call.query}
    specs = [
        row
        for row in call.services.qos.list(call.ctx)
        if all(getattr(row, key) == text for key, text in conditions.items())
    ]
    rows = paging.cut(call, page, specs, _FILTERS)
    body = {"qos_specs": [operator_views.qos(row) for row in rows]}
    return Answer(200, body | paging.more(call, "qos_specs", rows))


def show(call: Call) -> Answer:
    """GET /qos-specs/{id}: show QoS specs"""
    return _one(call, call.services.qos.get(call.ctx, call.args["id"]))


def update(call: Call) -> Answer:
    """PUT /qos-specs/{id}: add or replace specs"""
    fields = schemas.QOS_UPDATE.read(call)["qos_specs"]
    call.services.qos.update(call.ctx, call.args["id"], _texts(fields))
    return Answer(200, {"qos_specs": dict(fields)})


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
    types = call.services.qos.associations(call.ctx, call.args["id"])
    rows = [operator_views.qos_association(*names) for names in types]
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
    type_id = call.query.get("vol_type_id")
    if not type_id:
        raise Invalid("vol_type_id is missing: give the id of a volume type.")
    return type_id


def _texts(fields: dict[str, object]) -> dict[str, str]:
    """Return numbers as texts: specs are stored as texts."""
    return {key: str(value) for key, value in fields.items()}


def _one(call: Call, specs: QosSpecs) -> Answer:
    path = f"{call.project}/qos-specs/{specs.id}"
    links = [
        {"rel": "self", "href": f"{call.root}/v3{path}"},
        {"rel": "bookmark", "href": f"{call.root}{path}"},
    ]
    return Answer(200, {"qos_specs": operator_views.qos(specs), "links": links})
