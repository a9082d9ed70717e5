# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The words in which a choice of backend is made and told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lunshare.agent.records import Pool, VolumeType


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a volume asks for: GiB, a type, an availability zone.

    ``only`` names the one backend that will do, because the bytes it is made of
    are there; ``but`` one that will not, because it is to leave that.
    """

    size: int
    kind: VolumeType | None = None
    zone: str | None = None
    only: str | None = None
    but: str | None = None

    @property
    def specs(self) -> Mapping[str, str]:
        """What its type asks for."""
        return self.kind.extra_specs if self.kind else {}


@dataclass(frozen=True, slots=True)
class FilterResult:
    """What one filter says of one pool, and why in half a sentence."""

    filter: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class WeigherResult:
    """What one weigher says of one pool.

    ``value`` is in the weigher's own unit; ``weight`` is its share in the
    choice: the value between 0 and 1 among the pools that passed, times the
    multiplier.
    """

    weigher: str
    value: float
    multiplier: float
    weight: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool with all that was said of it. Only who passed is weighed."""

    pool: Pool
    verdicts: tuple[FilterResult, ...]
    numbers: tuple[WeigherResult, ...] = ()

    @property
    def failed(self) -> tuple[FilterResult, ...]:
        """The verdicts that keep it from being chosen."""
        return tuple(each for each in self.verdicts if not each.passed)

    @property
    def weight(self) -> float:
        """The most wins."""
        return sum(number.weight for number in self.numbers)


@dataclass(frozen=True, slots=True)
class Choice:
    """Every pool with its verdicts, and the one that was chosen, if any."""

    wish: PlacementRequest
    candidates: tuple[Candidate, ...] = field(default_factory=tuple)
    chosen: Pool | None = None
