# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the storage: calls that take longer, hang, fail or die.

The fake drivers pass named points. At each point the first armed fault that fits
happens. Every error contains ``storm``, so an answer of the API shows that the storm
caused it.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from lunshare.drivers import errors

#: Points where an error may be raised that promises that nothing was done.
_BEFORE = ".before"
#: Verbs that are slow at times; those that a migration needs are slow more often.
_SLOW = (
    *("disk",) * 6,
    *("create", "create_snapshot", "create_from", "fill", "extend", "revert"),
    *("delete", "apply", "remove", "unmanage", "none"),
)
_DAYS = 0.7  # seconds for which one verb is slow
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
        """``delay``: the longest duration of a point, in seconds."""
        self._random, self.delay = random.Random(seed), delay
        self._mutex, self._armed = threading.Lock(), list[Fault]()
        self._released = threading.Event()
        #: The backend and point of each call that hangs.
        self.hanging = list[tuple[str, str]]()
        self._slow, self._slow_until = "", 0.0

    def arm(self, fault: Fault) -> None:
        """Add a fault."""
        with self._mutex:
            self._armed.append(fault)

    def clear(self) -> None:
        """Remove all faults; what hangs continues."""
        with self._mutex:
            self._armed.clear()
            self._released.set()
            self._released = threading.Event()

    def at(self, backend: str, point: str) -> None:
        """A driver of that backend passes the point."""
        with self._mutex:
            fault, released = self._due(backend, point), self._released
        if fault is None:
            self.pause(point.partition(".")[0])
        elif fault.kind == "hang":
            self.hanging.append((backend, point))
            released.wait(fault.seconds)
            self.hanging.remove((backend, point))
        else:
            raise _error(backend, point)

    def pause(self, verb: str) -> None:
        """Wait a short time; a long time if the verb is the slow one of these seconds.

        It is slow in four of ten calls, so that a later call can overtake it.
        """
        with self._mutex:
            if time.monotonic() > self._slow_until:
                self._slow = self._random.choice(_SLOW)
                self._slow_until = time.monotonic() + _DAYS
            slow = verb == self._slow and self._random.random() < 0.4
            longest = self.delay if slow else self.delay / 1000
            seconds, released = self._random.random() * longest, self._released
        released.wait(seconds)

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
