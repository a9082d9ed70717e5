# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lock for each volume: operations on one volume run one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oslo_concurrency import lockutils

from lunshare.agent.model.errors import Busy
from lunshare.agent.threads.thread_share import HANGING_SECONDS, seconds_to_wait
from lunshare.agent.threads.turn import waiting


@dataclass(frozen=True, slots=True)
class _Holder:
    purpose: str
    since: float


class VolumeLocks:
    """Locks by volume id, for the threads of this process.

    There is one process a state path (lunshare.agent.main), so no lock file is needed.
    """

    def __init__(
        self, timeout: float, patient: int, hanging_after: float = HANGING_SECONDS
    ) -> None:
        """``timeout``: seconds to wait for a lock, unless the caller gives another.

        ``hanging_after``: seconds after which a running operation counts as hanging.
        ``patient``: how many threads may wait for such operations.
        """
        self._timeout, self._hanging_after = timeout, hanging_after
        self._patient = threading.BoundedSemaphore(patient)
        self._semaphores = lockutils.Semaphores()
        self._holders: dict[str, _Holder] = {}

    @contextmanager
    def volume(
        self, volume_id: str, purpose: str, timeout: float | None = None
    ) -> Iterator[None]:
        """Lock the volume for ``purpose``, which the error for others names.

        :raises Busy: the lock was not free within the timeout.
        """
        lock: threading.Semaphore = self._semaphores.get(volume_id)
        wait = self._timeout if timeout is None else timeout
        if not self._acquire(lock, volume_id, wait):
            raise self._busy_error(volume_id)
        self._holders[volume_id] = _Holder(purpose, time.monotonic())
        try:
            yield
        finally:
            del self._holders[volume_id]
            lock.release()

    def _acquire(self, lock: threading.Semaphore, volume_id: str, wait: float) -> bool:
        """All wait until the running work counts as hanging; a few wait longer."""
        if lock.acquire(blocking=False):
            return True
        with waiting():
            return self._wait_for_lock(lock, volume_id, wait)

    def _wait_for_lock(
        self, lock: threading.Semaphore, volume_id: str, wait: float
    ) -> bool:
        holder = self._holders.get(volume_id)
        since = holder.since if holder else None
        first_wait = min(wait, seconds_to_wait(since, self._hanging_after))
        if lock.acquire(timeout=first_wait):
            return True
        if wait <= first_wait or not self._patient.acquire(blocking=False):
            return False
        try:
            return lock.acquire(timeout=wait - first_wait)
        finally:
            self._patient.release()

    def _busy_error(self, volume_id: str) -> Busy:
        holder = self._holders.get(volume_id, _Holder("another request", 0.0))
        seconds = time.monotonic() - holder.since if holder.since else 0.0
        return Busy(
            f"volume {volume_id} is busy: {holder.purpose} has been running for"
            f" {seconds:.0f} seconds; try again when it is done",
            id=volume_id,
        )
