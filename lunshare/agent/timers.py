# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Timers: each calls one function of the service again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from oslo_log import log

from lunshare.agent.request_scope import scope

LOG = log.getLogger(__name__)


class Timer:
    """Call ``work`` every ``seconds``, counted from the end of the last call.

    An error of ``work`` is logged, ``on_failure`` is called with the timer's name, and
    the timer continues. Each call has a request id of its own.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        work: Callable[[], object],
        on_failure: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._on_failure = on_failure
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start; the first call comes after one period."""
        self._thread.start()

    def wake(self) -> None:
        """Make the next call now."""
        self._woken.set()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop, and wait up to ``timeout`` seconds for a call in progress."""
        self._stopped.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Return whether a call may be in progress."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stops():
            with scope():
                self._call()

    def _call(self) -> None:
        try:
            self._work()
        except Exception:
            LOG.exception("[%s] LOOP failed; it continues", self._name)
            self._on_failure(self._name)

    def _stops(self) -> bool:
        """Wait for the next call; return whether the timer is stopped instead."""
        self._woken.wait(self._seconds)
        self._woken.clear()
        return self._stopped.is_set()
