# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command, as an exception: it can undo its work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

_NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class EndSignals:
    """Raises SystemExit at the first signal; later ones do not disturb the undo.

    In the main thread only. A signal that the caller ignores (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._held, self._pending = False, 0

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise in this block. The code of the exit is 128 and the signal's number."""
        handlers = {
            number: handler
            for number in _NUMBERS
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
        }
        for number in handlers:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise at the end of this block: its answer names what is to be undone."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self._pending:
                raise SystemExit(128 + self._pending)

    def _receive(self, number: int, _frame: object) -> None:
        if self._pending:
            return
        self._pending = number
        if not self._held:
            raise SystemExit(128 + number)
