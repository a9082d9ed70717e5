# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every test shares."""

import pytest

# Before the kit is imported, so that its failures show the values compared.
pytest.register_assert_rewrite("lunshare.drivers.conformance")
pytest_plugins = ["lunshare.drivers.conformance.summary"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long random input is tried; a seed that was printed tries the same again."""
    group = parser.getgroup("fuzzing")
    group.addoption("--fuzz-examples", type=int, default=100)
    group.addoption("--fuzz-seed", type=int, default=None)


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
