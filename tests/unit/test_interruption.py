# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the kit kills a driver: after which step, and that nothing happens then."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lunshare.drivers.base import Root
from lunshare.drivers.conformance.fixtures import defaults
from lunshare.drivers.conformance.interruption import (
    MOST_STEPS,
    Countdown,
    Killed,
    WatchedRoot,
    kills,
    watch_steps,
)
from lunshare.drivers.conformance.root import NoRoot
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.fake.fake_driver import FakeVolumes


class Recording(NoRoot):
    """A root helper that records the calls; "false" fails, "stop" is ^C."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        self.asked.append(argv[0])
        if argv == ("false",):
            raise CommandFailed(argv, 1, "")
        if argv == ("stop",):
            raise KeyboardInterrupt
        return argv[0]

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: object) -> str:
        return self.run(verb)


@pytest.fixture
def root() -> Recording:
    return Recording()


def test_kill_comes_after_the_step(root):
    dying = WatchedRoot(root, Countdown(2))
    assert dying.run("one") == "one"
    with pytest.raises(Killed):
        dying.call("two")
    assert root.asked == ["one", "two"]


def test_killed_driver_does_nothing(root):
    dying = WatchedRoot(root, Countdown(1))
    for _ in range(3):
        with pytest.raises(Killed):
            dying.run("one")
    assert root.asked == ["one"]


def test_failed_step_counts_as_a_step(root):
    with pytest.raises(Killed):
        WatchedRoot(root, Countdown(1)).run("false")
    with pytest.raises(CommandFailed):
        WatchedRoot(root, Countdown(2)).run("false")


def test_error_that_ends_the_run_is_not_hidden(root):
    with pytest.raises(KeyboardInterrupt):
        WatchedRoot(root, Countdown(1)).run("stop")


def test_queries_are_not_steps(root):
    dying = WatchedRoot(root, Countdown(1), read_only_steps=("lvs", "lio.observe"))
    assert [dying.run("lvs"), dying.call("lio.observe")] == ["lvs", "lio.observe"]
    with pytest.raises(Killed):
        dying.run("lvremove")


class Walking:
    """A driver whose only verb takes some steps."""

    def __init__(self, steps: int, root: Root) -> None:
        self._steps, self._root = steps, root

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def walk(self) -> None:
        for _ in range(self._steps):
            self._root.run("step")


def tried(root: Recording, steps: int) -> list[bool]:
    """Whether each run was killed."""
    killed = []
    walking: Any = partial(Walking, steps)
    for kill in kills(
        lambda last: walking(WatchedRoot(root, Countdown(last))), lambda: walking(root)
    ):
        kill.call_and_retry("walk")
        killed.append(kill.killed)
    return killed


def test_each_step_has_one_run_and_the_last_run_completes(root):
    assert tried(root, 3) == [True, True, True, False]
    assert len(root.asked) == (1 + 2 + 3 + 3) + 4 * 3


def test_endless_work_is_reported(root):
    with pytest.raises(AssertionError, match="no end"):
        tried(root, MOST_STEPS)


def test_killed_driver_has_the_same_class_and_options():
    options = defaults(FakeVolumes)
    driver = watch_steps(FakeVolumes("one", options, NoRoot()), Countdown(1))
    assert type(driver) is FakeVolumes
    assert (driver.name, driver.options) == ("one", options)
    with pytest.raises(Killed):
        driver.root.run("anything")
