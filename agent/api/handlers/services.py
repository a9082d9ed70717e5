# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Services and pools of the node, and why a volume is placed where it is."""

from __future__ import annotations

from collections.abc import Mapping

from lunshare.agent.api import microversions, placement_views, query, schemas, views
from lunshare.agent.api.exchange import Answer, Call
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import Pool, VolumeType
from lunshare.agent.service.scheduling import filters


def index(call: Call) -> Answer:
    """GET /os-services: list the services of the node"""
    found = call.services.node.services(
        call.ctx, host=call.query.get("host"), binary=call.query.get("binary")
    )
    return Answer(
        200, {"services": [views.service(line, call.version) for line in found]}
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


def _set(call: Call, asked: Mapping[str, str], enabled: bool) -> Answer:
    binary = asked.get("binary") or asked.get("service")
    if not binary:
        raise Invalid(
            "binary is missing: give the name of the service as os-services lists it."
        )
    state = call.services.node.set_service(
        call.ctx, asked["host"], binary, enabled, asked.get("disabled_reason")
    )
    return Answer(200, views.changed_service(state))


def pools(call: Call) -> Answer:
    """GET /scheduler-stats/get_pools: list pools, with detail=true in full"""
    detail = query.flag(call.query, "detail", False)
    asked = {key: text for key, text in call.query.items() if key != "detail"}
    kind = _type(call, asked.pop("volume_type", None))
    found = call.services.node.pools(call.ctx)
    if call.version >= microversions.POOL_FILTERS:
        found = [pool for pool in found if _matches(pool, asked)]
    fit = [pool for pool in found if filters.unmet_specs(pool, kind) is None]
    return Answer(200, {"pools": views.pools(fit, detail)})


def explain(call: Call) -> Answer:
    """POST /scheduler-stats/explain: why a pool would be chosen; creates nothing"""
    asked = schemas.EXPLAIN.read(call)["volume"]
    choice = call.services.scheduler.explain(
        call.ctx,
        query.gib("volume.size", asked["size"]),
        asked.get("volume_type") or None,
        asked.get("availability_zone") or None,
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
    return call.services.types.resolve(ident)


def _matches(pool: Pool, wanted: Mapping[str, str]) -> bool:
    """Return whether name and capabilities match the query, in any case."""
    facts = {**pool.capabilities, "name": pool.name}
    return all(
        str(facts.get(key)).lower() == text.lower() for key, text in wanted.items()
    )
