# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes, as clients use them."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lunshare.drivers.errors import CommandFailed, NoSpace
from tests.api.calls import Api
from tests.stands.node import Node
from tests.stands.waiting import until

NULLABLE = (
    "name",
    "description",
    "snapshot_id",
    "source_volid",
    "backup_id",
    "imageRef",
    "image_id",
    "group_id",
    "consistencygroup_id",
    "volume_type",
    "availability_zone",
    "metadata",
)
# Not in the answers to create and update, where Tempest's schemas refuse them.
SHOWN_ONLY = {
    "os-vol-host-attr:host",
    "os-vol-tenant-attr:tenant_id",
    "os-vol-mig-status-attr:migstat",
    "os-vol-mig-status-attr:name_id",
}
NOWHERE = "11111111-2222-3333-4444-555555555555"


def test_create_show_rename_delete(api: Api, node: Node):
    asked = {"size": 2, "name": "db", "description": "d", "metadata": {"a": "b"}}
    made = api.volume(**asked)
    assert made["status"] == "available"
    path = f"/volumes/{made['id']}"
    shown = api("GET", path)["volume"]
    assert set(shown) - set(made) == SHOWN_ONLY
    assert {key: shown[key] for key in made} == made
    assert {key: shown[key] for key in asked} == asked
    assert shown["os-vol-tenant-attr:tenant_id"] == api.project
    assert shown["volume_type"] == "standard"

    changes = {"name": "db2", "description": None, "metadata": {"c": "d"}}
    changed = api("PUT", path, {"volume": changes})["volume"]
    assert {key: changed[key] for key in changes} == changes
    assert changed["size"] == 2
    assert set(changed) == set(made)

    api("DELETE", path, status=202)
    _gone(api, made["id"])


def _gone(api: Api, volume_id: str) -> None:
    """A delete is answered before the disk is gone."""
    path = f"/volumes/{volume_id}"
    until(lambda: api.send("GET", path).status_code == 404)


def test_a_field_has_a_long_and_a_short_name(api: Api):
    made = api.volume(display_name="long", display_description="text")
    assert (made["name"], made["description"]) == ("long", "text")
    both = api.volume(display_name="long", name="short")
    assert both["name"] == "short"
    changes = {"display_name": "longer"}
    changed = api("PUT", f"/volumes/{made['id']}", {"volume": changes})
    assert changed["volume"]["name"] == "longer"


def test_a_null_field_is_the_same_as_a_missing_one(api: Api):
    made = api.volume(**dict.fromkeys(NULLABLE), multiattach=False)
    assert made["name"] is None
    assert made["metadata"] == {}


@pytest.mark.parametrize("text", ["é", "\U0001f600", "a\nb", "<b>'\"", "x" * 255, ""])
def test_a_name_is_returned_as_it_was_sent(api: Api, text: str):
    made = api.volume(name=text, metadata={"k": text})
    shown = api("GET", f"/volumes/{made['id']}")["volume"]
    assert (shown["name"], shown["metadata"]) == (text, {"k": text})


def test_a_size_may_be_a_text_of_digits(api: Api):
    assert api.volume(size="7")["size"] == 7


SIZES: list[Any] = [0, -1, 1.5, 1.0, True, None, "", "0", "-1", "1.5", "word", "1 "]
SIZES += ["١", "1\n", 2**31, "9" * 11, 10**30, [1], {"a": 1}]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_invalid_size_is_400(api: Api, size: Any):
    sentence = api.fault(400, "POST", "/volumes", {"volume": {"size": size}})
    assert "volume.size" in sentence
    assert "give a whole number of GiB" in sentence


def test_an_excessive_size_names_the_limit(api: Api):
    sentence = api.fault(400, "POST", "/volumes", {"volume": {"size": 2**31}})
    assert "2147483647" in sentence


def test_a_missing_size_is_400(api: Api):
    assert "volume.size" in api.fault(400, "POST", "/volumes", {"volume": {}})


def test_a_name_too_long_is_400_and_not_echoed(api: Api):
    asked = {"volume": {"size": 1, "name": "x" * 256}}
    sentence = api.fault(400, "POST", "/volumes", asked)
    assert sentence.startswith("Invalid input for field/attribute name. Value: xxx")
    assert sentence.endswith("... volume.name: give a text of 0 to 255 characters.")
    assert "x" * 65 not in sentence


def test_an_unknown_field_is_400_from_3_53_on(api: Api):
    asked = {"volume": {"size": 1, "colour": "red"}}
    api.at("3.52")("POST", "/volumes", asked, 202)
    assert "volume.colour" in api.at("3.53").fault(400, "POST", "/volumes", asked)


def test_an_unknown_type_is_404(api: Api):
    asked = {"volume": {"size": 1, "volume_type": "gold"}}
    assert "gold" in api.fault(404, "POST", "/volumes", asked)


def test_a_type_is_found_by_id_and_by_name(api: Api):
    kind = api.type()
    for ident in (kind["id"], kind["name"]):
        made = api.volume(volume_type=ident)
        assert made["volume_type_id"] == kind["id"]
        assert made["volume_type"] == kind["name"]


