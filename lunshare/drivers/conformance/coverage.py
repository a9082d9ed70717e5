# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the kit tried, what it could not try, and where it counts steps.

The results are properties of the test's report; ``summary`` prints them at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic

import pytest

from lunshare.drivers.conformance import line_steps
from lunshare.drivers.conformance.interruption import (
    MOST_STEPS,
    Countdown,
    Driver,
    Kill,
    OnStep,
    kills,
)

NOT_OFFERED = "conformance-not-offered"
NOT_TRIED = "conformance-not-tried"
COUNTED = "conformance-counted"


class KitFixtures:
    """The base of the fixtures classes."""

    #: The abilities of the driver; see lunshare.drivers.abilities.
    can: Any

    def __init_subclass__(cls) -> None:
        """:raises TypeError: a bool that the kit does not read; it may be misspelt."""
        known = {name for base in cls.__mro__[1:] for name in vars(base)}
        for name, value in vars(cls).items():
            if isinstance(value, bool) and name not in known:
                raise TypeError(
                    f"{cls.__name__}.{name}: the kit does not read this attribute."
                    " Set what the driver can do in its ABILITIES"
                    " (lunshare/drivers/abilities.py)"
                )

    @pytest.fixture(autouse=True)
    def _record(self, request: pytest.FixtureRequest) -> None:
        self._properties = request.node.user_properties

    def not_tried(self, what: str, remedy: str) -> None:
        """Report that the kit could not try ``what``, a part of this behaviour.

        ``remedy`` continues "To try it, ...".
        """
        self._properties.append((NOT_TRIED, [what, remedy]))

    def not_offered(self, ability: str) -> None:
        """Report that the driver does not have the ability of this behaviour."""
        self._properties.append((NOT_OFFERED, [ability]))

    def counted(self, what: str, how_many: int) -> None:
        """Report how often something was done to the driver."""
        self._properties.append((COUNTED, [what, how_many]))


class DriverSteps(Generic[Driver]):
    """How the steps of one driver are counted, and how it is killed at each."""

    def __init__(
        self,
        build: Callable[[], Driver],
        watch_steps: Callable[[Driver, OnStep], Driver],
        counted: Callable[[str, int], None],
        overridden: bool = False,
    ) -> None:
        """``overridden``: the fixtures class has its own ``watch_steps``."""
        self._overridden = overridden
        self._build, self._watch_steps, self._counted = build, watch_steps, counted
        self.by_lines, self.in_child = False, False

    def probe(
        self, verb: Callable[[Driver], object], undo: Callable[[], bool]
    ) -> DriverSteps[Driver]:
        """Call a verb that changes something, and see how its steps are counted.

        ``undo`` undoes it, and returns whether there was anything to undo.
        """
        if self._overridden:
            return self
        steps: list[str] = []
        verb(self._watch_steps(self._build(), steps.append))
        undo()
        if not steps:
            self.by_lines = True
            self.in_child = line_steps.child_is_visible(self._build(), verb, undo)
        return self

    def watch_steps(self, on_step: OnStep) -> Driver:
        """A new instance that calls ``on_step`` after each of its steps."""
        if self.by_lines:
            here: Any = line_steps.InProcess(self._build(), on_step)
            return here  # type: ignore[no-any-return]
        return self._watch_steps(self._build(), on_step)

    def kills(self, *, may_do_nothing: bool = False) -> Iterator[Kill[Driver]]:
        """Kills at the first step of a verb, at its second step, and so on.

        A verb without any step was not tried. That is an error, unless
        ``may_do_nothing`` allows a verb that has nothing to do.
        """
        most, killed = (line_steps.MOST_LINES if self.by_lines else MOST_STEPS), 0
        for kill in kills(self._killable, self._build, most):
            yield kill
            killed += kill.killed
        assert killed or may_do_nothing, (
            "the verb made no step that the kit has seen, so it was never killed in"
            " it: override `watch_steps`"
        )
        self._counted("kills", killed)

    def _killable(self, steps: int) -> Driver:
        if self.by_lines:
            driver: Driver = line_steps.killable(self._build(), steps, self.in_child)
            return driver
        return self._watch_steps(self._build(), Countdown(steps))
