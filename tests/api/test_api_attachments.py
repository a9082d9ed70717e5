# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments, as hosts and clouds use them: who may reach a volume, and how."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from lunshare.drivers.errors import DriverError, TargetFailed
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator

NOWHERE = "abcdef11-2222-3333-4444-555555555555"


def name() -> str:
    """A host that no other test has."""
    return f"h{uuid.uuid4().hex[:12]}"


def test_reserve_connect_complete_release(api: Api, node: Node):
    volume, host = api.volume(), name()
    reserved = api.attachment(volume["id"], mode="ro")
    assert reserved["status"] == "reserved"
    assert reserved["attach_mode"] == "ro"
    assert reserved["connection_info"] == {}
    assert api("GET", f"/volumes/{volume['id']}")["volume"]["status"] == "reserved"

    path = f"/attachments/{reserved['id']}"
    asked = {"attachment": {"connector": connector(host)}}
    opened = api("PUT", path, asked)["attachment"]
    assert opened["status"] == "attaching"
    info = opened["connection_info"]
    assert info["driver_volume_type"] == "iscsi"
    assert info["target_lun"] == 0
    assert info["attachment_id"] == reserved["id"]
    assert info["access_mode"] == "ro"
    assert info["auth_password"]
    assert node_live(node, volume) == {initiator(host): "ro"}
    shown = api("GET", path)["attachment"]
    assert shown.pop("live")["allowed"] == "ro"
    assert shown == opened

    api.complete(reserved["id"])
    assert api("GET", path)["attachment"]["status"] == "attached"
    shown = api("GET", f"/volumes/{volume['id']}")["volume"]
    assert shown["status"] == "in-use"
    (attached,) = shown["attachments"]
    assert attached["attachment_id"] == reserved["id"]
    assert attached["host_name"] == host

    assert api("DELETE", path) == {"attachments": []}
    assert node_live(node, volume) == {}
    api.fault(404, "DELETE", path)
    assert api("GET", f"/volumes/{volume['id']}")["volume"]["status"] == "available"


def node_live(node: Node, volume: dict[str, Any]) -> dict[str, str | None]:
    """Initiator to mode, as the target has it."""
    exports = node.target("api").observe()
    found = [export for export in exports if export.volume_id == volume["id"]]
    return {c.initiator: c.mode for export in found for c in export.connectors}


def test_each_of_many_hosts_has_its_own_mode(api: Api, node: Node):
    volume = api.shared_volume()
    writer, reader, other = name(), name(), name()
    made = {
        host: api.attachment(volume["id"], mode=mode, connector=connector(host))
        for host, mode in ((writer, "rw"), (reader, "ro"), (other, "ro"))
    }
    for attachment in made.values():
        api.complete(attachment["id"])
    assert node_live(node, volume) == {
        initiator(writer): "rw",
        initiator(reader): "ro",
        initiator(other): "ro",
    }
    shown = api("GET", f"/volumes/{volume['id']}")["volume"]
    assert {row["host_name"] for row in shown["attachments"]} == set(made)

    left = api("DELETE", f"/attachments/{made[reader]['id']}")["attachments"]
    assert {row["id"] for row in left} == {made[writer]["id"], made[other]["id"]}
    assert set(left[0]) == {"id", "status", "instance", "volume_id"}
    assert set(node_live(node, volume)) == {initiator(writer), initiator(other)}
    assert api("GET", f"/volumes/{volume['id']}")["volume"]["status"] == "in-use"


def test_connecting_again_changes_nothing(api: Api):
    volume = api.volume()
    asked = {"attachment": {"connector": connector(name())}}
    made = api.attachment(volume["id"])
    path = f"/attachments/{made['id']}"
    first = api("PUT", path, asked)["attachment"]
    api.complete(made["id"])
    again = api("PUT", path, asked)["attachment"]
    assert again["connection_info"] == first["connection_info"]
    assert again["status"] == "attached"


def test_a_connector_has_a_size(api: Api):
    """It is stored, and each list of attachments with detail reads it."""
    volume, large = api.volume(), connector(name(), wwpns=["[" * 100] * 90)
    asked = {"attachment": {"volume_uuid": volume["id"], "connector": large}}
    sentence = api.fault(400, "POST", "/attachments", asked)
    assert "bytes of JSON, more than 8192" in sentence
    made = api.attachment(volume["id"])
    body = {"attachment": {"connector": large}}
    api.fault(400, "PUT", f"/attachments/{made['id']}", body)
    action = {"os-initialize_connection": {"connector": large}}
    api.fault(400, "POST", f"/volumes/{volume['id']}/action", action)


