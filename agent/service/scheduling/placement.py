# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the backend of a new volume, in words that say why it and no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lunshare.agent.errors import AgentError, Exhausted, Invalid
from lunshare.agent.records import Pool
from lunshare.agent.service.scheduling import filters, weighers
from lunshare.agent.service.scheduling.explanation import (
    Candidate,
    Choice,
    PlacementRequest,
)


def choose(
    pools: Iterable[Pool], wish: PlacementRequest, multipliers: Mapping[str, float]
) -> Choice:
    """Judge every pool, weigh those that pass, take the heaviest; changes nothing.

    Of equals the first is taken.
    """
    judged = [Candidate(pool, filters.judge(pool, wish)) for pool in pools]
    passed = [candidate for candidate in judged if not candidate.failed]
    numbers = weighers.weigh([each.pool for each in passed], wish, multipliers)
    weighed = [
        replace(candidate, numbers=of_it)
        for candidate, of_it in zip(passed, numbers, strict=True)
    ]
    best = max(weighed, key=lambda candidate: candidate.weight, default=None)
    by_name = {each.pool.name: each for each in weighed}
    told = tuple(by_name.get(each.pool.name, each) for each in judged)
    return Choice(wish, told, best.pool if best else None)


def refusal(choice: Choice) -> AgentError:
    """The error of a choice that found no pool: what kept each of them from it.

    Room alone is Exhausted, because less may do; all else is Invalid.
    """
    why = "; ".join(
        f"{each.pool.backend}: {', '.join(v.reason for v in each.failed)}"
        for each in choice.candidates
    )
    if any(_only_room(candidate) for candidate in choice.candidates):
        return Exhausted(
            f"no backend has room for size {choice.wish.size} GiB ({why}):"
            " ask for less or free some"
        )
    return Invalid(f"no backend can hold this volume ({why})")


def _only_room(candidate: Candidate) -> bool:
    return [verdict.filter for verdict in candidate.failed] == [filters.CAPACITY]
