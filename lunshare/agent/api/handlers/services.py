# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Services and pools of the node, and why a volume is placed where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import microversions
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.api.requests import operator_schemas, query, schemas
from lunshare.agent.api.views import operator_views, placement_views, volume_views
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import Pool, VolumeType
from lunshare.agent.service.scheduling import filters

_SCHEDULER = "cinder-scheduler"


def index(call: Call) -> Answer:
    """GET /os-services: list the services of the node"""
    services = call.services.node.services(
        call.ctx, host=call.query.get("host"), binary=call.query.get("binary")
    )
    return Answer(
        200,
        {
            "services": [
                volume_views.service(service, call.version) for service in services
            ]
        },
    )


def enable(call: Call) -> Answer:
    """PUT /os-services/enable: let a backend receive new volumes"""
    return _set(call, schemas.SERVICE.read(call), enabled=True)


def disable(call: Call) -> Answer:
    """PUT /os-services/disable: let a backend receive no new volumes"""
    return _set(call, schemas.SERVICE.read(call), enabled=False)


def disable_with_reason(call: Call) -> Answer:
    """PUT /os-services/disable-log-reason: disable a backend, and store the reason"""
    return _set(call, schemas.SERVICE_REASON.read(call), enabled=False)


def freeze(call: Call) -> Answer:
    """PUT /os-services/freeze: delete nothing on a backend, and create nothing"""
    fields = operator_schemas.FREEZE.read(call)
    call.services.node.set_frozen(call.ctx, fields["host"], frozen=True)
    return Answer(200)


def thaw(call: Call) -> Answer:
    """PUT /os-services/thaw: end the freeze of a backend"""
    fields = operator_schemas.FREEZE.read(call)
    call.services.node.set_frozen(call.ctx, fields["host"], frozen=False)
    return Answer(200)


def fail_over(call: Call) -> Answer:
    """PUT /os-services/failover_host and /os-services/failover: 400, not supported"""
    fields = operator_schemas.FAILOVER.read(call)
    raise Invalid(
        f"host: {fields['host']} is not replicated, so it cannot fail over; attach its"
        " volumes where they are, or migrate them."
    )


def set_log(call: Call) -> Answer:
    """PUT /os-services/set-log: change log levels until the daemon ends"""
    fields = operator_schemas.SET_LOG.read(call)
    if _log_services(call, fields):
        levels = call.services.log_levels
        levels.set(call.ctx, fields.get("prefix") or "", fields["level"])
    return Answer(202)


def get_log(call: Call) -> Answer:
    """PUT /os-services/get-log: list log levels"""
    fields = operator_schemas.GET_LOG.read(call)
    levels = call.services.log_levels.get(call.ctx, fields.get("prefix") or "")
    services = _log_services(call, fields)
    rows = [operator_views.log_levels(*service, levels) for service in services]
    return Answer(200, {"log_levels": rows})


def _log_services(call: Call, fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return binary and host of the services that are meant.

    All of them are one process, the API too.
    """
    services = [(s.binary, s.host) for s in call.services.node.services(call.ctx)]
    node = next(host for binary, host in services if binary == _SCHEDULER)
    binary, server = fields.get("binary"), fields.get("server")
    return [
        (name, host)
        for name, host in [("cinder-api", node), *services]
        if binary in (None, "", "*", name) and (not server or server == host)
    ]


def _set(call: Call, fields: Mapping[str, str], enabled: bool) -> Answer:
    binary = fields.get("binary") or fields.get("service")
    if not binary:
        raise Invalid(
            "binary is missing: give the name of the service as os-services lists it."
        )
    state = call.services.node.set_service(
        call.ctx, fields["host"], binary, enabled, fields.get("disabled_reason")
    )
    return Answer(200, volume_views.changed_service(state))


def pools(call: Call) -> Answer:
    """GET /scheduler-stats/get_pools: list pools, with detail=true in full"""
    detail = query.flag(call.query, "detail", False)
    facts = {key: text for key, text in call.query.items() if key != "detail"}
    kind = _type(call, facts.pop("volume_type", None))
    rows = call.services.node.pools(call.ctx)
    if call.version >= microversions.POOL_FILTERS:
        rows = [pool for pool in rows if _matches(pool, facts)]
    fit = [pool for pool in rows if filters.unmet_specs(pool, kind) is None]
    return Answer(200, {"pools": volume_views.pools(fit, detail)})


def explain(call: Call) -> Answer:
    """POST /scheduler-stats/explain: why a pool would be chosen; creates nothing"""
    fields = schemas.EXPLAIN.read(call)["volume"]
    choice = call.services.scheduler.explain(
        call.ctx,
        query.gib("volume.size", fields["size"]),
        fields.get("volume_type") or None,
        fields.get("availability_zone") or None,
    )
    return Answer(200, {"explanation": placement_views.choice(choice)})


def capabilities(call: Call) -> Answer:
    """GET /capabilities/{host}: describe what volumes of a backend can do"""
    pool = call.services.node.pool(call.ctx, call.args["host"])
    return Answer(200, placement_views.capabilities(pool))


def _type(call: Call, ident: str | None) -> VolumeType | None:
    """Return the volume type that the query names, or None."""
    if ident is None:
        return None
    if call.version < microversions.POOL_TYPE_FILTER:
        raise Invalid("volume_type is a filter from 3.35 on: use name or a capability.")
    if not ident:
        raise NotFound("volume_type", ident)
    return call.services.types.resolve(call.ctx, ident)


def _matches(pool: Pool, facts: Mapping[str, str]) -> bool:
    """Return whether name and capabilities match the query, in any case."""
    own = {**pool.capabilities, "name": pool.name}
    return all(str(own.get(key)).lower() == text.lower() for key, text in facts.items())
