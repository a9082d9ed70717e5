# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume types and extra specs."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.calls import Api

NOWHERE = "11111111-2222-3333-4444-555555555555"
PUBLIC = "os-volume-type-access:is_public"


def test_create_show_change_delete(api: Api):
    name = uuid.uuid4().hex
    asked = {"volume_type": {"name": name, "description": "d", PUBLIC: False}}
    made = api("POST", "/types", asked)["volume_type"]
    assert made["name"] == name
    assert made["is_public"] is made[PUBLIC] is False
    path = f"/types/{made['id']}"
    assert api("GET", path)["volume_type"] == {**made, "qos_specs_id": None}

    changes = {"name": name + "2", "description": None, "is_public": True}
    changed = api("PUT", path, {"volume_type": changes})["volume_type"]
    assert {key: changed[key] for key in changes} == changes
    # Neither answer has more fields than Cinder's: Tempest refuses them.
    fields = {"id", "name", "description", "is_public", "extra_specs"}
    assert (set(made), set(changed)) == (fields | {PUBLIC}, fields)

    api("DELETE", path, status=202)
    for method in ("GET", "DELETE"):
        assert made["id"] in api.fault(404, method, path)


def test_the_default_type_is_shown(api: Api):
    default = api("GET", "/types/default")["volume_type"]
    assert default["name"] == "standard"
    sentence = api.fault(400, "DELETE", f"/types/{default['id']}")
    assert "default_volume_type" in sentence


def test_a_type_is_not_shown_by_its_name(api: Api):
    assert "standard" in api.fault(404, "GET", "/types/standard")


def test_a_type_name_is_unique(api: Api):
    asked = {"volume_type": {"name": api.type()["name"]}}
    assert "name" in api.fault(409, "POST", "/types", asked)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": " "},
        {"name": None},
        {"name": "x" * 256},
        {"name": 1},
        {"description": 1},
        {PUBLIC: "perhaps"},
        {"extra_specs": {"a": 1}},
        {"qos": "x"},
    ],
    ids=str,
)
def test_an_invalid_field_is_400_and_named(api: Api, fields: dict[str, Any]):
    asked = {"volume_type": {"name": uuid.uuid4().hex, **fields}}
    (field,) = fields
    assert field in api.fault(400, "POST", "/types", asked)


def test_an_update_without_a_change_is_400(api: Api):
    path = f"/types/{api.type()['id']}"
    api.fault(400, "PUT", path, {"volume_type": {}})
    api.fault(400, "PUT", path, {"volume_type": {"name": " "}})
    unchanged = api("PUT", path, {"volume_type": {"name": None, PUBLIC: "false"}})
    assert unchanged["volume_type"]["name"]
    assert unchanged["volume_type"]["is_public"] is False


def test_a_type_name_is_stored_without_surrounding_spaces(api: Api):
    name = uuid.uuid4().hex
    made = api("POST", "/types", {"volume_type": {"name": f" {name} "}})["volume_type"]
    assert made["name"] == name
    changes = {"volume_type": {"name": f"\t{name}2 "}}
    changed = api("PUT", f"/types/{made['id']}", changes)["volume_type"]
    assert changed["name"] == f"{name}2"


def test_a_list_shows_public_types_by_default(api: Api):
    public, private = api.type(), api.type()
    api("PUT", f"/types/{private['id']}", {"volume_type": {"is_public": False}})

    def listed(query: str) -> set[str]:
        found = api("GET", f"/types{query}")["volume_types"]
        return {kind["id"] for kind in found} & {public["id"], private["id"]}

    assert listed("") == {public["id"]}
    assert listed("?is_public=true") == {public["id"]}
    assert listed("?is_public=0") == {private["id"]}
    assert listed("?is_public=None") == {public["id"], private["id"]}
    assert listed(f"?is_public=none&name={private['name']}") == {private["id"]}
    assert "is_public" in api.fault(400, "GET", "/types?is_public=perhaps")


def test_a_list_is_filtered_by_extra_specs_from_3_52_on(api: Api):
    shared, plain = api.type(multiattach="<is> True", zone=api.project), api.type()
    wanted = quote(str({"multiattach": "<is> True", "zone": api.project}))
    found = api("GET", f"/types?extra_specs={wanted}")["volume_types"]
    assert [kind["id"] for kind in found] == [shared["id"]]
    before = api.at("3.51")("GET", f"/types?extra_specs={wanted}")["volume_types"]
    assert {shared["id"], plain["id"]} <= {kind["id"] for kind in before}
    assert "extra_specs" in api.fault(400, "GET", "/types?extra_specs=multiattach")


