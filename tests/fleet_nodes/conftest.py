# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One fleet for all tests here: it takes longer to start than most of them do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.http import Client
from tests.fleet_nodes import transcript
from tests.fleet_nodes.fleet import Fleet

_ORDER = (
    "placement",
    "shared_volume",
    "kills",
    "reboot",
    "migration",
    "copies",
    "tempest",
    "lost_node",
)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    transcript.begin()
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def client(fleet: Fleet) -> Client:
    return fleet.controller.client()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run them in this order: the last ones end a node."""
    items.sort(key=lambda item: _ORDER.index(item.path.stem.removeprefix("test_")))
