# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""QoS specs: limits of a volume type that its hosts enforce."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calls import Api
from tests.stands.node import connector

NOWHERE = "11111111-2222-3333-4444-555555555555"


def qos(api: Api, **specs: Any) -> dict[str, Any]:
    asked = {"qos_specs": {"name": uuid.uuid4().hex, **specs}}
    made: dict[str, Any] = api("POST", "/qos-specs", asked)["qos_specs"]
    return made


def associate(api: Api, made: dict[str, Any], kind: dict[str, Any], **more: Any) -> Any:
    path = f"/qos-specs/{made['id']}/associate?vol_type_id={kind['id']}"
    return api("GET", path, status=202, **more)


def associated(api: Api, made: dict[str, Any]) -> list[str]:
    found = api("GET", f"/qos-specs/{made['id']}/associations")["qos_associations"]
    assert {row["association_type"] for row in found} <= {"volume_type"}
    return [row["id"] for row in found]


def test_create_show_change_delete(api: Api):
    name = uuid.uuid4().hex
    asked = {"name": f" {name} ", "consumer": "front-end", "read_iops_sec": 5, "a": "b"}
    answer = api("POST", "/qos-specs", {"qos_specs": asked})
    made = answer["qos_specs"]
    specs = {"read_iops_sec": "5", "a": "b"}
    assert made == {
        "id": made["id"],
        "name": name,
        "consumer": "front-end",
        "specs": specs,
    }
    path = f"/qos-specs/{made['id']}"
    assert [link["rel"] for link in answer["links"]] == ["self", "bookmark"]
    assert answer["links"][0]["href"].endswith(f"/v3/{api.project}{path}")
    assert api("GET", path) == answer

    changes = {"qos_specs": {"a": "c", "d": "e", "consumer": "both"}}
    assert api("PUT", path, changes) == changes
    changed = api("GET", path)["qos_specs"]
    assert changed["specs"] == {**specs, "a": "c", "d": "e"}
    assert changed["consumer"] == "both"

    assert api("PUT", f"{path}/delete_keys", {"keys": ["a", "d"]}, 202) is None
    assert api("GET", path)["qos_specs"]["specs"] == {"read_iops_sec": "5"}
    api("DELETE", path, status=202)
    for method, of in (
        ("GET", path),
        ("DELETE", path),
        ("GET", f"{path}/associations"),
        ("GET", f"{path}/disassociate_all"),
    ):
        assert made["id"] in api.fault(404, method, of)
    api.fault(404, "PUT", path, {"qos_specs": {"a": "b"}})
    api.fault(404, "PUT", f"{path}/delete_keys", {"keys": []})


@pytest.mark.parametrize("consumer", ["front-end", "back-end", "both"])
def test_every_consumer_can_be_created(api: Api, consumer: str):
    assert qos(api, consumer=consumer)["consumer"] == consumer


def test_the_consumer_is_back_end_by_default(api: Api):
    assert qos(api)["consumer"] == "back-end"


def test_a_name_is_unique(api: Api):
    asked = {"qos_specs": {"name": qos(api)["name"]}}
    assert "qos_specs.name" in api.fault(409, "POST", "/qos-specs", asked)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": ""}, "qos_specs.name"),
        ({"name": " "}, "qos_specs.name"),
        ({"name": None}, "qos_specs.name"),
        ({"name": "x" * 256}, "qos_specs.name"),
        ({"consumer": "nobody"}, "qos_specs.consumer"),
        ({"read_iops_sec": "many"}, "qos_specs.read_iops_sec"),
        ({"read_iops_sec": -1}, "qos_specs.read_iops_sec"),
        ({"total_bytes_sec_per_gb": "1.5"}, "qos_specs.total_bytes_sec_per_gb"),
        ({"a": "x" * 256}, "qos_specs.a"),
        ({"a": 1.5}, "qos_specs.a"),
        ({"a": None}, "qos_specs.a"),
        ({"": "a"}, "qos_specs"),
    ],
    ids=str,
)
def test_an_invalid_field_is_400_and_named(
    api: Api, fields: dict[str, Any], named: str
):
    asked = {"qos_specs": {"name": uuid.uuid4().hex, **fields}}
    assert named in api.fault(400, "POST", "/qos-specs", asked)
    if "name" not in fields:
        path = f"/qos-specs/{qos(api)['id']}"
        assert named in api.fault(400, "PUT", path, {"qos_specs": fields})


