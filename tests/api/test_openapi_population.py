# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What random requests need exists, whatever they did before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from lunshare.agent.api import microversions
from tests.api.clients import daemon
from tests.openapi.population import Population

pytestmark = pytest.mark.daemon


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with daemon(tmp_path, ["gold", "silver"]) as found:
        yield found


def test_resources_are_created_where_the_quotas_are_used_up(endpoint: str):
    headers = {microversions.HEADER: "volume latest"}
    none = {"quota_set": {"volumes": 0, "snapshots": 0, "gigabytes": 0}}
    url = f"{endpoint}/os-quota-sets/default"
    assert requests.put(url, json=none, headers=headers, timeout=30).ok
    population = Population(endpoint, "default", headers)
    for resource in ("volumes", "volumes to share", "snapshots", "attachments"):
        assert population.of(resource)
