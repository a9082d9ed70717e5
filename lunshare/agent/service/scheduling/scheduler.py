# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the pool of a new volume, with the reasons, or only explain the choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from oslo_log import log

from lunshare.agent.model.errors import AgentError, Exhausted, Invalid
from lunshare.agent.model.records import Pool, RequestContext
from lunshare.agent.service.messages import NO_BACKEND, Messages
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling import filters, weighers
from lunshare.agent.service.scheduling.explanation import (
    Candidate,
    Choice,
    PlacementRequest,
)
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
            error = refusal(choice)
            self._messages.record(ctx, NO_BACKEND, error.message, volume_id)
            raise error
        return choice.chosen.backend

    def _choose(self, request: PlacementRequest) -> Choice:
        pools = self._node.current_pools()
        return choose(pools, request, self._multipliers)


def choose(
    pools: Iterable[Pool], request: PlacementRequest, multipliers: Mapping[str, float]
) -> Choice:
    """Filter the pools, weigh those that pass, choose the heaviest. Changes nothing.

    Of equal pools the first is chosen.
    """
    filtered = [Candidate(pool, filters.run_filters(pool, request)) for pool in pools]
    passed = [candidate for candidate in filtered if not candidate.failed]
    weigher_results = weighers.weigh(
        [candidate.pool for candidate in passed], request, multipliers
    )
    weighed = [
        replace(candidate, weigher_results=results)
        for candidate, results in zip(passed, weigher_results, strict=True)
    ]
    best = max(weighed, key=lambda candidate: candidate.weight, default=None)
    by_name = {candidate.pool.name: candidate for candidate in weighed}
    candidates = tuple(
        by_name.get(candidate.pool.name, candidate) for candidate in filtered
    )
    return Choice(request, candidates, best.pool if best else None)


def refusal(choice: Choice) -> AgentError:
    """Return the error of a choice without a pool, with the reason of each pool.

    Missing space alone is Exhausted, because a smaller request may succeed. All
    else is Invalid.
    """
    why = "; ".join(
        f"{candidate.pool.backend}: {', '.join(v.reason for v in candidate.failed)}"
        for candidate in choice.candidates
    )
    if any(_lacks_only_space(candidate) for candidate in choice.candidates):
        return Exhausted(
            f"no backend has space for size {choice.request.size} GiB ({why}):"
            " ask for less or free some"
        )
    return Invalid(f"no backend can hold this volume ({why})")


def _lacks_only_space(candidate: Candidate) -> bool:
    return [result.filter for result in candidate.failed] == [filters.CAPACITY]
