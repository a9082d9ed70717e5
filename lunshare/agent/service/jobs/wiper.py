# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Wipe the bytes of deleted volumes, step by step, in the background.

The database stores nothing about it: what is left to wipe is on the disks, and the
drivers find those by their names. So a restart continues where the last process was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from oslo_log import log

from lunshare.agent.backends import Backends, translated
from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.operator_records import WipeState
from lunshare.agent.model.records import RequestContext
from lunshare.agent.request_scope import scope
from lunshare.drivers import wiping

LOG = log.getLogger(__name__)

_PERIOD = 60.0  # seconds until what failed, or was deleted elsewhere, is tried


class Wiper:
    """Wipes deleted disks, in one thread for each backend."""

    def __init__(
        self, backends: Backends, on_failure: Callable[[str], object] = lambda _: None
    ) -> None:
        """``on_failure`` is called with "wipe" for each disk that was not wiped."""
        self._backends, self._on_failure = backends, on_failure
        self._stopped = threading.Event()
        self._more: Mapping[str, threading.Event] = {
            name: threading.Event() for name in backends
        }
        self._threads = [
            threading.Thread(
                target=self._run, args=(name,), name=f"wipe {name}", daemon=True
            )
            for name in backends
        ]

    def start(self) -> None:
        """Start with what an earlier process has left."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the threads; wait up to ``timeout`` seconds for running steps."""
        self._stopped.set()
        for more in self._more.values():
            more.set()
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether a step may be running."""
        return any(thread.is_alive() for thread in self._threads)

    def wake(self, backend: str) -> None:
        """Check at once for deleted disks on this backend."""
        if backend in self._more:
            self._more[backend].set()

    def list(self, ctx: RequestContext) -> list[WipeState]:
        """Return what is left to wipe on the backends that are up.

        :raises BackendFailed: one of them cannot list them.
        :raises BackendUnavailable: one of them does not answer.
        """
        states = []
        for backend in self._backends.values():
            if backend.up:
                with backend.for_request() as driver:
                    wipes = driver.volumes.wipes()
                states += [
                    WipeState(backend.name, w.name, w.size, w.left) for w in wipes
                ]
        return states

    def wipe_disks(self, name: str) -> None:
        """Wipe the deleted disks of one backend, until nothing is left or it stops.

        A disk that cannot be wiped is logged, and tried again the next time.
        """
        backend = self._backends[name]
        try:
            with translated():
                wipes = backend.drivers.volumes.wipes()
        except AgentError as error:
            LOG.error("[%s] wipe failed: %s", name, error)
            self._on_failure("wipe")
            return
        for disk in wipes:
            try:
                wiping.wipe_disk(
                    backend.drivers.volumes,
                    disk,
                    backend.options,
                    self._stopped,
                    translated,
                )
            except AgentError as error:
                LOG.error("[%s] wipe failed: disk=%s: %s", name, disk.name, error)
                self._on_failure("wipe")

    def _run(self, name: str) -> None:
        while not self._stopped.is_set():
            self._more[name].clear()
            with scope():
                self._turn(name)
            if not self._stopped.is_set():
                self._more[name].wait(_PERIOD)

    def _turn(self, name: str) -> None:
        try:
            if self._backends[name].up:
                self.wipe_disks(name)
        except Exception:
            LOG.exception("[%s] wipe failed unexpectedly; it is tried again", name)
            self._on_failure("wipe")
