# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The mutants' table at the end of a run. The kit prints its totals by itself."""

from __future__ import annotations

import pytest

from lunshare.drivers.conformance.summary import properties


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each mutant, with the behaviour that should notice it."""
    rows = [row for _, row in properties(terminalreporter.stats, "mutant")]
    if not rows:
        return
    terminalreporter.section("broken drivers, and the behaviour that notices each")
    for mutant, behaviour, noticed in rows:
        said = "noticed" if noticed else "MISSED"
        terminalreporter.write_line(f"{said}  {mutant:<33} {behaviour}")
    noticed = sum(bool(row[2]) for row in rows)
    terminalreporter.write_line(f"{noticed} of {len(rows)} broken drivers noticed")
