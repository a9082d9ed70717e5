# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the pools that pass the filters is the best: one table of weighers.

The values of each weigher are scaled to 0..1 over these pools, so that a multiplier
means the same for all weighers. The pool with the largest sum is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lunshare.agent.model.records import Pool
from lunshare.agent.service.scheduling import free_space
from lunshare.agent.service.scheduling.explanation import (
    PlacementRequest,
    WeigherResult,
)

Weigher = Callable[[Pool, PlacementRequest], float]

#: The weighers by the option that holds their multiplier, without its ending.
CAPACITY = "capacity"
ALLOCATED = "allocated_capacity"


def weigh(
    pools: Sequence[Pool], request: PlacementRequest, multipliers: Mapping[str, float]
) -> list[tuple[WeigherResult, ...]]:
    """Return the results of each pool, in the order of the pools."""
    columns = [
        _column(
            name, [ask(pool, request) for pool in pools], multipliers.get(name, 0.0)
        )
        for name, ask in WEIGHERS.items()
    ]
    return list(zip(*columns, strict=True))


def _column(
    name: str, values: Sequence[float], multiplier: float
) -> list[WeigherResult]:
    least, most = min(values, default=0.0), max(values, default=0.0)
    span = most - least
    return [
        WeigherResult(
            name,
            round(value, 2),
            multiplier,
            round((value - least) / span * multiplier if span else 0.0, 6),
        )
        for value in values
    ]


def _provisionable(pool: Pool, request: PlacementRequest) -> float:
    return free_space.provisionable(pool, request.specs)


def _allocated(pool: Pool, request: PlacementRequest) -> float:
    return float(pool.capabilities["allocated_capacity_gb"])


WEIGHERS: Mapping[str, Weigher] = {
    CAPACITY: _provisionable,  # GiB that may still be provisioned
    ALLOCATED: _allocated,  # GiB that volumes already have
}
