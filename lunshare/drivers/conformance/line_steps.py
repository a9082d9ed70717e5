# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of a driver that works in this process: the lines of its own code.

Python reports each line before it runs (sys.settrace). If the storage of a driver is
outside this process, the driver runs in a child process and is killed by SIGKILL. If
the storage is in this process, the driver gets an exception instead. Its ``finally``
blocks run then; a kill without them is not possible in the process of the storage.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic

from lunshare.drivers.conformance.interruption import Countdown, Driver, Killed, OnStep

#: No verb of a driver runs as many lines.
MOST_LINES = 2000

_CONTRACT = "lunshare.drivers"


def own_code(driver: type) -> tuple[str, ...]:
    """The paths of a driver's code: the package of each of its classes."""
    found = set()
    for each in driver.__mro__:
        module = sys.modules[each.__module__]
        file = getattr(module, "__file__", None)
        if file is None or each.__module__ in ("abc", "typing", f"{_CONTRACT}.base"):
            continue
        alone = module.__package__ in ("", None, _CONTRACT)
        found.add(file if alone else os.path.dirname(file) + os.sep)
    return tuple(found)


class Lines:
    """A context in which ``on_step`` is called before each line of a driver's code."""

    def __init__(self, driver: object, on_step: OnStep) -> None:
        self._own, self._on_step = own_code(type(driver)), on_step

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._entered)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _entered(self, frame: FrameType, event: str, arg: object) -> Any:
        own = frame.f_code.co_filename.startswith(self._own)
        return self._line if own else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self._on_step(f"line {frame.f_lineno}")
        return self._line


class _Proxy(Generic[Driver]):
    """A driver whose verbs run in another way."""

    def __init__(self, driver: Driver, on_step: OnStep) -> None:
        self._driver, self._on_step = driver, on_step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driver, name)
        if not inspect.ismethod(found):
            return found
        return lambda *given, **named: self._run(lambda: found(*given, **named))

    def _run(self, verb: Callable[[], Any]) -> Any:
        raise NotImplementedError


class InProcess(_Proxy[Driver]):
    """The verbs run in this process."""

    def _run(self, verb: Callable[[], Any]) -> Any:
        with Lines(self._driver, self._on_step):
            return verb()


class InChild(_Proxy[Driver]):
    """The verbs run in a child, which is killed when ``on_step`` raises Killed."""

    def _run(self, verb: Callable[[], Any]) -> Any:
        with warnings.catch_warnings():
            # Python 3.12 warns that the child has no other threads. It needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            self._live(verb)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise Killed
        assert status == 0, "the verb failed in a child of this process; see stderr"

    def _live(self, verb: Callable[[], Any]) -> None:
        def on_step(step: str) -> None:
            try:
                self._on_step(step)
            except Killed:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with Lines(self._driver, on_step):
                verb()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


def child_is_visible(
    driver: Driver, verb: Callable[[Driver], object], undo: Callable[[], bool]
) -> bool:
    """Whether this process sees what its child does with the driver."""
    child: Any = InChild(driver, lambda step: None)
    verb(child)
    return undo()


def killable(driver: Driver, steps: int, in_child: bool) -> Any:
    """The same driver, which is killed before its ``steps``-th line."""
    return (InChild if in_child else InProcess)(driver, Countdown(steps))
