# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which pools can hold a volume: one table, one function for each filter.

A filter returns whether the pool passes, and why in half a sentence. Names are
Cinder's where Cinder has such a filter. Unlike Cinder's, the capacity filter also
checks whether a thin pool is physically full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from lunshare.agent.model.records import Pool, VolumeType
from lunshare.agent.service.scheduling import extra_specs, free_space
from lunshare.agent.service.scheduling.explanation import FilterResult, PlacementRequest

Result = tuple[bool, str]
Filter = Callable[[Pool, PlacementRequest], Result]

#: The filter after whose refusal the client may ask for less, or free some space.
CAPACITY = "CapacityFilter"


def run_filters(pool: Pool, request: PlacementRequest) -> tuple[FilterResult, ...]:
    """Run every filter, also after one that the pool does not pass."""
    return tuple(
        FilterResult(name, *ask(pool, request)) for name, ask in FILTERS.items()
    )


def unmet_specs(pool: Pool, volume_type: VolumeType | None) -> str | None:
    """Return the extra specs of the type that the pool does not meet, or None."""
    specs = volume_type.extra_specs if volume_type else {}
    return "; ".join(extra_specs.unmet(specs, pool.capabilities)) or None


def _backend(pool: Pool, request: PlacementRequest) -> Result:
    if request.only not in (None, pool.backend):
        return False, f"only backend {request.only} is possible: it has the bytes"
    if request.exclude == pool.backend:
        return False, "the volume is there, and leaves it"
    return True, "the request allows this backend"


def _same_backend(pool: Pool, request: PlacementRequest) -> Result:
    same = request.hints.same
    if same is None or pool.backend in same:
        return True, "the hint same_host allows it"
    return False, "it has none of the volumes of the hint same_host"


def _different_backend(pool: Pool, request: PlacementRequest) -> Result:
    if pool.backend not in request.hints.different:
        return True, "the hint different_host allows it"
    return False, "it has a volume of the hint different_host"


def _zone(pool: Pool, request: PlacementRequest) -> Result:
    if request.zone in (None, pool.zone):
        return True, f"it is in availability_zone {pool.zone}"
    return False, f"it is in availability_zone {pool.zone}, not {request.zone}"


def _service(pool: Pool, request: PlacementRequest) -> Result:
    if pool.enabled:
        return True, "its service is enabled"
    return False, "its service is disabled"


def _state(pool: Pool, request: PlacementRequest) -> Result:
    if pool.up:
        return True, "it is up"
    return False, f"it is down: {pool.problem}"


def _capabilities(pool: Pool, request: PlacementRequest) -> Result:
    why = unmet_specs(pool, request.volume_type)
    return why is None, why or "it meets the extra specs of the type"


def _sector(pool: Pool, request: PlacementRequest) -> Result:
    has = f"its disks have logical sectors of {pool.sector} bytes"
    if request.sector in (None, pool.sector):
        return True, has
    return False, (
        f"{has} and the volume's {request.sector}: hosts would find partitions and"
        " blocks elsewhere, so copy its files on a host instead"
    )


def _capacity(pool: Pool, request: PlacementRequest) -> Result:
    if pool.closed:
        return False, f"it is closed for new volumes: {pool.closed}"
    space = free_space.provisionable(pool, request.specs)
    if request.size <= space:
        return True, f"it has space for {_gib(space)}"
    if free_space.physical(pool) <= 0:
        reserve = free_space.reserve(pool)
        return False, f"it is physically full except for the reserve, {reserve} GiB"
    return False, f"it has space for {_gib(max(0.0, space))}, not {request.size}"


def _gib(space: float) -> str:
    return f"{math.floor(space)} GiB"


FILTERS: Mapping[str, Filter] = {
    "BackendFilter": _backend,
    "SameBackendFilter": _same_backend,
    "DifferentBackendFilter": _different_backend,
    "AvailabilityZoneFilter": _zone,
    "ServiceFilter": _service,
    "StateFilter": _state,
    "CapabilitiesFilter": _capabilities,
    "SectorSizeFilter": _sector,
    CAPACITY: _capacity,
}
