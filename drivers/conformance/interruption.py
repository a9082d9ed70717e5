# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A driver's steps, and a driver that is killed between two, as kill -9 kills a daemon.

A step is what the driver asks of root. A driver that asks nothing of root works in
this process: its steps are the lines of its own code (``conformance/line_steps``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, TypeVar

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.errors import DeadlineExceeded, DriverError

#: More steps than any verb of a driver has.
MOST_STEPS = 100

#: Called with a step's name right after that step was done.
OnStep = Callable[[str], None]

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
        if self.left <= 0:
            raise Killed(step)


class ActOnce:
    """Does something after one step, the first time that it is passed."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self._left, self._act = step, act
        self.acted = False

    def __call__(self, step: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            self.acted = True
            self._act()

    def stop(self) -> bool:
        """Do nothing from here on; whether it was done."""
        self._left = 0
        return self.acted


class ActBefore(ActOnce):
    """As that, but right before the step where the step is one of root's."""

    def perform(self, name: str, work: Callable[[], Any]) -> Any:
        """A step of root's; see ``WatchedRoot``."""
        self(name)
        return work()


class MissDeadline(ActBefore):
    """The nth step is not done within its deadline. What asks root does it never."""

    def __init__(self, step: int) -> None:
        super().__init__(step, self._late)

    def _late(self) -> None:
        raise DeadlineExceeded("a step of this test", 0)


class UnfinishedCall:
    """A life that ends in its nth step, while that step is still under way.

    ``started`` is set when it is. What asks root has a thread that goes on with it;
    other drivers stand still there until ``finish``, and do that one step then.
    """

    def __init__(self, step: int) -> None:
        self._left = step
        self.started, self._gate = threading.Event(), threading.Event()
        self._working: threading.Thread | None = None

    def __call__(self, step: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            self.started.set()
            self._gate.wait(60)
        elif self._left < 0:
            raise Killed(step)

    def perform(self, name: str, work: Callable[[], Any]) -> Any:
        """A step of root's; see ``WatchedRoot``."""
        self._left -= 1
        if self._left > 0:
            return work()
        if self._left == 0:
            self._working = threading.Thread(target=_ignore_errors, args=(work,))
            self._working.start()
            self.started.set()
        raise Killed(name)

    def finish(self) -> None:
        """Let the step end; back when it has."""
        self._gate.set()
        if self._working:
            self._working.join(60)


def _ignore_errors(work: Callable[[], Any]) -> None:
    with contextlib.suppress(DriverError):  # nobody is there to see it
        work()


class WatchedRoot:
    """A door to root that tells after each step, and stays shut to a killed driver.

    Programs in ``read_only_steps`` change nothing, so they are no steps. A command that
    fails is one: a killed driver does not live to see the error. A watcher that has
    ``perform`` is given the step to do.
    """

    def __init__(
        self, root: Root, on_step: OnStep, read_only_steps: Collection[str] = ()
    ) -> None:
        self._root, self._asking, self._passed = root, read_only_steps, on_step
        self._end: Killed | None = None

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """See lunshare.drivers.base.Root."""
        if argv[0] in self._asking:
            return self._root.run(*argv, timeout=timeout)
        return str(self._step(argv[0], lambda: self._root.run(*argv, timeout=timeout)))

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """See lunshare.drivers.base.Root."""
        if verb in self._asking:
            return self._root.call(verb, timeout=timeout, **arguments)
        return self._step(
            verb, lambda: self._root.call(verb, timeout=timeout, **arguments)
        )

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        if self._end:
            raise self._end
        try:
            answer = self._done(name, work)
        except Killed as end:
            self._end = end
            raise
        return answer

    def _done(self, name: str, work: Callable[[], Any]) -> Any:
        if perform := getattr(self._passed, "perform", None):
            return perform(name, work)
        try:
            answer = work()
        except Exception:  # what ends the test itself, such as ^C, is no step
            self._passed(name)
            raise
        self._passed(name)
        return answer


def watch_steps(
    driver: Driver, on_step: OnStep, read_only_steps: Collection[str] = ()
) -> Driver:
    """The same driver, which says when it has passed a step of root's."""
    root = WatchedRoot(driver.root, on_step, read_only_steps)
    return type(driver)(driver.name, driver.options, root)


class Kill(Generic[Driver]):
    """One life that is killed at some step, and the next one, which is not."""

    def __init__(self, killable: Driver, build: Callable[[], Driver]) -> None:
        self._killable, self._build = killable, build
        self.killed = False

    def call(self, verb: str, *given: object, **named: object) -> None:
        """Begin to do what the verb says; the life ends in it, or right after it."""
        try:
            getattr(self._killable, verb)(*given, **named)
        except Killed:
            self.killed = True

    def restart(self) -> Driver:
        """The driver as the next life builds and checks it."""
        again = self._build()
        again.check()
        return again

    def call_and_retry(self, verb: str, *given: object, **named: object) -> Driver:
        """End in a verb, then do all of it in the next life; return its driver."""
        self.call(verb, *given, **named)
        again = self.restart()
        getattr(again, verb)(*given, **named)
        return again


def kills(
    killable: Callable[[int], Driver],
    build: Callable[[], Driver],
    most: int = MOST_STEPS,
) -> Iterator[Kill[Driver]]:
    """Lives that end with their first step, their second, and so on.

    The last is the first one that gets through: so a verb of ``n`` steps
    is tried ``n + 1`` times.
    """
    for steps in range(1, most):
        kill = Kill(killable(steps), build)
        yield kill
        if not kill.killed:
            return
    raise AssertionError(f"after {most} steps there was no end to the work")
