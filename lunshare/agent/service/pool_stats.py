# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pool stats: what schedulers read of a backend, with the keys of Cinder's drivers.

All of it is from the backend's last check. Nothing here reads storage.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lunshare.agent.backends import NodeBackend
from lunshare.drivers import backend_stats
from lunshare.drivers.values import Capacity

_UNCHECKED = Capacity(total=0, free=0, provisioned=0, thin=False)


def pool_name(backend: NodeBackend) -> str:
    """Return the part after the # in host@backend#pool."""
    return str(backend.options.get("volume_backend_name") or backend.name)


def capabilities(
    backend: NodeBackend, volumes_here: int, provisioned_gib: int
) -> dict[str, Any]:
    """Return the stats of one pool; sizes are GiB."""
    checked, drivers = backend.capacity or _UNCHECKED, backend.drivers
    name = pool_name(backend)
    of_pool = backend_stats.of_pool(drivers, checked, backend.wipes)
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
