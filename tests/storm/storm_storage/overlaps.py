# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find changing verbs that run at the same time on one volume.

The callers of drivers promise that this does not happen. If a verb outlives its caller,
the next verb waits for it, as in the root helper. Two verbs of one driver at the same
time are a bug of the daemon and are recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_BY_ID = frozenset({"delete", "unmanage", "remove"})
_BY_VOLUME = frozenset({"create", "extend", "create_from", "fill", "manage"})
_BY_SNAPSHOT = frozenset({"create_snapshot", "revert"})


class Overlaps:
    """The verb that runs on each volume. ``seen`` has a sentence for each overlap."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._mutex = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._at_work: dict[str, tuple[str, str, Callable[[], bool]]] = {}

    @contextmanager
    def working(
        self,
        driver: str,
        verb: str,
        given: tuple[Any, ...],
        awaited: Callable[[], bool],
    ) -> Iterator[None]:
        """Run a verb of that driver. ``awaited``: does the caller wait?

        A verb without a waiting caller may run beside its retry.
        """
        volume_id = _volume_of(verb, given)
        if volume_id is None:
            yield
            return
        with self._mutex:
            lock = self._locks.setdefault(volume_id, threading.Lock())
            before = self._at_work.get(volume_id)
            if before and before[0] == driver and before[2]():
                self.seen.append(
                    f"{verb} of volume {volume_id} started while {before[1]} of it"
                    " was running in the same driver"
                )
        with lock:
            self._at_work[volume_id] = (driver, verb, awaited)
            try:
                yield
            finally:
                del self._at_work[volume_id]


def _volume_of(verb: str, given: tuple[Any, ...]) -> str | None:
    if verb in _BY_ID:
        return str(given[0])
    if verb in _BY_VOLUME:
        return str(given[0].id)
    if verb in _BY_SNAPSHOT or verb == "apply":
        return str(given[0].volume_id)
    return None
