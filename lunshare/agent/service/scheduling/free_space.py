# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How much space a pool has for volumes, from the capabilities that it reports. GiB."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lunshare.agent.model.records import Pool

_NO_SPECS: Mapping[str, str] = {}


def provisionable(pool: Pool, specs: Mapping[str, str] = _NO_SPECS) -> float:
    """Return how many GiB may still be provisioned; 0 when it is physically full.

    ``specs`` are the extra specs of the volume's type. A thin pool provisions its
    total times max_over_subscription_ratio. A thick pool, or a thick volume in a thin
    one, gets what is free and not provisioned.
    """
    caps = pool.capabilities
    available = caps["total_capacity_gb"] - reserve(pool)
    provisioned = caps["provisioned_capacity_gb"]
    if physical(pool) <= 0:
        return 0.0
    if _is_thin(pool, specs):
        return float(available * caps["max_over_subscription_ratio"] - provisioned)
    return float(min(physical(pool), available - provisioned))


def reserve(pool: Pool) -> int:
    """Return the GiB that no new volume gets."""
    caps = pool.capabilities
    part: float = caps["total_capacity_gb"] * caps["reserved_percentage"] / 100
    return math.floor(part)


def physical(pool: Pool) -> float:
    """Return the physical free space without the reserve."""
    return float(pool.capabilities["free_capacity_gb"] - reserve(pool))


def _is_thin(pool: Pool, specs: Mapping[str, str]) -> bool:
    """Whether the volume uses space only as it is written."""
    thick = specs.get("provisioning:type") == "thick"
    return bool(pool.capabilities["thin_provisioning_support"]) and not thick
