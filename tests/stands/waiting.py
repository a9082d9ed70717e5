# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition, and calls that run beside the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

# Polling uses the two processors that the tested code needs too.
_FIRST_SECONDS, _LONGEST_SECONDS, _GROWTH = 0.005, 0.3, 1.3


def until(
    condition: Callable[[], object],
    state: str = "the condition",
    seconds: float = 300.0,
) -> None:
    """Poll ``condition``; what it waits for has no event.

    :raises AssertionError: ``state`` did not come in so many seconds.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{state}: not within {seconds:g} s"
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_SECONDS)


class Later:
    """A call in a separate thread."""

    def __init__(self, call: Callable[..., Any], *given: object) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call, *given))
        self._thread.daemon = True
        self._thread.start()

    def _run(self, call: Callable[..., Any], *given: object) -> None:
        try:
            self._value = call(*given)
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def value(self, seconds: float = 60.0) -> Any:
        """What it returned, or the error it raised."""
        self._thread.join(seconds)
        assert self.done, f"not done within {seconds} seconds"
        if self._error is not None:
            raise self._error
        return self._value


def together(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run all at the same time; returns their results in order."""
    return [each.value() for each in [Later(call) for call in calls]]
