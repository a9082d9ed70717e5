# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pool stats: what a backend reports to schedulers, with the keys of Cinder's drivers.

All of it is from the backend's last check. Nothing here reads storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lunshare.agent.backends import NodeBackend
from lunshare.agent.records import Pool
from lunshare.drivers import backend_stats
from lunshare.drivers.values import Capacity

_UNCHECKED = Capacity(total=0, free=0, provisioned=0, thin=False)

#: What Cinder's scheduler stores of a backend beside its pools.
_OF_BACKEND = (
    "volume_backend_name",
    "vendor_name",
    "driver_version",
    "storage_protocol",
    "shared_targets",
    "sparse_copy_volume",
    "replication_enabled",
)


def pool_name(backend: NodeBackend) -> str:
    """Return the part after the # in host@backend#pool."""
    return str(backend.options.get("volume_backend_name") or backend.name)


def capabilities(
    backend: NodeBackend, volumes_here: int, provisioned_gib: int
) -> dict[str, Any]:
    """Return the stats of one pool; sizes are GiB."""
    checked, driver = backend.capacity or _UNCHECKED, backend.driver
    name = pool_name(backend)
    of_pool = backend_stats.of_pool(driver, checked, backend.wipes)
    provisioned = max(of_pool["provisioned_capacity_gb"], float(provisioned_gib))
    return {
        **of_pool,
        **backend_stats.OF_VENDOR,
        "volume_backend_name": name,
        "pool_name": name,
        "provisioned_capacity_gb": provisioned,
        "allocated_capacity_gb": provisioned_gib,
        "reserved_percentage": backend.options["reserved_percentage"],
        "max_over_subscription_ratio": backend.options["max_over_subscription_ratio"],
        "total_volumes": volumes_here,
        "location_info": f"lunshare:{backend.name}",
        "backend_state": "up" if backend.up else "down",
        "state_reason": backend.problem or checked.closed or None,
        "timestamp": datetime.fromtimestamp(backend.checked_at, UTC)
        .replace(tzinfo=None)
        .isoformat(),
    }


def for_scheduler(pool: Pool) -> dict[str, Any]:
    """Return the pool as Cinder's scheduler reads it: a backend with one pool.

    A pool that must not be chosen reports that it has no space.
    """
    caps = dict(pool.capabilities)
    # Cinder puts the time of the message here, and compares it with its own.
    del caps["timestamp"]
    if pool.problem or pool.closed or not pool.enabled or _is_full(caps):
        caps |= backend_stats.without_space(caps, caps["max_over_subscription_ratio"])
    return {**{key: caps[key] for key in _OF_BACKEND}, "pools": [caps]}


def _is_full(caps: Mapping[str, Any]) -> bool:
    reserve = caps["total_capacity_gb"] * caps["reserved_percentage"] / 100
    return bool(caps["free_capacity_gb"] <= reserve)
