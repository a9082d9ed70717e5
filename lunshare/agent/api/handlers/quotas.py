# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas of projects and of the class of every project; limits as clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.requests import query
from lunshare.agent.api.views import operator_views
from lunshare.agent.model.errors import Forbidden, Invalid

_MAX = 2**31 - 1
_NAME_MAX = 255
#: Keys of a quota set that are not quotas.
_OTHER_KEYS = ("tenant_id", "id")


def show(call: Call) -> Answer:
    """GET /os-quota-sets/{id}: show the quotas of a project, with usage=true in full"""
    project = call.args["id"]
    if not call.ctx.sees(project):
        raise Forbidden("volume_extension:quotas:show")
    quotas = call.services.quotas.show(call.ctx, project)
    if query.flag(call.query, "usage", False):
        return Answer(200, {"quota_set": operator_views.quota_usage(quotas, project)})
    return Answer(200, {"quota_set": operator_views.quotas(quotas, project)})


def defaults(call: Call) -> Answer:
    """GET /os-quota-sets/{id}/defaults: show the quotas without those of the project"""
    quotas = call.services.quotas.defaults(call.ctx)
    return Answer(200, {"quota_set": operator_views.quotas(quotas, call.args["id"])})


def update(call: Call) -> Answer:
    """PUT /os-quota-sets/{id}: change quotas of a project"""
    fields = schemas.QUOTA_SET.read(call)["quota_set"]
    name, new = _name(call), _limits("quota_set", fields)
    quotas = call.services.quotas.update(call.ctx, name, new)
    return Answer(200, {"quota_set": operator_views.quotas(quotas)})


def delete(call: Call) -> Answer:
    """DELETE /os-quota-sets/{id}: give a project the default quotas again"""
    call.services.quotas.delete(call.ctx, call.args["id"])
    return Answer(200)


def show_class(call: Call) -> Answer:
    """GET /os-quota-class-sets/{id}: show the quotas of a class"""
    name = call.args["id"]
    quotas = call.services.quotas.show_class(call.ctx, name)
    return Answer(200, {"quota_class_set": operator_views.quotas(quotas, name)})


def update_class(call: Call) -> Answer:
    """PUT /os-quota-class-sets/{id}: change quotas of a class"""
    fields = schemas.QUOTA_CLASS_SET.read(call)["quota_class_set"]
    name, new = _name(call), _limits("quota_class_set", fields)
    quotas = call.services.quotas.update_class(call.ctx, name, new)
    return Answer(200, {"quota_class_set": operator_views.quotas(quotas)})


def limits(call: Call) -> Answer:
    """GET /limits: show the quotas of the own project, and what it uses"""
    project = call.ctx.project_id
    if call.version >= microversions.LIMITS_OF_PROJECT and call.ctx.is_admin:
        project = call.query.get("project_id", call.query.get("tenant_id", project))
    quotas = call.services.quotas.show(call.ctx, project)
    with_use = call.shows("limits_extension:used_limits")
    absolute = operator_views.limits(quotas, with_use)
    return Answer(200, {"limits": {"rate": [], "absolute": absolute}})


def _name(call: Call) -> str:
    """Return the project or class of the path, which becomes a column."""
    name = call.args["id"]
    if not (name.isprintable() and 0 < len(name) <= _NAME_MAX):
        raise Invalid(f"The URL must name 1 to {_NAME_MAX} printable characters.")
    return name


def _limits(field: str, fields: Mapping[str, Any]) -> dict[str, int]:
    return {
        key: _limit(f"{field}.{key[:64]}", value)
        for key, value in fields.items()
        if key not in _OTHER_KEYS
    }


def _limit(field: str, value: int | str) -> int:
    """Parse a limit: a whole number, or its digits as a text."""
    text = str(value)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        number = int(text)
        if -1 <= number <= _MAX:
            return number
    raise Invalid(f"{field}: give a whole number, -1 (no limit) to {_MAX}.")