@pytest.mark.parametrize(
    "body", [{}, {"keys": "a"}, {"keys": ["a", "a"]}, {"keys": [1]}, {"keys": [""]}]
)
def test_keys_to_delete_are_a_list(api: Api, body: Any):
    path = f"/qos-specs/{qos(api, a='b')['id']}/delete_keys"
    assert "keys" in api.fault(400, "PUT", path, body)


def test_a_key_that_is_not_there_is_404_and_nothing_is_deleted(api: Api):
    made = qos(api, a="b")
    path = f"/qos-specs/{made['id']}"
    assert "colour" in api.fault(
        404, "PUT", f"{path}/delete_keys", {"keys": ["a", "colour"]}
    )
    assert api("GET", path)["qos_specs"]["specs"] == {"a": "b"}


def test_a_list_has_filters_pages_and_order(api: Api):
    made = [qos(api, consumer="front-end") for _ in range(3)]
    ids = [row["id"] for row in reversed(made)]
    every = api("GET", "/qos-specs")["qos_specs"]
    assert [row["id"] for row in every][:3] == ids
    named = api("GET", f"/qos-specs?name={made[0]['name']}")["qos_specs"]
    assert named == [made[0]]
    front = api("GET", "/qos-specs?consumer=front-end")["qos_specs"]
    assert {row["consumer"] for row in front} == {"front-end"}
    page = api("GET", "/qos-specs?limit=2")
    assert [row["id"] for row in page["qos_specs"]] == ids[:2]
    assert page["qos_specs_links"][0]["href"].endswith(f"marker={ids[1]}")
    rest = api("GET", f"/qos-specs?marker={ids[1]}&sort=name:asc")["qos_specs"]
    assert all(row["name"] > made[1]["name"] for row in rest)
    assert NOWHERE in api.fault(404, "GET", f"/qos-specs?marker={NOWHERE}")
    assert "sort" in api.fault(400, "GET", "/qos-specs?sort=colour")


def test_types_are_associated_and_disassociated(api: Api):
    made, one, other = qos(api, consumer="front-end"), api.type(), api.type()
    for kind in (one, other, one):
        assert associate(api, made, kind) is None
    assert set(associated(api, made)) == {one["id"], other["id"]}
    shown = api("GET", f"/types/{one['id']}")["volume_type"]
    assert shown["qos_specs_id"] == made["id"]
    path = f"/qos-specs/{made['id']}/disassociate"
    for _ in range(2):
        assert api("GET", f"{path}?vol_type_id={one['id']}", status=202) is None
    assert associated(api, made) == [other["id"]]
    associate(api, made, one)
    for query in ("disassociate_all", f"disassociate?vol_type_id={one['id']}"):
        path = f"/qos-specs/{made['id']}/{query}"
        assert api.send("HEAD", path).status_code == 405
    assert set(associated(api, made)) == {one["id"], other["id"]}
    api("GET", f"/qos-specs/{made['id']}/disassociate_all", status=202)
    assert associated(api, made) == []
    assert api("GET", f"/types/{one['id']}")["volume_type"]["qos_specs_id"] is None


def test_an_unknown_or_missing_type_is_refused(api: Api):
    made = qos(api, consumer="front-end")
    for verb in ("associate", "disassociate"):
        path = f"/qos-specs/{made['id']}/{verb}"
        assert "vol_type_id" in api.fault(400, "GET", path)
        assert NOWHERE in api.fault(404, "GET", f"{path}?vol_type_id={NOWHERE}")
        path = f"/qos-specs/{NOWHERE}/{verb}?vol_type_id={api.type()['id']}"
        assert "qos_specs" in api.fault(404, "GET", path)


