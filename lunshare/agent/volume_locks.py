# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One lock for each volume: operations on one volume run one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from lunshare.agent.model.errors import Busy
from lunshare.agent.threads.limit import HANGING_SECONDS, Holder, Limit


class VolumeLocks:
    """Locks by volume id, for the threads of this process.

    There is one process a state path (``state_path``), so no lock file is needed.
    """

    def __init__(
        self, timeout: float, patient: int, hanging_after: float = HANGING_SECONDS
    ) -> None:
        """``timeout``: seconds to wait for a lock, unless the caller gives another.

        ``hanging_after``: seconds after which a running operation counts as hanging.
        ``patient``: how many threads may wait for such operations.
        """
        self._timeout, self._hanging_after = timeout, hanging_after
        self._patient = Limit(patient)
        self._mutex = threading.Lock()
        self._limits: WeakValueDictionary[str, Limit] = WeakValueDictionary()

    @contextmanager
    def volume(
        self, volume_id: str, purpose: str, timeout: float | None = None
    ) -> Iterator[None]:
        """Lock the volume for ``purpose``, which the error for others names.

        :raises Busy: the lock was not free within the timeout.
        """
        with self._mutex:
            limit = self._limits.setdefault(volume_id, Limit(1, self._hanging_after))
        seconds = self._timeout if timeout is None else timeout
        holder = self._acquire(limit, purpose, seconds)
        if holder is None:
            raise _busy_error(volume_id, limit)
        try:
            yield
        finally:
            limit.release(holder)

    def _acquire(self, limit: Limit, purpose: str, seconds: float) -> Holder | None:
        """All wait until the running work counts as hanging; a few wait longer."""
        until = time.monotonic() + seconds
        holder = limit.acquire(min(seconds, self._hanging_after), purpose)
        if holder is not None or seconds <= 0:
            return holder
        with self._patient.place(0) as place:
            if place is None:
                return None
            remainder = until - time.monotonic()
            return limit.acquire(remainder, purpose, although_hanging=True)


def _busy_error(volume_id: str, limit: Limit) -> Busy:
    purpose = next((holder.purpose for holder in limit.holders), "another request")
    return Busy(
        f"volume {volume_id} is busy: {purpose} has been running for"
        f" {limit.oldest_seconds:.0f} seconds; try again when it is done",
        id=volume_id,
    )
