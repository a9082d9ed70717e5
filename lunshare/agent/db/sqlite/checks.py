# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the database is the one that was opened, and can be written.

SQLite does not notice when another program moves, removes or replaces its file: it
goes on writing to the file that it has open, and reports success
(sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use"). A
restart finds none of it.
"""

from __future__ import annotations

import os
import threading
import time

from lunshare.agent.model.errors import DatabaseFailed

#: Seconds for which a successful write is proof.
FRESH = 10.0
#: Seconds without a successful write after which the database counts as broken.
STALE = 60.0


class DatabaseFile:
    """The file at one path. Any thread may use it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def note_opened(self) -> None:
        """Note that SQLite has opened it; the first one counts."""
        if self._opened is None:
            self._opened = self._identity()

    def check(self) -> None:
        """Check that the opened file still has its name. Cost: one stat(2).

        :raises DatabaseFailed: it does not, so nothing that is written there is found
            again.
        """
        if self._opened is not None and self._identity() != self._opened:
            raise DatabaseFailed(
                "the database was moved, removed or replaced while lunshared uses it,"
                " and nothing more is written to the old one: restart lunshared to use"
                f" the file that is there now, or move the old one back to {self._path}"
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino


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
