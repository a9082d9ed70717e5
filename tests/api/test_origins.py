# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a web page in the browser of a user could send through loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lunshare.agent.api.access.origins import Origins
from lunshare.agent.api.faults import Fault
from lunshare.agent.listen_addresses import Address
from tests.api.identity_daemon import Running, daemon

pytestmark = pytest.mark.daemon

OPTIONS = """
noauth_on_loopback = true
public_endpoint = https://storage.example.com:8776
allowed_hosts = node.example.com
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with daemon(tmp_path_factory.mktemp("origins"), OPTIONS) as started:
        yield started


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:8776",
        "storage.example.com",
        "node.example.com:9",
    ],
)
def test_names_of_this_node_are_allowed(running: Running, host: str):
    assert running.http("GET", "/v3/volumes", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example.com", "192.0.2.1", "127.0.0.1.evil.example.com", ""]
)
def test_a_foreign_host_is_403(running: Running, host: str):
    for path in ("/", "/v3", "/v3/volumes"):
        answer = running.http("GET", path, headers={"Host": host})
        assert answer.fault[:2] == (403, "forbidden")
    assert running.http("GET", "/healthz", headers={"Host": host}).status == 200
    assert running.unix("GET", "/v3/volumes", headers={"Host": "any"}).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example.com", "null", "http://127.0.0.1:1", "http://[x", ""]
)
def test_a_foreign_origin_is_403_and_nothing_is_done(running: Running, origin: str):
    body = {"volume": {"size": 1, "name": "made by a page"}}
    answer = running.http("POST", "/v3/volumes", headers={"Origin": origin}, body=body)
    assert answer.fault[:2] == (403, "forbidden")
    found = running.http("GET", "/v3/volumes?name=made%20by%20a%20page")
    assert found.body == {"volumes": []}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_a_foreign_page_is_403(running: Running, site: str):
    """A GET has no Origin, and one of them changes state: disassociate_all."""
    headers = {"Sec-Fetch-Site": site}
    path = "/v3/qos-specs/any/disassociate_all"
    assert running.http("GET", path, headers=headers).fault[:2] == (403, "forbidden")
    headers["Sec-Fetch-Site"] = "same-origin"
    assert running.http("GET", path, headers=headers).fault[0] == 404
    own = {"Origin": "https://node.example.com", "Sec-Fetch-Site": site}
    assert running.http("GET", "/v3/volumes", headers=own).status == 200


def test_the_own_origin_is_allowed(running: Running):
    for origin in (
        f"http://127.0.0.1:{running.port}",
        "https://storage.example.com:8776",
        "https://node.example.com",
    ):
        answer = running.http("GET", "/v3/volumes", headers={"Origin": origin})
        assert answer.status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_that_a_page_may_send_is_415_on_every_route(running: Running, kind: str):
    for method, path in (("POST", "/v3/volumes"), ("DELETE", "/v3/volumes/x")):
        headers = {"Content-Type": kind}
        answer = running.http(method, path, headers=headers, body=b"{}")
        assert answer.fault[:2] == (415, "badMediaType")


def test_the_wildcard_address_allows_every_address_and_no_other_name():
    origins = Origins([Address(("0.0.0.0", 1), tls=True)], None, [])
    origins.check("192.0.2.7:1", None)
    origins.check("[2001:db8::1]:1", None)
    with pytest.raises(Fault):
        origins.check("evil.example.com", None)
