# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Kill a driver between two of its steps, as kill -9 kills a daemon.

A step is one call of the root helper. If a driver does not use the root helper, its
steps are the lines of its own code (``conformance/line_steps``).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

from lunshare.drivers.base import Root, TargetDriver, VolumeDriver
from lunshare.drivers.errors import DeadlineExceeded, DriverError
from lunshare.drivers.protocol import frames
from lunshare.helper.commands import Commands

#: No verb of a driver has as many steps.
MOST_STEPS = 100

_RECEIVE, _COMMAND = frames.receive.__code__, Commands.run.__code__

#: Called with the name of a step right after the step.
OnStep = Callable[[str], None]

Driver = TypeVar("Driver", bound=VolumeDriver | TargetDriver)


class Killed(BaseException):
    """The driver is killed here. No driver may catch this."""


class Countdown:
    """Counts steps, and kills the driver after the last one."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: str = "") -> None:
        """Count one step.

        :raises Killed: it was the last step.
        """
        self.left -= 1
        if self.left <= 0:
            raise Killed(step)


class ActOnce:
    """Calls ``act`` once, after the given step."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self._left, self._act = step, act
        self.acted = False

    def __call__(self, step: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            self.acted = True
            self._act()

    def stop(self) -> bool:
        """Do nothing from now on; return whether ``act`` was called."""
        self._left = 0
        return self.acted


class ActBefore(ActOnce):
    """Calls ``act`` right before the step, if the step is a call of the root helper."""

    def perform(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a step of the root helper; see ``WatchedRoot``."""
        self(name)
        return work()


class MissDeadline(ActBefore):
    """The given step misses its deadline. A call of the root helper is not done."""

    def __init__(self, step: int) -> None:
        super().__init__(step, self._late)

    def _late(self) -> None:
        raise DeadlineExceeded("a step of this test", 0)


class UnfinishedCall:
    """A call whose driver is killed in the given step, while the step still runs.

    ``started`` is set when the step has started, or has ended. A call of the root
    helper continues in a thread. Another driver waits in the step until ``finish``,
    and then does it.
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
        """Do a step of the root helper; see ``WatchedRoot``."""
        self._left -= 1
        if self._left > 0:
            return work()
        if self._left == 0:
            self._working = threading.Thread(target=self._work, args=(work,))
            self._working.start()
        raise Killed(name)

    def _work(self, work: Callable[[], Any]) -> None:
        sys.setprofile(self._notice_start)
        try:
            _ignore_errors(work)
        finally:
            sys.setprofile(None)
            self.started.set()

    def _notice_start(self, frame: FrameType, event: str, value: object) -> None:
        """Set ``started`` when the helper reports progress, or the command runs.

        The helper's first report comes when it has locked the disk. Not before: two
        requests may get the lock in another order than they were sent in, as seen on a
        machine with a load of 8. Then the repeat is done first, a host writes, and the
        first call overwrites it. The helper starts nothing for a client that is gone,
        but here the client of the first call is still there. A verb without reports is
        too short to be repeated in the meantime.
        """
        code, has_locked = frame.f_code, _is_report(value)
        runs = event == "call" and code is _COMMAND
        if runs or (event == "return" and code is _RECEIVE and has_locked):
            sys.setprofile(None)
            self.started.set()

    def finish(self) -> None:
        """Let the step end, and wait until it has ended."""
        self._gate.set()
        if self._working:
            self._working.join(60)


def _is_report(value: object) -> bool:
    return isinstance(value, dict) and "progress" in value


def _ignore_errors(work: Callable[[], Any]) -> None:
    with contextlib.suppress(DriverError):  # the driver is killed and gets no error
        work()


class WatchedRoot:
    """A root helper that calls ``on_step`` after each step.

    It refuses every call of a killed driver. Commands in ``read_only_steps`` change
    nothing, so they are not steps. A command that fails is a step: a killed driver does
    not get the error. If ``on_step`` has a method ``perform``, it does the step itself.
    """

    def __init__(
        self, root: Root, on_step: OnStep, read_only_steps: Collection[str] = ()
    ) -> None:
        self._root, self._on_step = root, on_step
        self._read_only_steps = read_only_steps
        self._end: Killed | None = None

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """See lunshare.drivers.driver.Root."""
        if argv[0] in self._read_only_steps:
            return self._root.run(*argv, timeout=timeout)
        return str(self._step(argv[0], lambda: self._root.run(*argv, timeout=timeout)))

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """See lunshare.drivers.driver.Root."""
        if verb in self._read_only_steps:
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
        if perform := getattr(self._on_step, "perform", None):
            return perform(name, work)
        try:
            answer = work()
        except Exception:  # ^C and the like end the test: not a step
            self._on_step(name)
            raise
        self._on_step(name)
        return answer


def watch_steps(
    driver: Driver, on_step: OnStep, read_only_steps: Collection[str] = ()
) -> Driver:
    """Return the same driver, which calls ``on_step`` after each root helper call."""
    root = WatchedRoot(driver.root, on_step, read_only_steps)
    return type(driver)(driver.name, driver.options, root)


class Kill(Generic[Driver]):
    """A driver that is killed at a step, and the driver after the restart."""

    def __init__(self, killable: Driver, build: Callable[[], Driver]) -> None:
        self._killable, self._build = killable, build
        self.killed = False

    def call(self, verb: str, *given: object, **named: object) -> None:
        """Call the verb; the driver is killed in it, or the verb ends before."""
        try:
            getattr(self._killable, verb)(*given, **named)
        except Killed:
            self.killed = True

    def restart(self) -> Driver:
        """Build and check the driver again, as the daemon does after a restart."""
        again = self._build()
        again.check()
        return again

    def call_and_retry(self, verb: str, *given: object, **named: object) -> Driver:
        """Call the verb, restart, and retry it; return the new driver."""
        self.call(verb, *given, **named)
        again = self.restart()
        getattr(again, verb)(*given, **named)
        return again


def kills(
    killable: Callable[[int], Driver],
    build: Callable[[], Driver],
    most: int = MOST_STEPS,
) -> Iterator[Kill[Driver]]:
    """Kills at the first step, at the second step, and so on.

    The last one is not killed: a verb of ``n`` steps is tried ``n + 1`` times.
    """
    for steps in range(1, most):
        kill = Kill(killable(steps), build)
        yield kill
        if not kill.killed:
            return
    raise AssertionError(f"after {most} steps there was no end to the work")
