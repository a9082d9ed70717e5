# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume types and their extra specs."""

from __future__ import annotations

from collections.abc import Mapping

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging, query, schemas
from lunshare.agent.api.views import type_views
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import VolumeType

_PUBLIC = "os-volume-type-access:is_public"
_RULE_OF_FIELD = {
    "extra_specs": "volume_extension:access_types_extra_specs",
    "qos_specs_id": "volume_extension:access_types_qos_specs_id",
    _PUBLIC: "volume_extension:volume_type_access",
}


def create(call: Call) -> Answer:
    """POST /types: create a volume type"""
    fields = schemas.TYPE_CREATE.read(call)["volume_type"]
    created = call.services.types.create(
        call.ctx,
        name=fields["name"].strip(),
        description=fields.get("description"),
        is_public=query.boolean(_PUBLIC, str(fields.get(_PUBLIC, True))),
        extra_specs=fields.get("extra_specs") or {},
    )
    return Answer(200, {"volume_type": type_views.created_type(_view(call, created))})


def index(call: Call) -> Answer:
    """GET /types: list volume types"""
    types = call.services.types.list(
        call.ctx, is_public=is_public(call.query), extra_specs=_wanted_specs(call)
    )
    name = call.query.get("name")
    page = paging.page(call)
    rows = paging.cut(call, page, [t for t in types if name in (None, t.name)])
    body = {"volume_types": [_view(call, row) for row in rows]}
    return Answer(200, body | paging.more(call, "volume_type", rows))


def show(call: Call) -> Answer:
    """GET /types/{id}: show one volume type"""
    return _one(call, call.services.types.get(call.ctx, call.args["id"]))


def default(call: Call) -> Answer:
    """GET /types/default: show the default volume type"""
    own = call.version >= microversions.DEFAULT_TYPES
    return _one(call, call.services.types.default(call.ctx, of_project=own))


def update(call: Call) -> Answer:
    """PUT /types/{id}: change a volume type"""
    fields = schemas.TYPE_UPDATE.read(call)["volume_type"]
    changes = {key: fields[key] for key in ("name", "description") if key in fields}
    name = changes.pop("name", None)
    if name is not None:
        changes["name"] = name.strip()
    for key in ("is_public", _PUBLIC):
        if key in fields:
            changes["is_public"] = query.boolean(key, str(fields[key]))
    changed = call.services.types.update(call.ctx, call.args["id"], changes)
    return Answer(200, {"volume_type": type_views.changed_type(_view(call, changed))})


def delete(call: Call) -> Answer:
    """DELETE /types/{id}: delete a volume type that no volume uses"""
    call.services.types.delete(call.ctx, call.args["id"])
    return Answer(202)


def specs(call: Call) -> Answer:
    """GET /types/{id}/extra_specs: list the extra specs of a type"""
    return Answer(200, {"extra_specs": dict(_specs(call))})


def set_specs(call: Call) -> Answer:
    """POST /types/{id}/extra_specs: add or replace extra specs"""
    extra_specs = schemas.SPECS_CREATE.read(call)["extra_specs"]
    call.services.types.set_specs(call.ctx, call.args["id"], extra_specs)
    return Answer(200, {"extra_specs": extra_specs})


def spec(call: Call) -> Answer:
    """GET /types/{id}/extra_specs/{key}: show one extra spec"""
    key, extra_specs = call.args["key"], _specs(call)
    if key not in extra_specs:
        raise NotFound("extra spec", key)
    return Answer(200, {key: extra_specs[key]})


def set_spec(call: Call) -> Answer:
    """PUT /types/{id}/extra_specs/{key}: replace one extra spec"""
    extra_specs = schemas.SPEC_UPDATE.read(call)
    if call.args["key"] not in extra_specs:
        raise Invalid("The body: give one extra spec, under the key of the URL.")
    call.services.types.set_specs(call.ctx, call.args["id"], extra_specs)
    return Answer(200, extra_specs)


def delete_spec(call: Call) -> Answer:
    """DELETE /types/{id}/extra_specs/{key}: delete one extra spec"""
    call.services.types.delete_spec(call.ctx, call.args["id"], call.args["key"])
    return Answer(202)


def is_public(parameters: Mapping[str, str]) -> bool | None:
    """Return which types to list: public ones by default, all of them for ``none``."""
    if parameters.get("is_public", "").strip().lower() == "none":
        return None
    return query.flag(parameters, "is_public", True)


def _wanted_specs(call: Call) -> dict[str, str]:
    text = call.query.get("extra_specs")
    if text is None or call.version < microversions.TYPE_SPEC_FILTER:
        return {}
    return query.mapping("extra_specs", text)


def _specs(call: Call) -> Mapping[str, str]:
    volume_type = call.services.types.get(call.ctx, call.args["id"])
    return type_views.visible_specs(volume_type.extra_specs, _sees_all(call))


def _sees_all(call: Call) -> bool:
    return call.shows("volume_extension:types_extra_specs:read_sensitive")


def _view(call: Call, volume_type: VolumeType) -> type_views.View:
    """Return the view without what this client may not see."""
    view = type_views.volume_type(volume_type, _sees_all(call))
    for key, rule in _RULE_OF_FIELD.items():
        if not call.shows(rule):
            view.pop(key)
    return view


def _one(call: Call, volume_type: VolumeType) -> Answer:
    return Answer(200, {"volume_type": _view(call, volume_type)})
