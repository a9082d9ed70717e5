# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the pool of a new volume, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lunshare.agent.model.errors import AgentError, Exhausted, Invalid
from lunshare.agent.model.records import Pool
from lunshare.agent.service.scheduling import filters, weighers
from lunshare.agent.service.scheduling.explanation import (
    Candidate,
    Choice,
    PlacementRequest,
)


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
