# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which pools may hold a volume: one table, one function for each question.

A filter answers whether, and why in half a sentence. Names are Cinder's where
Cinder has such a filter. Of capacity, Cinder does not ask whether a thin pool
is physically full; we do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from lunshare.agent.records import Pool, VolumeType
from lunshare.agent.service.scheduling import extra_specs
from lunshare.agent.service.scheduling.explanation import FilterResult, PlacementRequest

Answer = tuple[bool, str]
Filter = Callable[[Pool, PlacementRequest], Answer]

#: The filter whose refusal means: ask for less, or free something.
CAPACITY = "CapacityFilter"


def judge(pool: Pool, wish: PlacementRequest) -> tuple[FilterResult, ...]:
    """What every filter says; none is left out because another one refused."""
    return tuple(FilterResult(name, *ask(pool, wish)) for name, ask in FILTERS.items())


def unmet_specs(pool: Pool, kind: VolumeType | None) -> str | None:
    """What the type asks for and the pool has not, or None."""
    wanted = kind.extra_specs if kind else {}
    return "; ".join(extra_specs.unmet(wanted, pool.capabilities)) or None


def _backend(pool: Pool, wish: PlacementRequest) -> Answer:
    if wish.only not in (None, pool.backend):
        return False, f"only backend {wish.only} will do: it has the bytes"
    if wish.but == pool.backend:
        return False, "the volume is there, and is to leave it"
    return True, "no other backend is asked for"


def _zone(pool: Pool, wish: PlacementRequest) -> Answer:
    if wish.zone in (None, pool.zone):
        return True, f"it is in availability_zone {pool.zone}"
    return False, f"it is in availability_zone {pool.zone}, not {wish.zone}"


def _service(pool: Pool, wish: PlacementRequest) -> Answer:
    if pool.enabled:
        return True, "its service is enabled"
    return False, "its service is disabled"


def _state(pool: Pool, wish: PlacementRequest) -> Answer:
    if pool.up:
        return True, "it works"
    return False, f"it is down: {pool.problem}"


def _capabilities(pool: Pool, wish: PlacementRequest) -> Answer:
    why = unmet_specs(pool, wish.kind)
    return why is None, why or "it can do what the type asks for"


def _capacity(pool: Pool, wish: PlacementRequest) -> Answer:
    if pool.closed:
        return False, f"it takes nothing new: {pool.closed}"
    left = free_space(pool, wish)
    if wish.size <= left:
        return True, f"it has space for {_gib(left)}"
    if _free(pool) <= 0:
        return False, f"it is physically full but for the reserve, {_reserve(pool)} GiB"
    return False, f"it has space for {_gib(max(0.0, left))}, not {wish.size}"


def free_space(pool: Pool, wish: PlacementRequest | None = None) -> float:
    """GiB that may still be promised; none at all when the pool is physically full.

    A thin pool promises its ratio of the whole. A thick one, or one whose type
    wants thick volumes, promises what is free and has not been promised.
    """
    caps = pool.capabilities
    available = caps["total_capacity_gb"] - _reserve(pool)
    promised = caps["provisioned_capacity_gb"]
    if _free(pool) <= 0:
        return 0.0
    if is_thin(pool, wish):
        return float(available * caps["max_over_subscription_ratio"] - promised)
    return float(min(_free(pool), available - promised))


def is_thin(pool: Pool, wish: PlacementRequest | None) -> bool:
    """Whether the volume takes its room as it is written."""
    thick = wish is not None and wish.specs.get("provisioning:type") == "thick"
    return bool(pool.capabilities["thin_provisioning_support"]) and not thick


def _reserve(pool: Pool) -> int:
    caps = pool.capabilities
    part: float = caps["total_capacity_gb"] * caps["reserved_percentage"] / 100
    return math.floor(part)


def _free(pool: Pool) -> float:
    """Physical room in GiB beside the reserve."""
    return float(pool.capabilities["free_capacity_gb"] - _reserve(pool))


def _gib(left: float) -> str:
    return f"{math.floor(left)} GiB"


FILTERS: Mapping[str, Filter] = {
    "BackendFilter": _backend,
    "AvailabilityZoneFilter": _zone,
    "ServiceFilter": _service,
    "StateFilter": _state,
    "CapabilitiesFilter": _capabilities,
    CAPACITY: _capacity,
}
