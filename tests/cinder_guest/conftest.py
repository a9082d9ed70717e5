# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A failed test shows what cinder-volume has written last: the guest is gone then."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.bench.http import Client
from tests.cinder_guest.node import Node

_SHOWN = 6000


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    made = Client(node.port)
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    given: dict[str, Any] = getattr(item, "funcargs", {})
    if report.failed and isinstance(node := given.get("node"), Node):
        report.sections.append(("cinder-volume", node.log[-_SHOWN:]))
    return report
