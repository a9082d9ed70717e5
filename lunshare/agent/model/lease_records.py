# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A lease of write access: as it is asked for, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds that a lease may have.
TTL_LEAST, TTL_MOST = 1, 86_400
#: What may follow the end of a lease: the next of the volume's writers.
NEXT = "next"


@dataclass(frozen=True, slots=True)
class NewLease:
    """A lease that is asked for, of ``ttl`` seconds.

    ``then_next``: at its end the next of the volume's writers is promoted.
    """

    ttl: int
    then_next: bool = False


@dataclass(frozen=True, slots=True)
class LeaseState:
    """How the latest lease of an attachment stands.

    ``status`` is running, fence pending or ended. ``seconds_left`` is 0 unless it runs.
    """

    ttl: int
    then: str | None
    status: str
    seconds_left: float
    ended_at: str | None