def test_the_mode_of_a_connector_counts_where_the_attachment_has_none(api: Api):
    asked = connector(name(), mode="ro")
    made = api.at("3.27").attachment(api.volume()["id"], connector=asked)
    assert made["attach_mode"] == "ro"
    assert made["connection_info"]["access_mode"] == "ro"
    plain = api.attachment(api.volume()["id"], connector=connector(name()))
    assert plain["attach_mode"] == "rw"


def test_connector_values_may_be_null(api: Api):
    host = connector(name(), mountpoint=None, mode=None, multipath=None)
    made = api.attachment(api.volume()["id"], connector=host)
    assert made["attach_mode"] == "rw"


@pytest.mark.parametrize("empty", [{}, None], ids=str)
def test_an_empty_connector_reserves_the_volume(api: Api, empty: Any):
    made = api.attachment(api.volume()["id"], connector=empty)
    assert made["status"] == "reserved"
    assert made["attach_mode"] is None


def test_an_id_may_be_in_capitals(api: Api):
    volume = api.volume()
    made = api.attachment(volume["id"].upper(), instance_uuid=NOWHERE.upper())
    assert made["volume_id"] == volume["id"]
    assert made["instance"] == NOWHERE


def test_completing_twice_succeeds(api: Api):
    made = api.attachment(api.volume()["id"], connector=connector(name()))
    api.complete(made["id"])
    api.complete(made["id"])


def test_an_unknown_id_is_404(api: Api):
    path, host = f"/attachments/{NOWHERE}", connector(name())
    assert NOWHERE in api.fault(404, "GET", path)
    assert NOWHERE in api.fault(404, "DELETE", path)
    api.fault(404, "PUT", path, {"attachment": {"connector": host}})
    api.fault(404, "POST", f"{path}/action", {"os-complete": None})
    for more in ({}, {"connector": host}):
        asked = {"attachment": {"volume_uuid": NOWHERE, **more}}
        assert NOWHERE in api.fault(404, "POST", "/attachments", asked)
    api.fault(404, "GET", "/attachments/summary")


def test_a_plain_volume_can_have_one_host(api: Api):
    volume = api.volume()
    api.attachment(volume["id"])
    asked = {"attachment": {"volume_uuid": volume["id"]}}
    api.fault(400, "POST", "/attachments", asked)


def test_one_host_cannot_have_both_modes(api: Api):
    volume, host = api.shared_volume(), connector(name())
    api.attachment(volume["id"], mode="rw", connector=host)
    asked = {
        "attachment": {"volume_uuid": volume["id"], "mode": "ro", "connector": host}
    }
    assert "write-protect" in api.fault(409, "POST", "/attachments", asked)


BAD: list[dict[str, Any]] = [
    {"volume_uuid": "x"},
    {"volume_uuid": None},
    {"instance_uuid": None},
    {"instance_uuid": "x"},
    {"mode": "wr"},
    {"mode": ""},
    {"connector": []},
    {"connector": {"host": "h"}},
    {"connector": {"initiator": "iqn.1994-05.com.example:h"}},
    {"connector": connector("h", initiator="not an iqn")},
    {"connector": connector("h", initiator="iqn.1994-05.com.example:" + "x" * 223)},
    {"connector": connector("h", mode="both")},
    {"colour": "red"},
]


@pytest.mark.parametrize("fields", BAD, ids=str)
def test_an_invalid_field_is_400_and_named(api: Api, fields: dict[str, Any]):
    volume = api.volume()
    asked = {"attachment": {"volume_uuid": volume["id"], **fields}}
    sentence = api.fault(400, "POST", "/attachments", asked)
    (field,) = fields
    assert field in sentence
    assert api("GET", "/attachments")["attachments"] == []


def test_a_mode_before_3_54_is_400(api: Api):
    asked = {"attachment": {"volume_uuid": api.volume()["id"], "mode": "ro"}}
    assert "mode" in api.at("3.53").fault(400, "POST", "/attachments", asked)


@pytest.mark.parametrize("value", [None, {}, [], "iqn"], ids=str)
def test_an_update_without_a_connector_is_400(api: Api, value: Any):
    path = f"/attachments/{api.attachment(api.volume()['id'])['id']}"
    sentence = api.fault(400, "PUT", path, {"attachment": {"connector": value}})
    assert "attachment.connector" in sentence


@pytest.mark.parametrize(
    "body",
    [{}, {"os-destroy": None}, {"os-complete": None, "os-x": None}, [], "os-complete"],
    ids=str,
)
def test_an_unknown_action_is_400(api: Api, body: Any):
    made = api.attachment(api.volume()["id"])
    api.fault(400, "POST", f"/attachments/{made['id']}/action", body)


