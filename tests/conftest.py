# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every test shares."""

import pytest

# Before the kit is imported, so that its failures show the values compared.
pytest.register_assert_rewrite("drivers.conformance")
pytest_plugins = ["drivers.conformance.summary"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip anywhere is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