def test_a_type_has_at_most_one_of_them(api: Api):
    kind, first, second = api.type(), qos(api, consumer="front-end"), None
    associate(api, first, kind)
    second = qos(api, consumer="front-end")
    path = f"/qos-specs/{second['id']}/associate?vol_type_id={kind['id']}"
    assert first["id"] in api.fault(400, "GET", path)
    assert associated(api, first) == [kind["id"]]


def test_limits_that_no_backend_enforces_are_refused(api: Api):
    made, kind = qos(api, consumer="back-end"), api.type()
    path = f"/qos-specs/{made['id']}"
    sentence = api.fault(400, "GET", f"{path}/associate?vol_type_id={kind['id']}")
    assert "no backend of this node enforces" in sentence
    api("PUT", path, {"qos_specs": {"consumer": "front-end"}})
    associate(api, made, kind)
    sentence = api.fault(400, "PUT", path, {"qos_specs": {"consumer": "back-end"}})
    assert "no backend of this node enforces" in sentence
    assert api("GET", path)["qos_specs"]["consumer"] == "front-end"


def test_a_host_gets_its_part_of_specs_for_both_and_the_rest_is_named(
    api: Api, caplog: pytest.LogCaptureFixture
):
    made, kind = qos(api, consumer="both", read_iops_sec="100"), api.type()
    caplog.clear()
    associate(api, made, kind)
    assert f"qos_specs {made['name']}: hosts enforce them, the backends" in caplog.text
    assert associated(api, made) == [kind["id"]]
    volume = api.volume(volume_type=kind["id"])
    row = api.attachment(volume["id"], connector=connector("h"))
    assert row["connection_info"]["qos_specs"] == {"read_iops_sec": "100"}
    caplog.clear()
    path = f"/qos-specs/{made['id']}"
    api("PUT", path, {"qos_specs": {"consumer": "front-end"}})
    assert "enforce" not in caplog.text
    api("PUT", path, {"qos_specs": {"consumer": "both"}})
    assert f"qos_specs {made['name']}: hosts enforce them, the backends" in caplog.text


def test_specs_of_a_type_are_deleted_only_with_force(api: Api):
    made, kind = qos(api, consumer="front-end"), api.type()
    associate(api, made, kind)
    path = f"/qos-specs/{made['id']}"
    assert "1 volume types" in api.fault(400, "DELETE", path)
    assert "force" in api.fault(400, "DELETE", f"{path}?force=perhaps")
    api("DELETE", f"{path}?force=true", status=202)
    assert api("GET", f"/types/{kind['id']}")["volume_type"]["qos_specs_id"] is None


def test_a_deleted_type_is_not_associated(api: Api):
    made, kind = qos(api, consumer="front-end"), api.type()
    associate(api, made, kind)
    api("DELETE", f"/types/{kind['id']}", status=202)
    assert associated(api, made) == []
    api("DELETE", f"/qos-specs/{made['id']}", status=202)


def test_a_host_gets_the_limits_of_the_type(api: Api):
    kind = api.type()
    made = qos(
        api,
        consumer="front-end",
        read_iops_sec="100",
        total_bytes_sec_per_gb="10",
        write_iops_sec_per_gb="10",
        write_iops_sec_per_gb_min="50",
        read_bytes_sec_per_gb="1000",
        read_bytes_sec_max="1500",
    )
    associate(api, made, kind)
    volume = api.volume(volume_type=kind["id"], size=2)
    row = api.attachment(volume["id"], connector=connector("h"))
    expected = {
        "read_iops_sec": "100",
        "total_bytes_sec": "20",
        "write_iops_sec": "50",
        "read_bytes_sec": "1500",
    }
    assert row["connection_info"]["qos_specs"] == expected
    shown = api("GET", f"/attachments/{row['id']}")["attachment"]
    assert shown["connection_info"]["qos_specs"] == expected


def test_a_volume_without_limits_has_none_in_its_connection(api: Api):
    for fields in ({}, {"volume_type": api.type()["id"]}):
        volume = api.volume(**fields)
        row = api.attachment(volume["id"], connector=connector("h"))
        assert row["connection_info"]["qos_specs"] is None
