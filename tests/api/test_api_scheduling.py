# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Why a volume went where it did, or nowhere: explanations and user messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.db import messages
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.service.scheduling.filters import FILTERS
from lunshare.agent.service.scheduling.weighers import WEIGHERS
from tests.api.calls import Api
from tests.stands.node import CTX, Node

NO_BACKEND = "VOLUME_VOLUME_001_003"

NOWHERE = "11111111-2222-3333-4444-555555555555"


def explained(api: Api, **fields: Any) -> dict[str, Any]:
    """The choice for a volume of these values."""
    asked = {"volume": {"size": 1, **fields}}
    answer: dict[str, Any] = api("POST", "/scheduler-stats/explain", asked)
    return answer["explanation"]  # type: ignore[no-any-return]


def user_messages(api: Api, query: str = "") -> list[dict[str, Any]]:
    """The project's messages."""
    found: list[dict[str, Any]] = api("GET", f"/messages{query}")["messages"]
    return found


@pytest.fixture
def two(tmp_path: Path):
    """A node of two backends, the second of which is the smaller one."""
    extra = "[second]\nfake_capacity_gb = 100\n[DEFAULT]"
    node = Node(tmp_path, extra, backends="first,second").start()
    yield node
    node.close()


def test_a_choice_is_explained_and_nothing_is_created(two: Node) -> None:
    api = Api(two.assembly.app)
    kind = api.type(multiattach="<is> True")
    found = explained(api, size=10, volume_type=kind["name"])
    assert found["asked"] == {
        "size": 10,
        "volume_type": kind["name"],
        "extra_specs": {"multiattach": "<is> True"},
        "availability_zone": None,
    }
    first, second = found["pools"]
    assert found["chosen"] == first["name"]
    assert first["name"].endswith("@first#first")
    for pool in (first, second):
        assert pool["passed"] is True
        assert [each["name"] for each in pool["filters"]] == list(FILTERS)
        assert all(each["reason"] for each in pool["filters"])
        assert [each["name"] for each in pool["weighers"]] == list(WEIGHERS)
    assert first["weight"] > second["weight"]
    assert api("GET", "/volumes")["volumes"] == []


def test_an_explanation_and_a_create_choose_the_same_pool(two: Node) -> None:
    api = Api(two.assembly.app)
    for size in (500, 90, 15_000):
        chosen = explained(api, size=size)["chosen"]
        volume = api.volume(size=size)
        shown = api("GET", f"/volumes/{volume['id']}")["volume"]
        assert shown["os-vol-host-attr:host"] == chosen


def test_an_explanation_shows_why_a_pool_does_not_fit(two: Node) -> None:
    api = Api(two.assembly.app)
    first, second = explained(api, size=3000)["pools"]
    assert first["passed"] is True
    assert second["passed"] is False
    assert second["weight"] is None
    assert second["weighers"] == []
    (why,) = [each for each in second["filters"] if not each["passed"]]
    assert why == {
        "name": "CapacityFilter",
        "passed": False,
        "reason": "it has space for 2000 GiB, not 3000",
    }
    assert explained(api, availability_zone="mars")["chosen"] is None


def test_an_explanation_shows_a_disabled_service(api: Api) -> None:
    (line,) = api("GET", "/os-services?binary=cinder-volume")["services"]
    asked = {"host": line["host"], "binary": line["binary"]}
    api("PUT", "/os-services/disable", asked)
    (pool,) = explained(api)["pools"]
    verdicts = {each["name"]: each["passed"] for each in pool["filters"]}
    api("PUT", "/os-services/enable", asked)
    assert verdicts["ServiceFilter"] is False
    assert verdicts["StateFilter"] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"volume": {}},
        {"volume": {"size": 0}},
        {"volume": {"size": "0"}},
        {"volume": {"size": -1}},
        {"volume": {"size": 1.5}},
        {"volume": {"size": 2**31}},
        {"volume": {"size": "9999999999"}},
        {"volume": {"size": 1, "snapshot_id": "x"}},
    ],
)
def test_an_incomplete_explain_request_is_400(api: Api, body: Any) -> None:
    api.fault(400, "POST", "/scheduler-stats/explain", body)


def test_an_unknown_type_is_404(api: Api) -> None:
    body = {"volume": {"size": "1", "volume_type": "silver"}}
    assert "silver" in api.fault(404, "POST", "/scheduler-stats/explain", body)


def test_a_create_without_a_valid_pool_leaves_a_message(api: Api) -> None:
    asked = {"volume": {"size": 1, "volume_type": api.type(tier="gold")["id"]}}
    answer = api.send("POST", "/volumes", asked)
    assert answer.status_code == 202
    (message,) = user_messages(api)
    assert message["resource_uuid"] == answer.json["volume"]["id"]
    assert message["user_message"] == answer.json["volume"]["status_reason"]
    assert "tier is None, not gold" in message["user_message"]
    assert set(message) == {
        "id",
        "event_id",
        "user_message",
        "message_level",
        "created_at",
        "guaranteed_until",
        "request_id",
        "resource_type",
        "resource_uuid",
        "links",
    }
    assert message["event_id"] == NO_BACKEND
    assert message["message_level"] == "ERROR"
    assert message["resource_type"] == "VOLUME"
    assert message["request_id"] == answer.headers["x-openstack-request-id"]
    assert message["guaranteed_until"] > message["created_at"]
    (link, _) = message["links"]
    assert link["href"].endswith(f"/v3/{api.project}/messages/{message['id']}")
    assert api("GET", f"/messages/{message['id']}")["message"] == message
    api("DELETE", f"/messages/{message['id']}", status=204)
    assert user_messages(api) == []
    for method in ("GET", "DELETE"):
        assert message["id"] in api.fault(404, method, f"/messages/{message['id']}")


