# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One node for all tests; each test is a separate project on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.calls import BINARY, Api
from tests.stands.node import CTX, Node

# A backend of our own, so that no other test's fake storage is seen here.
BACKEND = "api"


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that is ready."""
    path = tmp_path_factory.mktemp("api")
    extra = "default_volume_type = standard"
    made = Node(path, extra, backends=BACKEND).start()
    made.services.types.create(CTX, "standard")
    yield made
    made.close()


@pytest.fixture
def api(node: Node) -> Api:
    """A project's calls at the latest microversion."""
    return Api(node.assembly.app)


@pytest.fixture
def host(api: Api) -> str:
    """The host of the node's volume service; the node has one backend."""
    (service,) = api("GET", f"/os-services?binary={BINARY}")["services"]
    return str(service["host"])
