# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What random requests need exists, whatever they did before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lunshare.agent.api import microversions
from tests.api.clients import daemon
from tests.openapi.ended import Ended
from tests.openapi.population import Population

pytestmark = pytest.mark.daemon


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with daemon(tmp_path, ["gold", "silver"]) as found:
        yield found


HEADERS = {microversions.HEADER: "volume latest"}
PATH, ONE, OTHER = "/v3/types/{id}", {"id": "1"}, {"id": "2"}
RESOURCES = ("volumes", "volumes to share", "snapshots", "attachments")


def send(method: str, url: str, body: Any) -> None:
    answer = requests.request(method, url, json=body, headers=HEADERS, timeout=30)
    assert answer.ok, answer.text


def test_resources_are_created_where_the_quotas_are_used_up(endpoint: str):
    none = {"quota_set": {"volumes": 0, "snapshots": 0, "gigabytes": 0}}
    send("PUT", f"{endpoint}/os-quota-sets/default", none)
    population = Population(endpoint, "default", HEADERS)
    for resource in RESOURCES:
        assert population.of(resource)


def test_resources_are_created_where_every_backend_is_disabled(endpoint: str):
    population = Population(endpoint, "default", HEADERS)
    for host in (population.host, population.other_host):
        service = {"host": host, "binary": "cinder-volume"}
        send("PUT", f"{endpoint}/os-services/disable", service)
        send("PUT", f"{endpoint}/os-services/freeze", {"host": host})
    for resource in RESOURCES:
        assert population.of(resource)


def test_resources_are_created_where_the_default_type_has_no_pool(endpoint: str):
    kind = {"name": "nowhere", "extra_specs": {"volume_backend_name": "none"}}
    send("POST", f"{endpoint}/types", {"volume_type": kind})
    default = {"default_type": {"volume_type": "nowhere"}}
    send("PUT", f"{endpoint}/default-types/default", default)
    population = Population(endpoint, "default", HEADERS)
    for resource in RESOURCES:
        assert population.of(resource)


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_a_resource_that_a_request_may_have_ended_may_be_missing(method: str):
    ended = Ended()
    ended.note(method, 202, ONE)
    assert ended.explains(PATH, ONE, has_body=False)
    assert not ended.explains(PATH, OTHER, has_body=False)


@pytest.mark.parametrize(("method", "status"), [("DELETE", 404), ("GET", 200)])
def test_a_resource_that_nothing_has_ended_must_be_there(method: str, status: int):
    ended = Ended()
    ended.note(method, status, ONE)
    assert not ended.explains(PATH, ONE, has_body=False)


def test_a_resource_that_a_body_names_may_be_missing():
    assert Ended().explains(PATH, ONE, has_body=True)


def test_a_public_type_may_lack_an_access_list():
    assert Ended().explains(f"{PATH}/os-volume-type-access", ONE, has_body=False)
    assert not Ended().explains(f"{PATH}/extra_specs", ONE, has_body=False)
