# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill a unit with -9 at the moment at which something on the node changes."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import threading
import time
from pathlib import Path

from tests.lab.steps import sh

CINDER, HELPER = "cinder-volume.service", "lunshare-helper.service"
_POLL = 0.001
_GIVE_UP = 60.0


class Kill:
    """Waits in a thread until what the pattern finds is not what it was."""

    def __init__(self, pattern: str, units: list[str]) -> None:
        self._pattern = pattern
        self._victims = [each for unit in units for each in processes(unit)]
        self._before = _seen(pattern)
        self.killed: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> list[int]:
        """The processes that were killed."""
        self._thread.join(_GIVE_UP)
        return self.killed

    def _run(self) -> None:
        until = time.monotonic() + _GIVE_UP
        while self._pattern and _seen(self._pattern) == self._before:
            if time.monotonic() > until:
                return
            time.sleep(_POLL)
        for victim in self._victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                self.killed.append(victim)


def processes(unit: str) -> list[int]:
    """Those of a unit. Of the helper only itself: systemd leaves its commands alone."""
    main = int(sh(["systemctl", "show", "--value", "--property=MainPID", unit]))
    if unit == HELPER:
        return [main] if main else []
    listed = Path(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs")
    return [int(word) for word in listed.read_text().split()] if main else []


def _seen(pattern: str) -> dict[str, str]:
    """What is at these paths; of a file also what it says, or when it was written."""
    return {path: _state(Path(path)) for path in glob.glob(pattern)}


def _state(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.is_file():
            in_kernel = path.is_relative_to("/sys")
            return path.read_text() if in_kernel else str(path.stat().st_mtime_ns)
    return ""