def test_an_explanation_leaves_no_message(api: Api) -> None:
    assert explained(api, availability_zone="mars")["chosen"] is None
    assert user_messages(api) == []


def test_messages_have_pages_and_filters(api: Api) -> None:
    for tier in ("gold", "silver", "bronze"):
        api.volume(volume_type=api.type(tier=tier)["id"])
    every = user_messages(api)
    assert ["bronze" in every[0]["user_message"], len(every)] == [True, 3]
    first = api("GET", "/messages?limit=2")
    assert first["messages"] == every[:2]
    assert "marker" in first["messages_links"][0]["href"]
    assert user_messages(api, f"?marker={every[1]['id']}") == every[2:]
    assert user_messages(api, f"?request_id={every[1]['request_id']}") == [every[1]]
    assert user_messages(api, "?resource_type=SNAPSHOT") == []
    assert user_messages(Api(api.client.app)) == []
    assert len(user_messages(Api(api.client.app), "?all_tenants=1")) >= 3
    api.at("3.2").fault(404, "GET", "/messages")
    by_id = user_messages(api, "?sort=id:asc&offset=1")
    assert by_id == sorted(every, key=lambda row: row["id"])[1:]
    assert user_messages(api, "?message_level=ERROR&event_id=" + NO_BACKEND) == every
    assert user_messages(api, "?event_id=none") == []
    assert user_messages(api, "?limit=0") == []
    for query, named in (("limit=-1", "limit"), ("sort=colour", "colour")):
        assert named in api.fault(400, "GET", f"/messages?{query}")
    assert "marker" in api.fault(404, "GET", f"/messages?marker={NOWHERE}")


def test_messages_have_no_pages_or_filters_before_3_5(api: Api) -> None:
    for tier in ("gold", "silver"):
        api.volume(volume_type=api.type(tier=tier)["id"])
    before = api.at("3.4")
    query = "limit=1&sort=colour&event_id=none&marker=none&offset=-1"
    assert before("GET", f"/messages?{query}") == before("GET", "/messages")
    assert len(before("GET", "/messages")["messages"]) == 2
    assert api.at("3.5")("GET", "/messages?event_id=none")["messages"] == []


def test_failed_creates_of_one_project_push_out_no_message_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_OF_PROJECT", 2)
    monkeypatch.setattr(messages, "MAX_MESSAGES", 3)
    node = Node(tmp_path).start()
    api = Api(node.assembly.app)
    service = node.services.messages
    service.record(replace(CTX, project_id="other"), NO_BACKEND, "of another project")
    for number in range(5):
        service.record(CTX, NO_BACKEND, f"text {number}")
    texts = [m["user_message"] for m in user_messages(api, "?all_tenants=1")]
    assert texts == ["text 4", "text 3", "of another project"]
    node.close()


def test_messages_expire_and_their_number_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGES", 3)
    node = Node(tmp_path, "message_ttl = 100").start()
    api = Api(node.assembly.app)
    service = node.services.messages
    ids = []
    for number in range(5):
        service.record(CTX, NO_BACKEND, f"text {number}")
        ids.append(user_messages(api, "?all_tenants=1")[0]["id"])
    assert [m["id"] for m in user_messages(api, "?all_tenants=1")] == ids[:1:-1]
    node.close()

    node = Node(tmp_path, "message_ttl = 1").start()
    api = Api(node.assembly.app)
    moment = now()
    node.services.messages.record(CTX, NO_BACKEND, "x" * 2000)
    (newest, *_) = user_messages(api, "?all_tenants=1")
    assert len(newest["user_message"]) == 1024
    # A year on, none of them is there any more.
    later = moment.replace(year=moment.year + 1)
    monkeypatch.setattr(messages, "now", lambda: later)
    assert user_messages(api, "?all_tenants=1") == []
    api.fault(404, "GET", f"/messages/{newest['id']}")
    node.close()


def test_capabilities_of_a_backend_are_shown(api: Api) -> None:
    (pool,) = api("GET", "/scheduler-stats/get_pools")["pools"]
    host = pool["name"].partition("#")[0]
    found = api("GET", f"/capabilities/{host}")
    assert set(found) == {
        "namespace",
        "vendor_name",
        "volume_backend_name",
        "pool_name",
        "driver_version",
        "storage_protocol",
        "display_name",
        "description",
        "visibility",
        "replication_targets",
        "properties",
    }
    assert found["namespace"] == f"OS::Storage::Capabilities::{host}"
    assert found["properties"]["multiattach"]["default"] is True
    assert api("GET", f"/capabilities/{host}%23api") == found
    assert "mars" in api.fault(404, "GET", "/capabilities/mars@api")
