# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The places that volumes can be in: their names, and what there is room for."""

from __future__ import annotations

import math

from lunshare.agent.backends import Backends
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import Pool, RequestContext, VolumeType
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling import filters
from lunshare.agent.service.scheduling.scheduler import Scheduler


class Pools:
    """The places of this node."""

    def __init__(
        self, node: Node, backends: Backends, scheduler: Scheduler, zone: str
    ) -> None:
        self._node, self._backends = node, backends
        self._scheduler, self.zone = scheduler, zone

    def backend_of(self, host: str) -> str:
        """The backend that is meant by host@backend or host@backend#pool.

        :raises NotFound: this node has no such backend.
        """
        name = host.partition("@")[2].partition("#")[0]
        whole = self._node.host_of(name)
        here = host in (whole, whole.partition("#")[0])
        if not here or self._backends.find(name) is None:
            raise NotFound("host", host)
        return name

    def check_zone(self, zone: str | None) -> None:
        """Let in what names no other zone than ours.

        :raises Invalid: it does.
        """
        if zone not in (None, self.zone):
            raise Invalid(
                f"availability_zone {zone!r} is unknown: this node is in {self.zone!r}"
            )

    def choose(
        self,
        ctx: RequestContext,
        size: int,
        kind: VolumeType | None,
        zone: str | None = None,
        *,
        only: str | None = None,
        but: str | None = None,
    ) -> str:
        """The backend for a volume of ``size`` GiB: any, one only, or any but one.

        :raises Invalid: none can do what is asked for.
        :raises Exhausted: those that can have no room.
        """
        return self._scheduler.place(ctx, size, kind, zone, only=only, but=but).backend

    def unmet_specs(
        self, ctx: RequestContext, backend: str, kind: VolumeType | None
    ) -> str | None:
        """What the type asks for and this backend has not, or None."""
        pool = self._pool(ctx, backend)
        return filters.unmet_specs(pool, kind) if pool else "it is not enabled"

    def free_space(self, ctx: RequestContext, backend: str) -> float:
        """GiB that this backend may still promise; no bound where that is not known."""
        pool = self._pool(ctx, backend)
        return filters.free_space(pool) if pool and pool.up else math.inf

    def _pool(self, ctx: RequestContext, backend: str) -> Pool | None:
        pools = self._node.pools(ctx)
        return next((pool for pool in pools if pool.backend == backend), None)