def test_a_failure_of_the_target_is_500_and_leaves_no_access(api: Api, node: Node):
    volume = api.volume()
    error: DriverError = TargetFailed(volume["id"], "the kernel said no")
    asked = {
        "attachment": {"volume_uuid": volume["id"], "connector": connector(name())}
    }
    with node.target("api").failures.fail("apply.before", error):
        api.fault(500, "POST", "/attachments", asked)
    assert node_live(node, volume) == {}
    api("POST", "/attachments", asked)


def test_a_list_shows_the_requested_attachments(api: Api):
    first, second = api.volume(), api.volume()
    reserved = api.attachment(first["id"], instance_uuid=NOWHERE)
    opened = api.attachment(second["id"], connector=connector(name()))
    both = api("GET", "/attachments")["attachments"]
    assert [row["id"] for row in both] == [opened["id"], reserved["id"]]
    assert set(both[0]) == {"id", "status", "instance", "volume_id"}
    for query, expected in {
        f"volume_id={first['id']}": [reserved],
        f"instance_id={NOWHERE}": [reserved],
        "status=attaching": [opened],
        "attach_status=reserved": [reserved],
        "attach_status=attached": [],
        "colour=red": [],
        "limit=0": [],
        f"limit=1&marker={opened['id']}": [reserved],
        "sort=created_at:asc&limit=1": [reserved],
    }.items():
        found = api("GET", f"/attachments?{query}")["attachments"]
        assert [row["id"] for row in found] == [row["id"] for row in expected], query


def test_a_list_with_detail_shows_no_password(api: Api):
    made = api.attachment(api.volume()["id"], connector=connector(name()))
    assert made["connection_info"]["auth_password"]
    (listed,) = api("GET", "/attachments/detail")["attachments"]
    assert "auth_password" not in str(listed)
    assert listed["connection_info"]["target_iqn"]
    assert set(listed) == set(made)


def test_a_full_page_links_to_the_next(api: Api):
    volume = api.shared_volume()
    made = [api.attachment(volume["id"])["id"] for _ in range(3)]
    page = api("GET", "/attachments?limit=2")
    (link,) = page["attachments_links"]
    assert link["rel"] == "next"
    assert link["href"].endswith(f"/attachments?limit=2&marker={made[1]}")
    rest = api("GET", f"/attachments?limit=2&marker={made[1]}")
    assert [row["id"] for row in rest["attachments"]] == made[:1]
    assert "attachments_links" not in rest


def test_another_project_sees_them_only_with_all_tenants(api: Api, node: Node):
    made = api.attachment(api.volume()["id"])
    other = Api(node.assembly.app)
    assert other("GET", "/attachments")["attachments"] == []
    everyone = other("GET", "/attachments?all_tenants=1")["attachments"]
    assert made["id"] in {row["id"] for row in everyone}
    query = f"/attachments?project_id={api.project}"
    assert other("GET", query)["attachments"] == []
    (row,) = other("GET", f"{query}&all_tenants=1")["attachments"]
    assert row["id"] == made["id"]


@pytest.mark.parametrize("host", ["web-1", "Web 1 \u00e9"])
def test_a_host_needs_no_initiator_where_the_target_is_not_iscsi(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(node.target("api"), "PROTOCOL", "NFS", raising=True)
    volume = api.shared_volume()
    sent = {"host": host, "ip": "192.0.2.1", "initiator": None}
    row = api.attachment(volume["id"], connector=sent)
    (name_of_host,) = node_live(node, volume)
    assert name_of_host.startswith("iqn.2000-01.invalid.host:")
    body = {"os-initialize_connection": {"connector": {"host": f"{host}2"}}}
    api("POST", f"/volumes/{volume['id']}/action", body)
    assert len(node_live(node, volume)) == 2
    api.act(
        volume["id"], {"os-terminate_connection": {"connector": {"host": f"{host}2"}}}
    )
    assert list(node_live(node, volume)) == [name_of_host]
    api("DELETE", f"/attachments/{row['id']}")
    assert node_live(node, volume) == {}


def test_a_host_without_an_initiator_is_refused_where_the_target_is_iscsi(
    api: Api, node: Node
) -> None:
    volume, sent = api.volume(), {"host": "web-1", "ip": "192.0.2.1"}
    asked = {"attachment": {"volume_uuid": volume["id"], "connector": sent}}
    assert "connector.initiator is missing" in api.fault(
        400, "POST", "/attachments", asked
    )
    for action in ("os-initialize_connection", "os-terminate_connection"):
        sentence = api.refused(400, volume["id"], {action: {"connector": sent}})
        assert "connector.initiator is missing" in sentence
    assert api.shown(volume["id"])["status"] == "available"
