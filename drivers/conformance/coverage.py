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
    Life,
    Passed,
    lives,
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
                    " (drivers/abilities.py)"
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


class Stepping(Generic[Driver]):
    """How the steps of one driver are counted, and the lives that end at each."""

    def __init__(
        self,
        build: Callable[[], Driver],
        watched: Callable[[Driver, Passed], Driver],
        counted: Callable[[str, int], None],
        hooked: bool = False,
    ) -> None:
        """``hooked``: the binding shows the steps by a ``watched`` of its own."""
        self._hooked = hooked
        self._build, self._watched, self._counted = build, watched, counted
        self.by_lines, self.apart = False, False

    def probe(
        self, verb: Callable[[Driver], object], undone: Callable[[], bool]
    ) -> Stepping[Driver]:
        """Find out by a verb that changes something.

        ``undone`` undoes it, and says whether there was anything to undo.
        """
        if self._hooked:
            return self
        steps: list[str] = []
        verb(self._watched(self._build(), steps.append))
        undone()
        if not steps:
            self.by_lines = True
            self.apart = line_steps.outside(self._build(), verb, undone)
        return self

    def watched(self, passed: Passed) -> Driver:
        """A new instance that calls ``passed`` after each of its steps."""
        if self.by_lines:
            here: Any = line_steps.Here(self._build(), passed)
            return here  # type: ignore[no-any-return]
        return self._watched(self._build(), passed)

    def lives(self, *, idle: bool = False) -> Iterator[Life[Driver]]:
        """Lives that end at the first step of a verb, the second, and so on.

        With ``idle`` the verb may have nothing to do. Otherwise one that makes no
        step has not been tried, and that is an error.
        """
        most, kills = (line_steps.MOST_LINES if self.by_lines else MOST_STEPS), 0
        for life in lives(self._dying, self._build, most):
            yield life
            kills += life.killed
        assert kills or idle, (
            "the verb made no step that the kit has seen, so it was never killed in"
            " it: override `watched`"
        )
        self._counted("kills", kills)

    def _dying(self, steps: int) -> Driver:
        if self.by_lines:
            ends: Driver = line_steps.dying(self._build(), steps, self.apart)
            return ends
        return self._watched(self._build(), Countdown(steps))
