# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One Cinder for all tests here: it takes longer to start than they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.stack import THIN, Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def client(stack: Stack) -> Client:
    return stack.client()


@pytest.fixture
def volume(client: Client) -> str:
    return api.create(client, THIN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run last what changes cinder.conf."""
    items.sort(key=lambda item: "bad_configuration" in item.nodeid)
