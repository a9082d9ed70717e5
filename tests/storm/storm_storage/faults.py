# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the storage: calls that take longer, hang, fail or die.

A driver of the fakes passes named points; at each of them the first armed fault
that fits is done. Every error says ``storm``, so that an answer of the API tells
whether it was provoked.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from drivers import errors

#: Where an error may be raised that promises that nothing was done.
_BEFORE = ".before"
_ROOM = ("create", "extend", "create_snapshot", "create_from")
_TARGET = ("apply", "remove")


@dataclass(slots=True)
class Fault:
    """``kind`` is hang or fail; it ends after so many ``times`` or seconds."""

    kind: str
    backend: str
    point: str
    times: int
    seconds: float


class Faults:
    """The faults that are armed now."""

    def __init__(self, seed: int, delay: float) -> None:
        """``delay``: the longest time in seconds that any point may take."""
        self._random, self.delay = random.Random(seed), delay
        self._mutex, self._armed = threading.Lock(), list[Fault]()
        self._released = threading.Event()

    def arm(self, fault: Fault) -> None:
        """Have it happen."""
        with self._mutex:
            self._armed.append(fault)

    def clear(self) -> None:
        """Nothing goes wrong any more; what hangs goes on."""
        with self._mutex:
            self._armed.clear()
            self._released.set()
            self._released = threading.Event()

    def at(self, backend: str, point: str) -> None:
        """A driver of that backend passes the point."""
        with self._mutex:
            fault, released = self._due(backend, point), self._released
            pause = self._random.random() ** 4 * self.delay
        if fault is None:
            released.wait(pause)
        elif fault.kind == "hang":
            released.wait(fault.seconds)
        else:
            raise _error(backend, point)

    def chance(self) -> float:
        """A number from 0 to 1."""
        with self._mutex:
            return self._random.random()

    def _due(self, backend: str, point: str) -> Fault | None:
        for fault in self._armed:
            if (fault.backend, fault.point) == (backend, point):
                fault.times -= 1
                if fault.times <= 0:
                    self._armed.remove(fault)
                return fault
        return None


def _error(backend: str, point: str) -> errors.DriverError:
    verb = point.partition(".")[0]
    if point.endswith(_BEFORE) and verb in _ROOM:
        return errors.NoSpace(backend, f"storm at {point}")
    if verb in _TARGET:
        return errors.TargetFailed("storm", f"storm at {point}")
    return errors.CommandFailed(("storm", point), 5, f"storm on {backend}")
