# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The pools of this node: their names, and what they can hold."""

from __future__ import annotations

import math

from lunshare.agent.backends import Backends
from lunshare.agent.model.errors import Invalid, NotFound
from lunshare.agent.model.records import Pool, VolumeType
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling import filters, free_space


class Pools:
    """The pools of this node."""

    def __init__(self, node: Node, backends: Backends, zone: str) -> None:
        self._node, self._backends, self.zone = node, backends, zone

    def backend_of(self, host: str) -> str:
        """Return the backend that host@backend or host@backend#pool names.

        :raises NotFound: this node has no such backend.
        """
        name = host.partition("@")[2].partition("#")[0]
        full_name = self._node.host_of(name)
        exists = host in (full_name, full_name.partition("#")[0])
        if not exists or self._backends.find(name) is None:
            raise NotFound("host", host)
        return name

    def check_zone(self, zone: str | None) -> None:
        """Check that a zone is the zone of this node, or None.

        :raises Invalid: it is another one.
        """
        if zone not in (None, self.zone):
            raise Invalid(
                f"availability_zone {zone!r} is unknown: this node is in {self.zone!r}"
            )

    def unmet_specs(self, backend: str, volume_type: VolumeType | None) -> str | None:
        """Return the extra specs that this backend does not meet, or None."""
        pool = self._pool(backend)
        return filters.unmet_specs(pool, volume_type) if pool else "it is not enabled"

    def free_space(self, backend: str) -> float:
        """Return how many GiB may still be provisioned; inf where that is unknown."""
        pool = self._pool(backend)
        return free_space.provisionable(pool) if pool and pool.up else math.inf

    def sector(self, backend: str) -> int | None:
        """Return the logical sector size of its disks in bytes; None if unknown."""
        pool = self._pool(backend)
        return pool.sector if pool else None

    def _pool(self, backend: str) -> Pool | None:
        pools = self._node.current_pools()
        return next((pool for pool in pools if pool.backend == backend), None)
