# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What cinder-volume reports of a backend to the scheduler: one pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.drivers import backend_stats
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import DriverError, StorageLost
from lunshare.drivers.values import Capacity, Wipe

_NOTHING = Capacity(total=0, free=0, provisioned=0, thin=False)
_OF_BACKEND = (
    "volume_backend_name",
    "vendor_name",
    "driver_version",
    "storage_protocol",
    "shared_targets",
    "sparse_copy_volume",
    "replication_enabled",
)


class SchedulerStats:
    """The stats of one backend, from a check of its storage and its target."""

    def __init__(self, backend: Backend, of_operator: Mapping[str, Any]) -> None:
        """``of_operator``: stats that cinder.conf decides, with the pool's name."""
        self._backend, self._of_operator = backend, of_operator
        self.problem: str | None = None

    def read(self) -> dict[str, Any]:
        """Check the backend, and return its stats.

        A backend that fails its check, or whose pool is closed, has no space: the
        filters of Cinder's scheduler do not read the state.
        """
        capacity, volumes, self.problem = _NOTHING, 0, None
        wipes: tuple[Wipe, ...] = ()
        try:
            self._backend.volumes.check()
            self._backend.target.check()
            capacity = self._backend.volumes.capacity()
            wipes = self._backend.volumes.wipes()
            volumes = self._count_disks()
        except DriverError as error:
            self.problem = str(error)
        caps = {
            **backend_stats.of_pool(self._backend, capacity, wipes),
            **backend_stats.OF_VENDOR,
            "clone_across_pools": False,
            "consistent_group_snapshot_enabled": False,
            "total_volumes": volumes,
            "backend_state": "down" if self.problem else "up",
            "state_reason": self.problem or capacity.closed or None,
            **self._of_operator,
        }
        if self.problem or capacity.closed:
            caps |= _without_space(caps)
        return {**{key: caps[key] for key in _OF_BACKEND}, "pools": [caps]}

    def _count_disks(self) -> int:
        """Return how many volumes there are; 0 while a part of the pool is lost."""
        try:
            return len(self._backend.volumes.disks())
        except StorageLost:
            return 0


def _without_space(caps: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stats that make Cinder's filters refuse a pool.

    They read neither a pool's state nor the physical space of a thin one, so it has no
    free space, and all of it is provisioned.

    Not 100 % reserved: CapacityFilter of Cinder 29.0.0 divides by what is not
    reserved, and its error ends the search for every other backend too.
    """
    return {
        "free_capacity_gb": 0.0,
        "provisioned_capacity_gb": max(
            caps["provisioned_capacity_gb"], caps["total_capacity_gb"]
        ),
        "max_over_subscription_ratio": "1.0",
        "reserved_percentage": 0,
    }
