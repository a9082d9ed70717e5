# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A choice of a backend as a value: the request, the results, and the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lunshare.agent.model.records import Pool, VolumeType


@dataclass(frozen=True, slots=True)
class Hints:
    """The backends that a request's scheduler hints mean.

    ``same``: only these, None means any. ``different``: none of these.
    """

    same: frozenset[str] | None = None
    different: frozenset[str] = frozenset()


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a volume asks for: GiB, a type, an availability zone.

    ``only`` names the one backend that is possible, because the bytes of the source
    are there; ``exclude`` one that is not, because the volume leaves it. ``sector`` is
    the logical sector size that its bytes were written with, None for a new volume.
    """

    size: int
    volume_type: VolumeType | None = None
    zone: str | None = None
    only: str | None = None
    exclude: str | None = None
    sector: int | None = None
    hints: Hints = NO_HINTS

    @property
    def specs(self) -> Mapping[str, str]:
        """The extra specs of its type."""
        return self.volume_type.extra_specs if self.volume_type else {}


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Whether one pool passes one filter, and why in half a sentence."""

    filter: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class WeigherResult:
    """The value of one weigher for one pool.

    ``value`` is in the weigher's own unit. ``weight`` is the value scaled to 0..1
    over the pools that passed, times the multiplier.
    """

    weigher: str
    value: float
    multiplier: float
    weight: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool with its results. Only a pool that passes every filter is weighed."""

    pool: Pool
    filter_results: tuple[FilterResult, ...]
    weigher_results: tuple[WeigherResult, ...] = ()

    @property
    def failed(self) -> tuple[FilterResult, ...]:
        """The filters that it does not pass."""
        return tuple(result for result in self.filter_results if not result.passed)

    @property
    def weight(self) -> float:
        """The sum of its weights. The largest is chosen."""
        return sum(result.weight for result in self.weigher_results)


@dataclass(frozen=True, slots=True)
class Choice:
    """Every pool with its results, and the chosen one, if any."""

    request: PlacementRequest
    candidates: tuple[Candidate, ...] = field(default_factory=tuple)
    chosen: Pool | None = None
