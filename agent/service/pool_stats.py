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
from lunshare.drivers.abilities import TargetAbilities
from lunshare.drivers.values import GIB, Capacity

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
    return {
        "volume_backend_name": name,
        "pool_name": name,
        "vendor_name": "lunshare",
        "driver_version": "1.0",
        "storage_protocol": driver.target.PROTOCOL,
        "total_capacity_gb": _gib(checked.total),
        "free_capacity_gb": _gib(checked.free),
        "provisioned_capacity_gb": max(
            _gib(checked.provisioned), float(provisioned_gib)
        ),
        "allocated_capacity_gb": provisioned_gib,
        "reserved_percentage": backend.options["reserved_percentage"],
        "max_over_subscription_ratio": backend.options["max_over_subscription_ratio"],
        "thin_provisioning_support": checked.thin,
        "thick_provisioning_support": not checked.thin,
        "total_volumes": volumes_here,
        "multiattach": driver.volumes.abilities.multiattach,
        "online_extend_support": driver.extends_open,
        **_target_stats(driver.target.abilities),
        "QoS_support": False,
        "replication_enabled": False,
        "shared_targets": False,
        "sparse_copy_volume": checked.thin,
        "location_info": f"lunshare:{backend.name}",
        **_state_stats(backend, checked),
        "timestamp": datetime.fromtimestamp(backend.checked_at, UTC)
        .replace(tzinfo=None)
        .isoformat(),
    }


def for_scheduler(pool: Pool) -> dict[str, Any]:
    """Return the pool as Cinder's scheduler reads it: a backend with one pool.

    Cinder's filters read neither a pool's state nor the physical space of a thin
    one. So a pool that must not be chosen reports no free space, and all of it as
    provisioned.
    """
    caps = dict(pool.capabilities)
    # Cinder puts the time of the message here, and compares it with its own.
    del caps["timestamp"]
    if pool.problem or pool.closed or not pool.enabled or _is_full(caps):
        caps |= _without_space(caps)
    return {**{key: caps[key] for key in _OF_BACKEND}, "pools": [caps]}


def _target_stats(can: TargetAbilities) -> dict[str, bool]:
    """Return what extra specs may ask of the target, such as capabilities:fences."""
    return {"fences": can.fences, "enforces_read_only": can.enforces_read_only}


def _without_space(caps: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stats of a pool without any space.

    Not 100 % reserved: CapacityFilter of Cinder 29.0.0 divides by what is not
    reserved, and its error ends the search for every other backend too.
    """
    most = caps["total_capacity_gb"] * caps["max_over_subscription_ratio"]
    return {
        "free_capacity_gb": 0.0,
        "provisioned_capacity_gb": max(caps["provisioned_capacity_gb"], most),
        "reserved_percentage": 0,
    }


def _state_stats(backend: NodeBackend, checked: Capacity) -> dict[str, Any]:
    wipes = backend.wipes
    return {
        "backend_state": "up" if backend.up else "down",
        "state_reason": backend.problem or checked.closed or None,
        "data_percent": checked.data_percent,
        "metadata_percent": checked.metadata_percent,
        "wipes": len(wipes),
        "wipes_left_gb": _gib(sum(wipe.left for wipe in wipes)),
    }


def _is_full(caps: Mapping[str, Any]) -> bool:
    reserve = caps["total_capacity_gb"] * caps["reserved_percentage"] / 100
    return bool(caps["free_capacity_gb"] <= reserve)


def _gib(size: int) -> float:
    return round(size / GIB, 2)
