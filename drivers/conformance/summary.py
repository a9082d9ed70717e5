# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the kit says at its end: each driver, and how many behaviours it has.

Below it stands in capitals what its binding did not let the kit try, and why.

A pytest plugin: ``pytest_plugins = ["lunshare.drivers.conformance.summary"]`` in the
conftest.py above your tests. Works with pytest-xdist too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from lunshare.drivers.conformance.coverage import COUNTED, NOT_TRIED

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
    untried = _untried(terminalreporter.stats)
    for binding, counts in sorted(totals.items()):
        terminalreporter.write_line(f"{binding:<24} {_told(counts)}")
        for what, why in sorted(untried[binding]):
            terminalreporter.write_line(f"    NOT TRIED: {what}: {why}", yellow=True)


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
    for _, (binding, what, how_many) in properties(stats, COUNTED):
        totals[binding][what] += how_many
    return totals


def _untried(stats: dict[str, list[object]]) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for _, (binding, what, why) in properties(stats, NOT_TRIED):
        found[binding].add((what, why))
    return found


def _told(counts: Counter[str]) -> str:
    kept = f"{counts['passed']} behaviours kept"
    return ", ".join([kept, *_others(counts, ("failed", "error", "kills"))])


def _others(counts: Counter[str], outcomes: Iterable[str]) -> Iterator[str]:
    return (f"{counts[each]} {each}" for each in outcomes if counts[each])


def _is_of_the_kit(binding: type) -> bool:
    return any(
        base.__module__.startswith("lunshare.drivers.conformance.")
        and base.__name__.endswith("Contract")
        for base in binding.__mro__
    )
