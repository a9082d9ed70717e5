# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the file of an SQLite database is still the one that was opened.

SQLite does not notice when another program moves, removes or replaces it: it goes on
writing to the file that it has open, and reports success (sqlite.org/howtocorrupt.html,
"Unlinking or renaming a database file while in use"). A restart finds none of it.
"""

from __future__ import annotations

import os

from lunshare.agent.model.errors import DatabaseFailed


class DatabaseFile:
    """The file at one path. Any thread may use it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def note_opened(self) -> None:
        """Note that SQLite has opened it; the first one counts."""
        if self._opened is None:
            self._opened = self._found()

    def check(self) -> None:
        """Check that the opened file still has its name. Cost: one stat(2).

        :raises DatabaseFailed: it does not, so nothing that is written there is found
            again.
        """
        if self._opened is not None and self._found() != self._opened:
            raise DatabaseFailed(
                f"the database {self._path} was moved, removed or replaced while"
                " lunshared uses it, and nothing more is written to the old one: move"
                " it back, or restart lunshared to use the file that is there now"
            )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino
