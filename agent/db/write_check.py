# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the database can be written, as the last write found."""

from __future__ import annotations

import time

#: Seconds for which a write that worked is proof enough.
FRESH = 10.0
#: Seconds without any write that worked, after which it counts as broken.
STALE = 60.0


class Condition:
    """What is known of the last write; any thread may tell and ask."""

    def __init__(self) -> None:
        self._problem: str | None = None
        self._wrote_at = time.monotonic()

    def wrote(self) -> None:
        """A write has reached the disk."""
        self._problem, self._wrote_at = None, time.monotonic()

    def failed(self, problem: str) -> None:
        """A write has failed, with this sentence."""
        self._problem = problem

    @property
    def fresh(self) -> bool:
        """Whether a write has worked just now, and none has failed since."""
        return self._problem is None and time.monotonic() - self._wrote_at < FRESH

    @property
    def problem(self) -> str | None:
        """What is wrong, in one sentence, or None. From memory."""
        silent = time.monotonic() - self._wrote_at
        if self._problem is None and silent > STALE:
            return f"no write to the database has ended for {silent:.0f} s"
        return self._problem
