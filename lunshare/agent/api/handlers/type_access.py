# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Access of projects to private volume types, and default types of projects."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.views import operator_views
from lunshare.agent.model.errors import Invalid


def index(call: Call) -> Answer:
    """GET /types/{id}/os-volume-type-access: list the projects that may use a type"""
    type_id = call.args["id"]
    projects = call.services.type_access.projects(call.ctx, type_id)
    rows = [operator_views.type_access(type_id, project) for project in projects]
    return Answer(200, {"volume_type_access": rows})


def action(call: Call) -> Answer:
    """POST /types/{id}/action: let a project use a private type, or not"""
    body = schemas.TYPE_ACTION.read(call)
    (name,) = body
    project, type_id = body[name]["project"], call.args["id"]
    if not project.isprintable():
        raise Invalid(f"{name}.project: give the id of a project.")
    if name == "addProjectAccess":
        call.services.type_access.add(call.ctx, type_id, project)
    else:
        call.services.type_access.remove(call.ctx, type_id, project)
    return Answer(202)


def defaults(call: Call) -> Answer:
    """GET /default-types: list the default types of projects"""
    types = call.services.type_access.defaults(call.ctx)
    rows = [operator_views.default_type(*row) for row in types]
    return Answer(200, {"default_types": rows})


def default(call: Call) -> Answer:
    """GET /default-types/{id}: show the default type of a project"""
    project = call.args["id"]
    type_id = call.services.type_access.default_of(call.ctx, project)
    return Answer(200, {"default_type": operator_views.default_type(project, type_id)})


def set_default(call: Call) -> Answer:
    """PUT /default-types/{id}: set the default type of a project"""
    fields = schemas.DEFAULT_TYPE.read(call)["default_type"]
    project = call.args["id"]
    if not (project.isprintable() and len(project) <= 255):
        raise Invalid("The URL must name a project of at most 255 characters.")
    type_id = call.services.type_access.set_default(
        call.ctx, project, fields["volume_type"]
    )
    return Answer(200, {"default_type": operator_views.default_type(project, type_id)})


def unset_default(call: Call) -> Answer:
    """DELETE /default-types/{id}: forget the default type of a project"""
    call.services.type_access.unset_default(call.ctx, call.args["id"])
    return Answer(204)
