# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every test shares."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

import pytest

# Before the kit is imported, so that its failures show the values compared.
pytest.register_assert_rewrite("lunshare.drivers.conformance")
pytest_plugins = ["lunshare.drivers.conformance.summary"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long random input is tried; a seed that was printed tries the same again.

    And how many handovers are made.
    """
    group = parser.getgroup("fuzzing")
    group.addoption("--fuzz-examples", type=int, default=100)
    group.addoption("--fuzz-commands", type=int, default=30_000)
    group.addoption("--fuzz-seed", type=int, default=None)
    parser.addoption("--handovers", type=int, default=40, help="how many of them")


def pytest_configure() -> None:
    """Refuse a virtual environment that was made before the folders moved."""
    scripts = entry_points(group="console_scripts")
    stale = stale_scripts(s for s in scripts if s.module.startswith("lunshare."))
    if stale:
        raise pytest.UsageError(
            f"the virtual environment has {', '.join(stale)} of an older checkout;"
            " remove .venv, and run make with any target, which makes it anew"
        )


def stale_scripts(scripts: Iterable[EntryPoint]) -> list[str]:
    """Return the names of the programs whose module does not exist in this tree."""
    return [script.name for script in scripts if not _exists(script.module)]


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was tried with random input, and how often."""
    from lunshare.drivers.conformance.summary import properties

    tried = [each for _, each in properties(terminalreporter.stats, "fuzz")]
    if tried:
        terminalreporter.section("random input")
    for each in tried:
        terminalreporter.write_line(str(each))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip anywhere is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
