# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A line that shows that a command works, and how far it is, on a terminal only."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType

_CELLS = 20
_FIRST_SECONDS, _NEXT_SECONDS = 0.5, 0.2  # a quick command shows nothing


class ProgressBar:
    """Shown during a ``with`` block on standard output, if that is a terminal.

    ``part`` is what is done, 0 to 1; None where nobody knows, which moves a mark.
    """

    def __init__(self, work: str) -> None:
        self.part: float | None = None
        self._work, self._began, self._drawn = work, time.monotonic(), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressBar:
        if sys.stdout.isatty():
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._draw("")

    def _run(self) -> None:
        seconds = _FIRST_SECONDS
        while not self._ended.wait(seconds):
            self._draw(self._line(time.monotonic() - self._began))
            seconds = _NEXT_SECONDS

    def _line(self, seconds: float) -> str:
        if self.part is None:
            at = int(seconds / _NEXT_SECONDS) % _CELLS
            return (
                f"{self._work} [{'#':>{at + 1}}{'':{_CELLS - at - 1}}] {seconds:.0f} s"
            )
        filled = "#" * round(self.part * _CELLS)
        return f"{self._work} [{filled:<{_CELLS}}] {self.part:4.0%} {seconds:.0f} s"

    def _draw(self, line: str) -> None:
        """Write over the line before; a terminal without colours can do that, too."""
        line = line[: shutil.get_terminal_size().columns - 1]
        print(f"\r{line:<{self._drawn}}\r{line}", end="", flush=True)
        self._drawn = len(line)
