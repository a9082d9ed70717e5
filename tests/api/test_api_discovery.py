# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Finding the API: versions, microversions, request ids, health."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from urllib.parse import quote

import pytest
from falcon import testing

from lunshare.agent.api.access_rules import AccessRules
from lunshare.agent.api.settings import ApiSettings
from lunshare.agent.api.wsgi import build_app
from lunshare.drivers.errors import StorageLost
from tests.api.calls import Api
from tests.stands.node import Node


@pytest.fixture
def client(node: Node) -> testing.TestClient:
    return testing.TestClient(node.assembly.app)


@pytest.mark.parametrize(("path", "status"), [("/", 300), ("/v3", 200), ("/v3/", 200)])
def test_versions_are_shown_without_a_token(
    client: testing.TestClient, path: str, status: int
):
    answer = client.simulate_get(path, headers={"Host": "node:8776"})
    assert answer.status_code == status
    (version,) = answer.json["versions"]
    assert version["id"] == "v3.0"
    assert version["status"] == "CURRENT"
    assert version["version"] == "3.71"
    assert version["min_version"] == "3.0"
    links = {link["rel"]: link["href"] for link in version["links"]}
    assert links["self"] == "http://node:8776/v3/"


def test_the_public_endpoint_replaces_scheme_and_host(node: Node):
    settings = ApiSettings(public_endpoint="https://storage.example.com/")
    settings = replace(settings, allowed_hosts=("falconframework.org",))
    rules = AccessRules(node.conf)
    client = testing.TestClient(build_app(node.services, settings, rules))
    (version,) = client.simulate_get("/").json["versions"]
    hrefs = [link["href"] for link in version["links"]]
    assert "https://storage.example.com/v3/" in hrefs


def test_the_version_documents_ignore_a_version_header(client: testing.TestClient):
    headers = {"OpenStack-API-Version": "volume 9.9"}
    assert client.simulate_get("/v3", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v3/p",
        "/v3/p/",
        "/v3/p/nothing",
        "/v3/p/q/volumes",
        "/v3//volumes",
        "/v3/p/volumes/x/y/z",
        "/volumes",
        "/healthz/x",
    ],
)
def test_an_unknown_url_is_404(client: testing.TestClient, path: str):
    answer = client.simulate_get(path)
    assert answer.status_code == 404
    assert answer.json["itemNotFound"]["code"] == 404


def test_every_answer_names_its_request_and_version(api: Api):
    answer = api.at("3.27").send("GET", "/volumes")
    request_id = answer.headers["x-openstack-request-id"]
    assert re.fullmatch(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request_id)
    assert answer.headers["X-Compute-Request-Id"] == request_id
    assert answer.headers["OpenStack-API-Version"] == "volume 3.27"
    assert answer.headers["Vary"] == "OpenStack-API-Version"
    again = api.send("GET", "/volumes").headers["x-openstack-request-id"]
    assert again != request_id


def test_an_error_names_its_request_and_version(api: Api):
    answer = api.at("3.27").send("GET", "/volumes/nothing")
    assert answer.status_code == 404
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    assert answer.headers["OpenStack-API-Version"] == "volume 3.27"


def test_the_default_version_is_3_0_and_latest_is_the_newest(api: Api):
    none = {"OpenStack-API-Version": None}
    answer = api.send("GET", "/volumes", headers=none)
    assert answer.headers["OpenStack-API-Version"] == "volume 3.0"
    latest = api.at("latest").send("GET", "/volumes")
    assert latest.headers["OpenStack-API-Version"] == "volume 3.71"


@pytest.mark.parametrize("version", ["3.72", "3.99", "2.0"])
def test_a_version_out_of_range_is_406(api: Api, version: str):
    assert "3.0 to 3.71" in api.at(version).fault(406, "GET", "/volumes")


@pytest.mark.parametrize("version", ["three", "3", "3.x", ""])
def test_a_malformed_version_is_400(api: Api, version: str):
    assert "OpenStack-API-Version" in api.at(version).fault(400, "GET", "/volumes")


@pytest.mark.parametrize(
    ("method", "path", "since"),
    [
        ("GET", "/attachments", "3.27"),
        ("GET", "/attachments/detail", "3.27"),
        ("GET", "/attachments/x", "3.27"),
        ("POST", "/attachments", "3.27"),
        ("PUT", "/attachments/x", "3.27"),
        ("DELETE", "/attachments/x", "3.27"),
        ("POST", "/attachments/x/action", "3.44"),
    ],
)
def test_a_method_below_its_microversion_is_404(
    api: Api, method: str, path: str, since: str
):
    before = f"3.{int(since.partition('.')[2]) - 1}"
    answer = api.at(before).fault(404, method, path, {})
    assert answer == "The resource could not be found."
    at = api.at(since).send(method, path, {})
    assert answer not in at.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/volumes/", "/attachments/", "/types/"])
def test_an_item_without_an_id_is_404_and_not_the_collection(
    api: Api, method: str, path: str
):
    answer = api.send(method, path, {})
    assert answer.status_code == 404
    answer = api.client.simulate_request(method, f"/v3{path}")
    assert answer.status_code == 404


def test_a_slash_at_the_end_of_another_path_is_ignored(api: Api):
    assert api("GET", "/os-services/")["services"]
    assert api("GET", f"/volumes/{api.volume()['id']}/")["volume"]


def test_the_url_may_leave_the_project_out(api: Api):
    made = api.volume(name="here")
    headers = {"X-Auth-Token": f"user:{api.project}"}
    answer = api.client.simulate_get("/v3/volumes", headers=headers)
    (found,) = answer.json["volumes"]
    assert found["id"] == made["id"]
    assert found["links"][0]["href"].endswith(f"/v3/volumes/{made['id']}")


