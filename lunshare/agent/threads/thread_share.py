# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How many request threads something that hangs may hold, and when it counts so.

One rule for backends (``backends``) and volumes (``volume_locks``): a request
waits until running work is HANGING_SECONDS old. Work that is older counts as hanging,
and only a share of the threads may be held by it.
"""

from __future__ import annotations

import threading
import time

from lunshare.agent import request_scope

#: Seconds after which running work counts as hanging.
HANGING_SECONDS = 3.0


def share_of(threads: int) -> int:
    """Return how many of the threads one hanging backend or volume may hold."""
    return int(max(2, threads // 3))


def seconds_to_wait(
    since: float | None, hanging_after: float = HANGING_SECONDS
) -> float:
    """Return how long a request waits for work that runs since then.

    ``since`` is a value of time.monotonic(), None if no work runs. 0 means that it
    counts as hanging.
    """
    if since is None:
        return hanging_after
    return max(0.0, since + hanging_after - time.monotonic())


class ThreadShare:
    """The threads that may wait for one thing at once, such as Keystone."""

    def __init__(self, most: int) -> None:
        """``most``: how many of them."""
        self._most = most
        self._running: dict[int, float] = {}
        self._changed = threading.Condition()

    def acquire(self) -> bool:
        """Return whether the calling thread may begin.

        It waits as long as the running work does not count as hanging, and its own
        request is not older than that. Else requests that wait for one thing would hold
        all threads: 60 clients with wrong passwords delayed others for 6 s.
        """
        with self._changed:
            while len(self._running) >= self._most:
                left = seconds_to_wait(min(self._running.values()))
                left = min(left, HANGING_SECONDS - request_scope.age())
                if left <= 0:
                    return False
                self._changed.wait(left)
            self._running[threading.get_ident()] = time.monotonic()
            return True

    def release(self) -> None:
        """Let another thread begin."""
        with self._changed:
            del self._running[threading.get_ident()]
            self._changed.notify()
