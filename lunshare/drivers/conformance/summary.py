# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The summary at the end of a run of the kit: one paragraph for each driver.

It shows how many behaviours hold, which ones the driver does not offer, which ones
failed and why, and what was NOT TRIED with the fixture to override.

A pytest plugin: ``pytest_plugins = ["lunshare.drivers.conformance.summary"]`` in the
conftest.py above your tests. It works with pytest-xdist too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lunshare.drivers.conformance.coverage import COUNTED, NOT_OFFERED, NOT_TRIED

#: The user property of a test that names its binding of the kit.
_BINDING = "conformance"
_OUTCOMES = ("passed", "failed", "error")

_PARTIAL = "not tried completely"
_REFUSED = "not offered by the driver"


@dataclass
class Results:
    """The results of one binding. A behaviour is a test's name without ``test_``."""

    #: From a behaviour to its outcome: a word of the first line of the paragraph.
    outcomes: dict[str, str] = field(default_factory=dict)
    #: From a behaviour to its error, in one line.
    errors: dict[str, str] = field(default_factory=dict)
    #: From an ability that the driver does not have to the behaviours that need it.
    not_offered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: From what an author can do to what was not tried, with the behaviour.
    not_tried: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, report: Any) -> None:
        """Add a report of one behaviour. A failure overrides what came before."""
        behaviour = report.nodeid.rpartition("::test_")[2]
        new = behaviour not in self.outcomes
        if outcome != "passed":
            self.outcomes[behaviour] = "failed"
            self.errors[behaviour] = _error(report)
        self.outcomes.setdefault(behaviour, "hold")
        # The report of a failed teardown repeats the properties of the call's report.
        for name, value in report.user_properties if new else ():
            self._add_property(behaviour, name, value)

    def _add_property(self, behaviour: str, name: str, value: Any) -> None:
        if name == COUNTED:
            self.counts[value[0]] += value[1]
        elif name == NOT_OFFERED:
            self.not_offered[value[0]].add(behaviour)
            self._replace_hold(behaviour, _REFUSED)
        elif name == NOT_TRIED:
            what, remedy = value
            self.not_tried[remedy].add(f"{what} ({behaviour})")
            self._replace_hold(behaviour, _PARTIAL)

    def _replace_hold(self, behaviour: str, outcome: str) -> None:
        if self.outcomes[behaviour] == "hold":
            self.outcomes[behaviour] = outcome

    def lines(self, name: str) -> Iterator[tuple[str, dict[str, bool]]]:
        """The paragraph, as lines with their colours."""
        yield f"{name}: {self._first_line()}", {}
        if self.not_offered:
            abilities = (
                f"{a} (for {len(b)})" for a, b in sorted(self.not_offered.items())
            )
            yield f"    abilities it does not have: {', '.join(abilities)}", {}
        for behaviour, error in sorted(self.errors.items()):
            yield f"    FAILED: {behaviour}", {"red": True}
            yield f"        {error}", {}
        for remedy, parts in sorted(self.not_tried.items()):
            yield f"    NOT TRIED. To try it, {remedy}:", {"yellow": True}
            yield from ((f"        {part}", {}) for part in sorted(parts))

    def _first_line(self) -> str:
        totals = Counter(self.outcomes.values())
        parts = [f"{totals['hold']} of {len(self.outcomes)} behaviours hold"]
        others = ("failed", _REFUSED, _PARTIAL)
        parts += [f"{totals[each]} {each}" for each in others if totals[each]]
        parts += [f"{count} {what}" for what, count in sorted(self.counts.items())]
        return ", ".join(parts)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of a binding of the kit; its report carries the mark."""
    for item in items:
        binding = getattr(item, "cls", None)
        if binding is not None and _is_of_the_kit(binding):
            item.user_properties.append((_BINDING, binding.__name__))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a paragraph for each binding."""
    results = _results(terminalreporter.stats)
    if not results:
        return
    terminalreporter.section("conformance kit")
    for name, each in sorted(results.items()):
        for line, colours in each.lines(name):
            terminalreporter.write_line(line, **colours)


def properties(stats: dict[str, list[Any]], name: str) -> Iterator[tuple[str, Any]]:
    """Outcome and value of every property of that name in the run's reports."""
    for outcome, report in _reports(stats):
        for key, value in report.user_properties:
            if key == name:
                yield outcome, value


def _reports(stats: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
    for outcome in _OUTCOMES:
        for report in stats.get(outcome, ()):
            if hasattr(report, "user_properties"):  # a CollectReport has none
                yield outcome, report


def _results(stats: dict[str, list[Any]]) -> dict[str, Results]:
    found: dict[str, Results] = defaultdict(Results)
    for outcome, report in _reports(stats):
        binding = dict(report.user_properties).get(_BINDING)
        if binding is not None:
            found[str(binding)].add(outcome, report)
    return found


def _error(report: Any) -> str:
    """The first line of the error, and the phase of the test if it is not the call."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash else report.longrepr).strip()
    first = message.partition("\n")[0] or "no message"
    return first if report.when == "call" else f"in the {report.when} of it: {first}"


def _is_of_the_kit(binding: type) -> bool:
    return any(
        base.__module__.startswith("lunshare.drivers.conformance.")
        and base.__name__.endswith("Contract")
        for base in binding.__mro__
    )