def test_a_project_other_than_that_of_the_token_is_400(api: Api):
    headers = {"X-Auth-Token": "user:other"}
    assert "Malformed request url" in api.fault(400, "GET", "/volumes", headers=headers)


@pytest.mark.parametrize("token", [None, "notused", "anything at all"])
def test_any_token_is_accepted(api: Api, token: str | None):
    made = api.volume()
    listed = api("GET", "/volumes", headers={"X-Auth-Token": token})
    assert [volume["id"] for volume in listed["volumes"]] == [made["id"]]


def test_a_project_is_escaped_in_links(api: Api):
    api.project = f"ä {api.project}"
    path = f"/v3/{quote(api.project)}/volumes"
    body = json.dumps({"volume": {"size": 1}})
    sent = {"Content-Type": "application/json"}
    made = api.client.simulate_post(path, body=body, headers=sent).json["volume"]
    shown = api.client.simulate_get(f"{path}/{made['id']}").json["volume"]
    assert shown["os-vol-tenant-attr:tenant_id"] == api.project
    assert made["links"][0]["href"].endswith(f"{path}/{made['id']}")


@pytest.mark.parametrize("method", ["OPTIONS", "PATCH", "DELETE", "PUT"])
def test_a_wrong_method_is_405_and_lists_the_methods_of_the_path(api: Api, method: str):
    answer = api.send(method, "/volumes")
    assert answer.status_code == 405
    assert answer.json["badMethod"]["code"] == 405
    assert answer.headers["Allow"] == "GET, HEAD, POST"


def test_an_unknown_method_of_an_unknown_path_is_404(api: Api):
    api.fault(404, "TRACE", "/nothing-here")


def test_head_is_get_without_a_body(api: Api):
    got, head = (api.send(method, "/volumes/detail") for method in ("GET", "HEAD"))
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["Content-Length"] == str(len(got.content))
    assert head.headers["Content-Type"] == got.headers["Content-Type"]


@pytest.mark.parametrize("path", ["/healthz", "/healthcheck"])
def test_healthz_returns_ok(client: testing.TestClient, path: str):
    assert client.simulate_get(path).status_code == 200


def test_a_node_that_works_is_ready(client: testing.TestClient):
    answer = client.simulate_get("/readyz")
    assert answer.status_code == 200
    assert answer.json == {
        "ready": True,
        "problems": [],
        "failed": [],
        "unknown": [],
        "counts": {"failed": 0, "unknown": 0},
    }


def test_readyz_is_short_and_health_is_complete(node: Node, client: testing.TestClient):
    noted = node.services.node.health()
    lost = [f"disk /dev/x{number} has no row" for number in range(5000)]
    lost += [f"export of volume {number} has no row" for number in range(3)]
    node.services.node.note_reconciled(("volume 1: x",), tuple(lost))
    answer = client.simulate_get("/readyz")
    full = client.simulate_get("/v3/lunshare/health").json["health"]
    node.services.node.note_reconciled(noted.failed, noted.unknown)
    assert len(answer.text) < 2000
    assert answer.json["counts"] == {"failed": 1, "unknown": 5003}
    assert answer.json["unknown"] == ["disk (path)"] * 5 + lost[-3:]
    assert full["unknown"] == lost
    assert full["failed"] == ["volume 1: x"]


PATHS = (
    "the database cannot be used (x): check the path of sqlite:////srv/x.sqlite",
    "the database was moved: move it back to /var/lib/x.sqlite",
    "the disk '/dev/mapper/secret-x' is lost",
    "a share did not answer within 5 seconds: nas:/secret",
    "a share fails: Input/output error; '/var/a secret' of nas:/srv/a secret/c",
    "a share is stale: nas:/.secret at /var/x",
)


@pytest.mark.parametrize("sentence", PATHS)
def test_readyz_shows_no_path(
    node: Node, client: testing.TestClient, sentence: str
) -> None:
    noted = node.services.node.health()
    node.services.node.note_reconciled((f"volume 1: {sentence}",), (sentence,))
    with node.driver("api").failures.fail("check", StorageLost(sentence, "wait")):
        node.assembly.backends["api"].refresh()
        answer = client.simulate_get("/readyz")
        full = client.simulate_get("/v3/lunshare/health").text
    node.assembly.backends["api"].refresh()
    node.services.node.note_reconciled(noted.failed, noted.unknown)
    assert answer.text.count("(path)") == 3
    assert not any(word in answer.text for word in ("secret", "/srv", "/var", "/dev"))
    assert all(word in full for word in sentence.split())


def test_a_node_that_is_not_ready_returns_the_reason(
    node: Node, client: testing.TestClient
):
    backend = node.assembly.backends["api"]
    with node.driver("api").failures.fail("check", RuntimeError("no pool")):
        backend.refresh()
        answer = client.simulate_get("/readyz")
    backend.refresh()
    assert answer.status_code == 503
    assert answer.json["ready"] is False
    assert any("backend api is down" in line for line in answer.json["problems"])
    assert client.simulate_get("/readyz").status_code == 200


def test_a_page_has_at_most_osapi_max_limit_items(node: Node, api: Api):
    hosts = ("falconframework.org",)
    settings = ApiSettings(max_limit=2, allowed_hosts=hosts)
    few = Api(build_app(node.services, settings, AccessRules(node.conf)))
    few.project = api.project
    for _ in range(3):
        api.volume()
    assert len(few("GET", "/volumes")["volumes"]) == 2
    assert len(few("GET", "/volumes?limit=50")["volumes"]) == 2
    assert "volumes_links" in few("GET", "/volumes?limit=50")
