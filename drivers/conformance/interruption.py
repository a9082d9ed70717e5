# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A driver that is killed between two of its steps, as kill -9 kills a daemon."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, TypeVar

from drivers.base import Root, TargetDriver, VolumeDriver

#: More steps than any verb of a driver has.
MOST_STEPS = 100


Driver = TypeVar("Driver", bound=VolumeDriver | TargetDriver)


class Killed(BaseException):
    """The end of a life. No driver may catch it."""


class Countdown:
    """Calls that may be made as often as there are steps; the last one kills."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: str = "") -> None:
        """One step was done.

        :raises Killed: it was the last.
        """
        self.left -= 1
        self.alive(step)

    def alive(self, step: str = "") -> None:
        """A step begins.

        :raises Killed: the last one is over.
        """
        if self.left <= 0:
            raise Killed(step)


class DyingRoot:
    """A door to root whose user is killed right after its last step.

    Programs in ``asking`` change nothing, so they are no steps. A command that
    fails is one: the driver does not live to see the error.
    """

    def __init__(self, root: Root, steps: int, asking: Collection[str] = ()) -> None:
        self._root, self._asking = root, asking
        self._done = Countdown(steps)

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """See drivers.base.Root."""
        if argv[0] in self._asking:
            return self._root.run(*argv, timeout=timeout)
        return str(self._step(argv[0], lambda: self._root.run(*argv, timeout=timeout)))

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """See drivers.base.Root."""
        if verb in self._asking:
            return self._root.call(verb, timeout=timeout, **arguments)
        return self._step(
            verb, lambda: self._root.call(verb, timeout=timeout, **arguments)
        )

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        self._done.alive(name)
        try:
            answer = work()
        except Exception:  # what ends the test itself, such as ^C, is no step
            self._done(name)
            raise
        self._done(name)
        return answer


def dying(driver: Driver, steps: int, asking: Collection[str] = ()) -> Driver:
    """The same driver in a life that ends with its ``steps``-th step of root's."""
    root = DyingRoot(driver.root, steps, asking)
    return type(driver)(driver.name, driver.options, root)


class Life(Generic[Driver]):
    """One life that is killed at some step, and the next one, which is not."""

    def __init__(self, dying: Driver, build: Callable[[], Driver]) -> None:
        self._dying, self._build = dying, build
        self.killed = False

    def ends(self, verb: str, *given: object, **named: object) -> None:
        """Begin to do what the verb says; the life ends in it, or right after it."""
        try:
            getattr(self._dying, verb)(*given, **named)
        except Killed:
            self.killed = True

    def next(self) -> Driver:
        """The driver as the next life builds and checks it."""
        again = self._build()
        again.check()
        return again

    def repeats(self, verb: str, *given: object, **named: object) -> Driver:
        """End in a verb, then do all of it in the next life; return its driver."""
        self.ends(verb, *given, **named)
        again = self.next()
        getattr(again, verb)(*given, **named)
        return again


def lives(
    dying: Callable[[int], Driver], build: Callable[[], Driver]
) -> Iterator[Life[Driver]]:
    """Lives that end with their first step, their second, and so on.

    The last is the first one that gets through: so a verb of ``n`` steps
    is tried ``n + 1`` times.
    """
    for steps in range(1, MOST_STEPS):
        life = Life(dying(steps), build)
        yield life
        if not life.killed:
            return
    raise AssertionError(f"after {MOST_STEPS} steps there was no end to the work")
