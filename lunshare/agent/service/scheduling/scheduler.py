# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the pool of a new volume, or only explain the choice."""

from __future__ import annotations

from collections.abc import Mapping

from oslo_log import log

from lunshare.agent.model.records import RequestContext
from lunshare.agent.service.messages import NO_BACKEND, Messages
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling import placement
from lunshare.agent.service.scheduling.explanation import Choice, PlacementRequest
from lunshare.agent.service.types.types import Types

LOG = log.getLogger(__name__)


class Scheduler:
    """Chooses among the pools of this node."""

    def __init__(
        self,
        node: Node,
        types: Types,
        messages: Messages,
        multipliers: Mapping[str, float],
    ) -> None:
        """``multipliers`` by the weighers' names; see service/scheduling/weighers."""
        self._node, self._types, self._messages = node, types, messages
        self._multipliers = dict(multipliers)

    def explain(
        self, ctx: RequestContext, size: int, volume_type: str | None, zone: str | None
    ) -> Choice:
        """Return what would be chosen for such a volume, and why. Creates nothing.

        :raises NotFound: the volume type.
        """
        kind = self._types.resolve(ctx, volume_type)
        return self._choose(PlacementRequest(size, kind, zone))

    def choose(self, request: PlacementRequest) -> Choice:
        """Return the choice for a new volume, with or without a pool."""
        choice = self._choose(request)
        if choice.chosen is not None:
            LOG.debug("[%s] pool chosen: %s", choice.chosen.backend, choice)
        return choice

    def place(
        self, ctx: RequestContext, volume_id: str, request: PlacementRequest
    ) -> str:
        """Return the backend for a volume that exists and will be migrated.

        When no pool is possible, the reason is also stored as a user message.

        :raises Invalid: no backend meets the request.
        :raises Exhausted: the backends that meet it have no space.
        """
        choice = self.choose(request)
        if choice.chosen is None:
            error = placement.refusal(choice)
            self._messages.record(ctx, NO_BACKEND, error.message, volume_id)
            raise error
        return choice.chosen.backend

    def _choose(self, request: PlacementRequest) -> Choice:
        pools = self._node.current_pools()
        return placement.choose(pools, request, self._multipliers)
