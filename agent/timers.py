# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Timers: each calls one function of the service, and outlives its errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

from oslo_log import log

LOG = log.getLogger(__name__)


class Loop:
    """Call ``work`` every ``seconds``, counted from the end of the last call."""

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first call comes after one period."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next call now."""
        self._woken.set()

    def stop(self, timeout: float = 5.0) -> None:
        """Ask it to end, and wait so many seconds for the call under way."""
        self._stopped.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether a call may be under way."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._ends():
            try:
                self._work()
            except Exception:
                LOG.exception("[%s] LOOP failed; it goes on", self._name)

    def _ends(self) -> bool:
        """Wait for the next call, or for the end."""
        self._woken.wait(self._seconds)
        self._woken.clear()
        return self._stopped.is_set()