def test_a_list_of_types_has_pages_and_order(api: Api):
    for _ in range(3):
        api.type()
    every = api("GET", "/types?sort=name:desc")["volume_types"]
    names = [kind["name"] for kind in every]
    assert names == sorted(names, reverse=True)
    page = api("GET", "/types?sort=name:desc&limit=2")
    assert page["volume_types"] == every[:2]
    (link,) = page["volume_type_links"]
    assert link["href"].endswith(f"&marker={every[1]['id']}")
    rest = api("GET", f"/types?sort=name:desc&offset=1&marker={every[1]['id']}")
    assert rest["volume_types"] == every[3:]
    assert api("GET", "/types?limit=0")["volume_types"] == []
    assert NOWHERE in api.fault(404, "GET", f"/types?marker={NOWHERE}")
    assert "sort" in api.fault(400, "GET", "/types?sort=colour")


def test_extra_specs_are_changed_one_by_one(api: Api):
    path = f"/types/{api.type(a='1')['id']}/extra_specs"
    added = {"extra_specs": {"b": "2", "capabilities:c": "<is> True"}}
    assert api("POST", path, added) == added
    full = {"extra_specs": {"a": "1", **added["extra_specs"]}}
    assert api("GET", path) == full
    assert api("GET", f"{path}/capabilities:c") == {"capabilities:c": "<is> True"}
    assert api("PUT", f"{path}/a", {"a": "9"}) == {"a": "9"}
    assert api("GET", f"{path}/a") == {"a": "9"}
    api("DELETE", f"{path}/a", status=202)
    for method in ("GET", "DELETE"):
        api.fault(404, method, f"{path}/a")


def test_an_extra_spec_must_have_the_key_of_its_url(api: Api):
    path = f"/types/{api.type(a='1')['id']}/extra_specs"
    bad: list[Any] = [{"b": "2"}, {"a": "1", "b": "2"}, {}, {"a": 1}, {"a": None}, []]
    for body in bad:
        api.fault(400, "PUT", f"{path}/a", body)
    assert api("GET", path) == {"extra_specs": {"a": "1"}}


@pytest.mark.parametrize(
    "specs",
    [None, {}, {"a": 1}, {"": "x"}, {"a": "x" * 256}, {"x" * 256: "a"}],
    ids=str,
)
def test_invalid_extra_specs_are_400(api: Api, specs: Any):
    path = f"/types/{api.type()['id']}/extra_specs"
    sentence = api.fault(400, "POST", path, {"extra_specs": specs})
    assert "extra_specs" in sentence


def test_reservations_are_a_boolean(api: Api):
    path = f"/types/{api.type()['id']}/extra_specs"
    spec = "lunshare:reservations"
    for wrong in ("true", "", "<is> true"):
        asked = {"extra_specs": {spec: wrong}}
        assert "'<is> True'" in api.fault(400, "POST", path, asked)
    for right in ("<is> True", "<is> False"):
        api("POST", path, {"extra_specs": {spec: right}})
        assert api("GET", path) == {"extra_specs": {spec: right}}


def test_a_cache_and_multiattach_together_are_refused(api: Api):
    path = f"/types/{api.type(multiattach='<is> True')['id']}/extra_specs"
    asked = {"extra_specs": {"cacheable": "<is> True"}}
    assert "cacheable" in api.fault(400, "POST", path, asked)


def test_a_type_in_use_cannot_be_changed(api: Api):
    specs = {"multiattach": "<is> True"}
    kind = api.type(**specs)
    api.volume(volume_type=kind["id"])
    path = f"/types/{kind['id']}"
    assert "in use" in api.fault(400, "DELETE", path)
    changed = {"multiattach": "<is> False"}
    asked = {"extra_specs": changed}
    assert "in use" in api.fault(400, "POST", f"{path}/extra_specs", asked)
    api.fault(400, "PUT", f"{path}/extra_specs/multiattach", changed)
    api.fault(400, "DELETE", f"{path}/extra_specs/multiattach")
    assert api("GET", f"{path}/extra_specs") == {"extra_specs": specs}


def test_the_extra_specs_of_an_unknown_type_are_404(api: Api):
    path = f"/types/{NOWHERE}/extra_specs"
    api.fault(404, "GET", path)
    api.fault(404, "POST", path, {"extra_specs": {"a": "1"}})
    api.fault(404, "PUT", f"{path}/a", {"a": "1"})
    api.fault(404, "DELETE", f"{path}/a")
    api.fault(404, "PUT", f"/types/{NOWHERE}", {"volume_type": {"name": "x"}})
