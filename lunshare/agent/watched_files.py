# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Files that may change while the daemon runs, and are read again then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

FileState = tuple[str, int, int, int]


class WatchedFiles:
    """Calls a function after files have changed. Any thread may use it.

    A change is another inode, size, or time of change (ctime, which no program can set
    and which a change of owner or mode changes too), a further file, or one less.
    """

    def __init__(
        self,
        paths: Callable[[], Iterable[str | Path]],
        read: Callable[[], object],
        seconds: float = 0.0,
    ) -> None:
        """Look at the files. Call it before they are read for the first time.

        ``paths`` names them at each look. ``read`` is called after a change, and again
        by the next ``check`` if it raises. ``seconds``: between two looks.
        """
        self._paths, self._read, self._seconds = paths, read, seconds
        self._lock = threading.Lock()
        self._forced = False
        self._states = self._file_states()
        self._next = time.monotonic() + seconds

    def force(self) -> None:
        """Let the next ``check`` read the files, changed or not; also for signals."""
        self._forced = True

    def check(self) -> None:
        """Look at the files if it is time to, and read them if they have changed.

        A thread that looks while another one reads waits for it: it does not continue
        with what was read before the change.
        """
        if time.monotonic() < self._next and not self._forced:
            return
        with self._lock:
            self._next = time.monotonic() + self._seconds
            states = self._file_states()
            if states != self._states or self._forced:
                self._forced = False
                self._read()
                self._states = states

    def _file_states(self) -> list[FileState]:
        return [_file_state(path) for path in self._paths()]


def _file_state(path: str | Path) -> FileState:
    try:
        status = os.stat(path)
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), status.st_ino, status.st_ctime_ns, status.st_size)