def test_an_unknown_zone_is_400(api: Api):
    asked = {"volume": {"size": 1, "availability_zone": "mars"}}
    assert "mars" in api.fault(400, "POST", "/volumes", asked)


@pytest.mark.parametrize("size", [{"size": 1}, {"size": None}, {}], ids=str)
def test_unknown_sources_are_404(api: Api, size: dict[str, Any]):
    for source in ("snapshot_id", "source_volid"):
        asked = {"volume": {**size, source: NOWHERE}}
        assert NOWHERE in api.fault(404, "POST", "/volumes", asked)


@pytest.mark.parametrize(
    "source", ["imageRef", "image_id", "backup_id", "group_id", "consistencygroup_id"]
)
def test_an_unsupported_source_is_400(api: Api, source: str):
    asked = {"volume": {"size": 1, source: NOWHERE}}
    assert source in api.fault(400, "POST", "/volumes", asked)


@pytest.mark.parametrize("value", [True, "true", "1"])
def test_multiattach_is_set_only_by_the_type(api: Api, value: Any):
    asked = {"volume": {"size": 1, "multiattach": value}}
    assert "volume_type" in api.fault(400, "POST", "/volumes", asked)
    assert api.shared_volume()["multiattach"] is True


def test_an_unknown_id_is_404(api: Api):
    path = f"/volumes/{NOWHERE}"
    for method, body in (("GET", None), ("PUT", {"volume": {"name": "x"}})):
        assert NOWHERE in api.fault(404, method, path, body)
    assert NOWHERE in api.fault(404, "DELETE", path)
    api.fault(404, "GET", "/volumes/" + "x" * 5000)


def test_an_update_accepts_only_names_and_metadata(api: Api):
    path = f"/volumes/{api.volume()['id']}"
    for field in ("size", "status", "multiattach", "volume_type"):
        asked = {"volume": {field: "1"}}
        assert field in api.at("3.0").fault(400, "PUT", path, asked)
    api.fault(400, "PUT", path, {"volume": {}})
    api.at("3.52")("PUT", path, {"volume": {}})
    unchanged = api("PUT", path, {"volume": {"metadata": None}})["volume"]
    assert unchanged["metadata"] == {}


def test_an_attached_volume_cannot_be_deleted(api: Api):
    made = api.volume()
    api.attachment(made["id"])
    for query in ("", "?force=true", "?cascade=True&force=False"):
        sentence = api.fault(400, "DELETE", f"/volumes/{made['id']}{query}")
        assert "attachment" in sentence


@pytest.mark.parametrize("word", ["force", "cascade"])
def test_the_parameters_of_a_delete_are_true_or_false(api: Api, word: str):
    path = f"/volumes/{api.volume()['id']}"
    assert word in api.fault(400, "DELETE", f"{path}?{word}=perhaps")
    api("DELETE", f"{path}?{word}=False", status=202)


def test_a_volume_stuck_in_creation_is_deleted_by_force_from_3_23_on(
    api: Api, node: Node
):
    asked = {"volume": {"size": 1}}
    with (
        ThreadPoolExecutor(1) as client,
        node.driver("api").failures.hold("create.before") as gate,
    ):
        client.submit(api.send, "POST", "/volumes", asked)
        assert gate.reached.wait(10)
        (made,) = api("GET", "/volumes/detail")["volumes"]
        assert made["status"] == "creating"
        path = f"/volumes/{made['id']}?force=true"
        assert "creating" in api.at("3.22").fault(400, "DELETE", path)
        api.at("3.23")("DELETE", path, status=202)
        gate.open.set()
    _gone(api, made["id"])


def test_a_full_pool_is_413_and_leaves_nothing(api: Api, node: Node):
    with node.driver("api").failures.fail("create.before", NoSpace("api", "full")):
        answer = api.send("POST", "/volumes", {"volume": {"size": 1}})
    assert answer.status_code == 413
    assert answer.json["overLimit"]["code"] == 413
    assert answer.json["overLimit"]["retryAfter"] == "0"
    assert answer.headers["Retry-After"] == "0"
    assert api("GET", "/volumes")["volumes"] == []


def test_a_broken_backend_is_500_and_leaves_nothing(api: Api, node: Node):
    error = CommandFailed(("lvcreate",), 5, "no such group")
    with node.driver("api").failures.fail("create.before", error):
        api.fault(500, "POST", "/volumes", {"volume": {"size": 1}})
    assert api("GET", "/volumes")["volumes"] == []


def test_an_unexpected_error_is_not_shown_to_the_client(
    api: Api, node: Node, caplog: pytest.LogCaptureFixture
):
    secret = uuid.uuid4().hex
    made = api.volume()
    with node.target("api").failures.fail("apply.before", RuntimeError(secret)):
        asked = {"attachment": {"volume_uuid": made["id"], "connector": HOST}}
        answer = api.send("POST", "/attachments", asked)
    assert answer.status_code == 500
    fault = answer.json["computeFault"]
    assert secret not in answer.text
    assert answer.headers["x-openstack-request-id"] in fault["message"]


HOST = {"initiator": "iqn.1994-05.com.example:h", "host": "h"}
