# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the database can be written, from the result of the last write."""

from __future__ import annotations

import threading
import time

#: Seconds for which a successful write is proof.
FRESH = 10.0
#: Seconds without a successful write after which the database counts as broken.
STALE = 60.0


class WriteCheck:
    """The result of the last write. Any thread may use it.

    ``failures`` counts the writes that failed.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._mutex = threading.Lock()
        self._problem: str | None = None
        self._wrote_at = time.monotonic()

    def note_success(self) -> None:
        """Note that a write has reached the disk."""
        self._problem, self._wrote_at = None, time.monotonic()

    def note_failure(self, problem: str) -> None:
        """Note that a write has failed, and why."""
        with self._mutex:
            self._problem, self.failures = problem, self.failures + 1

    @property
    def fresh(self) -> bool:
        """Return whether a write has succeeded recently, and none has failed since."""
        return self._problem is None and time.monotonic() - self._wrote_at < FRESH

    @property
    def problem(self) -> str | None:
        """Return what is wrong in one sentence, or None. It reads memory only."""
        seconds = time.monotonic() - self._wrote_at
        if self._problem is None and seconds > STALE:
            return f"no write to the database has ended for {seconds:.0f} s"
        return self._problem
