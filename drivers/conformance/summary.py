# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the kit says at its end: each driver, and how many behaviours it has.

A pytest plugin: ``pytest_plugins = ["drivers.conformance.summary"]`` in the
conftest.py above your tests. Works with pytest-xdist too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

#: Where an item and its report keep which binding of the kit they belong to.
_PROPERTY = "conformance"
_OUTCOMES = ("passed", "failed", "error")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to a binding of the kit; a report carries the mark."""
    for item in items:
        binding = getattr(item, "cls", None)
        if binding is not None and _is_of_the_kit(binding):
            item.user_properties.append((_PROPERTY, binding.__name__))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each binding."""
    totals = _totals(terminalreporter.stats)
    if not totals:
        return
    terminalreporter.section("conformance kit")
    for binding, counts in sorted(totals.items()):
        terminalreporter.write_line(f"{binding:<24} {_told(counts)}")


def properties(stats: dict[str, list[object]], name: str) -> Iterator[tuple[str, Any]]:
    """Outcome and value of every property of that name in the run's reports."""
    for outcome in _OUTCOMES:
        for report in stats.get(outcome, ()):
            for key, value in getattr(report, "user_properties", ()):
                if key == name:
                    yield outcome, value


def _totals(stats: dict[str, list[object]]) -> dict[str, Counter[str]]:
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, binding in properties(stats, _PROPERTY):
        totals[str(binding)][outcome] += 1
    return totals


def _told(counts: Counter[str]) -> str:
    kept = f"{counts['passed']} behaviours kept"
    return ", ".join([kept, *_others(counts, ("failed", "error"))])


def _others(counts: Counter[str], outcomes: Iterable[str]) -> Iterator[str]:
    return (f"{counts[each]} {each}" for each in outcomes if counts[each])


def _is_of_the_kit(binding: type) -> bool:
    return any(
        base.__module__.startswith("drivers.conformance.")
        and base.__name__.endswith("Contract")
        for base in binding.__mro__
    )
