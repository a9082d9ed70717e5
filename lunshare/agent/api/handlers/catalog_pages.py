# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What clients ask before they start: zones, hosts, extensions, filters, clusters."""

from __future__ import annotations

from lunshare.agent.api import catalog
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas as schemas
from lunshare.agent.api.requests import resource_filters
from lunshare.agent.api.views import operator_views
from lunshare.agent.model.errors import NotFound


def zones(call: Call) -> Answer:
    """GET /os-availability-zone: list the availability zone of this node"""
    open_ = any(line.enabled for line in call.services.node.services(call.ctx))
    zone = operator_views.zone(call.services.node.zone, open_)
    return Answer(200, {"availabilityZoneInfo": [zone]})


def hosts(call: Call) -> Answer:
    """GET /os-hosts: list the services by host"""
    services = call.services.node.services(call.ctx)
    return Answer(
        200, {"hosts": [operator_views.service_host(row) for row in services]}
    )


def host(call: Call) -> Answer:
    """GET /os-hosts/{id}: show what each project has on a backend"""
    name = call.args["id"]
    totals = call.services.node.totals(call.ctx, name)
    sums = [sum(counts[column] for _, counts in totals) for column in range(4)]
    rows = [operator_views.host_totals(name, "(total)", sums)]
    rows += [operator_views.host_totals(name, *row) for row in totals]
    return Answer(200, {"host": [{"resource": row} for row in rows]})


def extensions(call: Call) -> Answer:
    """GET /extensions: list the extensions of the API"""
    rows = [operator_views.extension(*names) for names in catalog.EXTENSIONS]
    return Answer(200, {"extensions": rows})


def extension(call: Call) -> Answer:
    """GET /extensions/{id}: show one extension of the API"""
    for names in catalog.EXTENSIONS:
        if names[0] == call.args["id"]:
            return Answer(200, {"extension": operator_views.extension(*names)})
    raise NotFound("extension", call.args["id"])


def filters(call: Call) -> Answer:
    """GET /resource_filters: list the filters of lists, by resource"""
    name = call.query.get("resource")
    rows = [
        {"resource": resource, "filters": list(keys)}
        for resource, keys in resource_filters.FILTERS.items()
        if name in (None, resource)
    ]
    return Answer(200, {"resource_filters": rows})


def clusters(call: Call) -> Answer:
    """GET /clusters and /clusters/detail: list clusters; a node is in none"""
    return Answer(200, {"clusters": []})


def cluster(call: Call) -> Answer:
    """GET /clusters/{id}: 404, because a node is in no cluster"""
    raise NotFound("cluster", call.args["id"])


def enable_cluster(call: Call) -> Answer:
    """PUT /clusters/enable: 404, because a node is in no cluster"""
    raise NotFound("cluster", schemas.ENABLE_CLUSTER.read(call)["name"])


def disable_cluster(call: Call) -> Answer:
    """PUT /clusters/disable: 404, because a node is in no cluster"""
    raise NotFound("cluster", schemas.DISABLE_CLUSTER.read(call)["name"])


def clean_up(call: Call) -> Answer:
    """POST /workers/cleanup: nothing to do; a restart continues what was stopped"""
    schemas.CLEANUP.read(call)
    return Answer(202, {"cleaning": [], "unavailable": []})
