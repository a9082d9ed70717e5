# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts that are fenced: what a cluster does to a node that no longer answers."""

from __future__ import annotations

from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import paging, query, schemas
from lunshare.agent.api.views import operator_views
from lunshare.agent.service.attachments.fencing import HostFence


def index(call: Call) -> Answer:
    """GET /lunshare/fences: list the hosts that are fenced, with the proof"""
    parameters = query.only(call.query, "limit", "marker")
    limit = paging.limit(parameters, call.settings.max_limit)
    fences = call.services.fences.list(call.ctx, limit, parameters.get("marker"))
    body = {"fences": [operator_views.fence(fence) for fence in fences]}
    return Answer(200, body | paging.more(call, "fences", fences, "host"))


def show(call: Call) -> Answer:
    """GET /lunshare/fences/{host}: show whether a host is fenced, with the proof"""
    return _one(200, call.services.fences.show(call.ctx, call.args["host"]))


def fence(call: Call) -> Answer:
    """PUT /lunshare/fences/{host}: take the access of a host to every volume"""
    fields = schemas.FENCE.read(call)["fence"]
    writes_only = fields.get("writes_only", False)
    shown = call.services.fences.fence(call.ctx, call.args["host"], writes_only)
    return _one(200 if shown.status == "fenced" else 202, shown)


def unfence(call: Call) -> Answer:
    """DELETE /lunshare/fences/{host}: give a host back what its attachments ask for"""
    shown = call.services.fences.unfence(call.ctx, call.args["host"])
    return _one(200 if shown.status == "unfenced" else 202, shown)


def _one(status: int, shown: HostFence) -> Answer:
    return Answer(status, {"fence": operator_views.fence(shown)})
