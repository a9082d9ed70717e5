# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a new volume goes: the choice itself, and the same choice only told."""

from __future__ import annotations

from collections.abc import Mapping

from oslo_log import log

from lunshare.agent.records import Pool, RequestContext, VolumeType
from lunshare.agent.service.messages import NO_BACKEND, Messages
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling import placement
from lunshare.agent.service.scheduling.explanation import Choice, PlacementRequest
from lunshare.agent.service.types import Types

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
        """What would be chosen for such a volume, and why; nothing is created.

        :raises NotFound: the volume type.
        """
        wish = PlacementRequest(size, self._types.resolve(volume_type), zone)
        return placement.choose(self._node.pools(ctx), wish, self._multipliers)

    def place(
        self,
        ctx: RequestContext,
        size: int,
        kind: VolumeType | None,
        zone: str | None = None,
        *,
        only: str | None = None,
        but: str | None = None,
    ) -> Pool:
        """The pool for a volume that is about to be created, or to move.

        ``only`` and ``but`` are names of backends; see Wish. When there is no such
        pool, why is also kept as a user message.

        :raises Invalid: no backend can do what is asked for.
        :raises Exhausted: those that can have no room.
        """
        pools = self._node.pools(ctx)
        wish = PlacementRequest(size, kind, zone, only, but)
        choice = placement.choose(pools, wish, self._multipliers)
        if choice.chosen is None:
            error = placement.refusal(choice)
            self._messages.record(ctx, NO_BACKEND, error.message)
            raise error
        LOG.debug("[%s] CHOSEN %s", choice.chosen.backend, choice)
        return choice.chosen
