# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Print the table of mutants at the end of a run."""

from __future__ import annotations

import pytest

from lunshare.drivers.conformance.summary import properties


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each mutant, with the behaviour that must notice it."""
    rows = [row for _, row in properties(terminalreporter.stats, "mutant")]
    if not rows:
        return
    terminalreporter.section("broken drivers, and the behaviour that notices each")
    for mutant, behaviour, noticed in rows:
        result = "noticed" if noticed else "MISSED"
        terminalreporter.write_line(f"{result}  {mutant:<33} {behaviour}")
    noticed = sum(bool(row[2]) for row in rows)
    terminalreporter.write_line(f"{noticed} of {len(rows)} broken drivers noticed")
