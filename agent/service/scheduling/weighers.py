# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the pools that may hold a volume is the best: one table of numbers.

Each weigher's numbers are stretched to 0..1 over the pools at hand, so that a
multiplier means the same for all of them; the sum decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lunshare.agent.records import Pool
from lunshare.agent.service.scheduling.explanation import (
    PlacementRequest,
    WeigherResult,
)
from lunshare.agent.service.scheduling.filters import free_space

Weigher = Callable[[Pool, PlacementRequest], float]

#: The weighers by the option that holds their multiplier, without its ending.
CAPACITY = "capacity"
ALLOCATED = "allocated_capacity"


def weigh(
    pools: Sequence[Pool], wish: PlacementRequest, multipliers: Mapping[str, float]
) -> list[tuple[WeigherResult, ...]]:
    """The numbers of each pool, in the order of the pools."""
    columns = [
        _column(name, [ask(pool, wish) for pool in pools], multipliers.get(name, 0.0))
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


def _allocated(pool: Pool, wish: PlacementRequest) -> float:
    return float(pool.capabilities["allocated_capacity_gb"])


WEIGHERS: Mapping[str, Weigher] = {
    CAPACITY: free_space,  # GiB that may still be promised
    ALLOCATED: _allocated,  # GiB that volumes have already
}
