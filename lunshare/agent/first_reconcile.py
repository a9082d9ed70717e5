# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The reconcile of the start, for which the first request waits a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from oslo_log import log

from lunshare.agent import request_scope
from lunshare.agent.assemble import Assembly
from lunshare.agent.model.errors import StartupError
from lunshare.drivers.sd_notify import notify
from lunshare.drivers.stop_signals import StopSignals

LOG = log.getLogger(__name__)

_SIGNAL_CHECK = 0.05  # seconds between two checks for a signal
_PROGRESS = 1.0  # seconds between two reports to systemd in a long reconcile


def first_reconcile(assembly: Assembly, wait: float, stop: StopSignals) -> bool:
    """Apply the database to the node before the first request is served.

    Return whether that was done within ``wait`` seconds. What takes longer
    continues while requests are served. Until its turn comes, a target stays as
    it was before the start.

    :raises StartupError: no backend works.
    """
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        moment = time.monotonic()
        if done == total or moment - last > _PROGRESS:
            last = moment
            notify(f"STATUS=reconciling {done}/{total}", "EXTEND_TIMEOUT_USEC=60000000")

    work = BackgroundTask(
        "first reconcile", lambda: assembly.reconcile.run(progress, wait)
    )
    is_done = work.wait(wait, stop)
    down = [b.problem for b in assembly.backends.values() if b.down]
    if len(down) == len(assembly.backends):
        raise StartupError(f"no backend works: {'; '.join(map(str, down))}")
    if not is_done:
        LOG.warning("[main] START reconcile is not done after %s s; it continues", wait)
    return is_done


class BackgroundTask:
    """Work in a thread of its own, for which the caller may wait."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        """Start."""
        self._work = work
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float, stop: StopSignals) -> bool:
        """Return whether it was done within ``seconds``, and before ``stop``.

        It raises what the work has raised.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.is_set():
            if self._done.wait(min(_SIGNAL_CHECK, seconds)):
                if self._error is not None:
                    raise self._error
                return True
        return False

    def _run(self) -> None:
        try:
            with request_scope.scope():
                self._work()
        except Exception as error:
            self._error = error
        self._done.set()
