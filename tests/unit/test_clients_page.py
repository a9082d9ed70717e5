# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""docs/clients.md names the versions and strategies that `make clients` drives.

The page itself is compared with a run by tests/clients/suite.py; what brick does needs
a kernel, and is found by tests/brick.
"""

from __future__ import annotations

from tests.clients import page, strategies
from tests.clients.suite import PAGE


def test_the_page_has_the_pinned_versions():
    text = PAGE.read_text()
    for title, kind in page.TITLES.values():
        assert f"## {title.replace('==', ' ')}\n" in text
        names = " | ".join(strategies.TABLE)
        assert f"| {kind} | {names} |\n" in text


def test_the_page_has_what_tests_brick_finds():
    assert page.brick() in PAGE.read_text()
