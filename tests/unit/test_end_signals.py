# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A signal that ends ``lunshare connect``: the attachment is known, and is undone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lunshare.agent.cli.end_signals import EndSignals

_NUMBERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


def attach(number: int, steps: list[str]) -> None:
    """A request that a signal meets, a login that it prevents, and an undo."""
    signals = EndSignals()
    with signals.raised():
        try:
            with signals.held():
                os.kill(os.getpid(), number)
                steps.append("answered")
            steps.append("logged in")
        finally:
            os.kill(os.getpid(), number)
            steps.append("undone")


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Tests that run in the background of a shell, or of nohup, ignore some."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _NUMBERS)
def test_a_signal_ends_after_the_answer_and_not_again_in_the_undo(number: int) -> None:
    before, steps = signal.getsignal(number), list[str]()
    with pytest.raises(SystemExit) as ended:
        attach(number, steps)
    assert (steps, ended.value.code) == (["answered", "undone"], 128 + number)
    assert signal.getsignal(number) is before


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    steps = list[str]()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        attach(signal.SIGHUP, steps)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert steps == ["answered", "logged in", "undone"]
