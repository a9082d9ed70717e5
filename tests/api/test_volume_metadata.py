# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Metadata and image metadata of a volume, its two flags, and the summary."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.agent.model.records import Mode, NewAttachment
from lunshare.drivers.targets.fake import FakeTarget
from tests.api.calls import Api
from tests.api.test_api_attachments import node_live
from tests.stands.node import CTX, Node, connector, host_connector, initiator

NOWHERE = "11111111-2222-3333-4444-555555555555"


def path(volume: dict[str, Any]) -> str:
    return f"/volumes/{volume['id']}/metadata"


def test_metadata_is_merged_replaced_and_deleted(api: Api):
    volume = api.volume(metadata={"a": "1"})
    assert api("GET", path(volume)) == {"metadata": {"a": "1"}}
    merged = api("POST", path(volume), {"metadata": {"b": "2"}})
    assert merged == {"metadata": {"a": "1", "b": "2"}}
    replaced = api("PUT", path(volume), {"metadata": {"c": "3"}})
    assert replaced == {"metadata": {"c": "3"}}
    item = f"{path(volume)}/c"
    assert api("GET", item) == {"meta": {"c": "3"}}
    assert api("PUT", item, {"meta": {"c": "4"}}) == {"meta": {"c": "4"}}
    assert api.shown(volume["id"])["metadata"] == {"c": "4"}
    api("DELETE", item)
    assert api("GET", path(volume)) == {"metadata": {}}


def test_metadata_has_a_total(api: Api):
    """It was merged, 1 MiB by 1 MiB, to 63,000 items."""
    volume = api.volume()
    for start in (0, 256):
        many = {f"{number:05}": "x" for number in range(start, start + 256)}
        api("POST", path(volume), {"metadata": many})
    sentence = api.fault(400, "POST", path(volume), {"metadata": {"more": "x"}})
    assert "metadata would have 513 items" in sentence
    large = {f"{number:05}": "x" * 250 for number in range(258)}
    assert "65790" in api.fault(400, "PUT", path(volume), {"metadata": large})
    assert len(api("GET", path(volume))["metadata"]) == 512
    image = {"metadata": {f"{number:05}": "x" for number in range(513)}}
    action = {"os-set_image_metadata": image}
    where = f"/volumes/{volume['id']}/action"
    assert "513 items" in api.fault(400, "POST", where, action)
    body = {"volume": {"size": 1, "metadata": large}}
    assert "65790" in api.fault(400, "POST", "/volumes", body)
    body = {"snapshot": {"volume_id": volume["id"], "metadata": large}}
    assert "65790" in api.fault(400, "POST", "/snapshots", body)


def test_an_unknown_metadata_key_or_volume_is_404(api: Api):
    item = f"{path(api.volume())}/absent"
    assert "absent" in api.fault(404, "GET", item)
    assert "absent" in api.fault(404, "DELETE", item)
    nothing = {"id": NOWHERE}
    assert NOWHERE in api.fault(404, "GET", path(nothing))
    api.fault(404, "POST", path(nothing), {"metadata": {"a": "b"}})


@pytest.mark.parametrize(
    "metadata",
    [{"": "x"}, {"k" * 256: "x"}, {"k": "x" * 256}, {"k": 1}, {"k": None}, [], None],
    ids=lambda each: str(each)[:20],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_invalid_metadata_is_400_and_changes_nothing(
    api: Api, method: str, metadata: Any
):
    volume = api.volume(metadata={"a": "1"})
    sentence = api.fault(400, method, path(volume), {"metadata": metadata})
    assert "metadata" in sentence
    assert api("GET", path(volume)) == {"metadata": {"a": "1"}}


def test_the_key_of_the_url_and_of_the_body_must_be_equal(api: Api):
    item = f"{path(api.volume())}/one"
    assert "one" in api.fault(400, "PUT", item, {"meta": {"two": "x"}})
    api.fault(400, "PUT", item, {"meta": {"one": "x", "two": "x"}})
    api.fault(400, "PUT", item, {"meta": {}})


def test_a_change_can_ask_for_the_metadata_it_has_read(api: Api):
    volume = api.volume(metadata={"a": "1"})
    assert "ETag" not in api.at("3.14").send("GET", path(volume)).headers
    old = api.send("GET", path(volume)).headers["ETag"]
    asked: dict[str, Any] = {"metadata": {"b": "2"}}
    match: dict[str, Any] = {"headers": {"If-Match": old}}
    api("POST", path(volume), asked, **match)
    for method in ("POST", "PUT"):
        sentence = api.fault(412, method, path(volume), asked, **match)
        assert "If-Match" in sentence
    api.fault(412, "DELETE", f"{path(volume)}/a", **match)
    assert api("GET", path(volume)) == {"metadata": {"a": "1", "b": "2"}}
    api.at("3.14")("PUT", path(volume), asked, **match)
    new = api.send("GET", path(volume)).headers["ETag"]
    api("PUT", path(volume), asked, headers={"If-Match": new.strip('"')})


def test_a_volume_in_maintenance_is_not_changed(api: Api):
    volume = api.volume()
    api.act(volume["id"], {"os-reset_status": {"status": "maintenance"}})
    asked = {"metadata": {"a": "b"}}
    assert "maintenance" in api.fault(400, "POST", path(volume), asked)
    body = {"volume": {"name": "x"}}
    api.fault(400, "PUT", f"/volumes/{volume['id']}", body)
    attachment = {"attachment": {"volume_uuid": volume["id"]}}
    api.fault(400, "POST", "/attachments", attachment)
    connect = {"os-initialize_connection": {"connector": connector("h")}}
    api.refused(400, volume["id"], connect)


def test_image_metadata_is_set_shown_and_unset(api: Api):
    volume = api.volume()
    where = f"/volumes/{volume['id']}/action"
    assert "volume_image_metadata" not in api.shown(volume["id"])
    asked = {"os-set_image_metadata": {"metadata": {"os": "linux", "arch": "x"}}}
    assert api("POST", where, asked) == {"metadata": {"os": "linux", "arch": "x"}}
    unset = {"os-unset_image_metadata": {"key": "arch"}}
    api("POST", where, unset)
    assert "arch" in api.fault(404, "POST", where, unset)
    shown = {"metadata": {"os": "linux"}}
    assert api("POST", where, {"os-show_image_metadata": None}) == shown
    assert api.shown(volume["id"])["volume_image_metadata"] == shown["metadata"]
    (found,) = api("GET", "/volumes/detail?glance_metadata={'os':'linux'}")["volumes"]
    assert found["id"] == volume["id"]
    query = "/volumes?glance_metadata={'os':'other'}"
    assert api("GET", query)["volumes"] == []
    long = {"k": "v" * 65_535}  # as much as an image's property has
    assert api("POST", where, {"os-set_image_metadata": {"metadata": long}}) == {
        "metadata": shown["metadata"] | long
    }
    for bad in ({}, {"k": None}, {"k": "v" * 65_536}, {"k" * 256: "v"}):
        api.refused(400, volume["id"], {"os-set_image_metadata": {"metadata": bad}})


def test_image_metadata_has_as_many_bytes_as_in_glance(api: Api):
    """Glance's column has 65,535 bytes, however many characters these are."""
    volume = api.volume()
    where = f"/volumes/{volume['id']}/action"

    def asked(**items: str) -> dict[str, Any]:
        return {"os-set_image_metadata": {"metadata": items}}

    fits, more = "x" * 65_532 + "\u20ac", "x" * 65_533 + "\u20ac"
    for key in ("", *"ab"):
        api("POST", where, asked(**{key + "k": fits}))
    sentence = api.fault(400, "POST", where, asked(k=more))
    assert "image metadata k has 65536 bytes: give at most 65535" in sentence
    sentence = api.fault(400, "POST", where, asked(ck=fits))
    assert "4 items of 262147 bytes together, more than 512 or 262144" in sentence
    assert len(api.shown(volume["id"])["volume_image_metadata"]) == 3


def test_a_copy_has_bootable_and_image_metadata_of_its_source(api: Api):
    volume = api.volume()
    where = f"/volumes/{volume['id']}/action"
    api("POST", where, {"os-set_bootable": {"bootable": True}})
    api("POST", where, {"os-set_image_metadata": {"metadata": {"os": "linux"}}})
    copy = api.shown(api.volume(source_volid=volume["id"])["id"])
    assert copy["bootable"] == "true"
    assert copy["volume_image_metadata"] == {"os": "linux"}
    api("POST", where, {"os-set_bootable": {"bootable": "False"}})
    assert api.shown(volume["id"])["bootable"] == "false"
    api.refused(400, volume["id"], {"os-set_bootable": {"bootable": "perhaps"}})


@pytest.mark.parametrize("asked", [None, "rw"], ids=str)
def test_a_readonly_volume_is_read_only_at_the_target(
    api: Api, node: Node, asked: str | None
):
    volume = api.shared_volume()
    flag = "os-update_readonly_flag"
    api.act(volume["id"], {flag: {"readonly": True}})
    assert api.shown(volume["id"])["metadata"] == {"readonly": "True"}
    more = {"mode": asked} if asked else {}
    made = api.attachment(volume["id"], connector=connector("r"), **more)
    assert made["attach_mode"] == "ro"
    assert made["connection_info"]["access_mode"] == "ro"
    assert node_live(node, volume) == {initiator("r"): "ro"}
    # Attached: the flag cannot change what this host has.
    sentence = api.refused(400, volume["id"], {flag: {"readonly": False}})
    assert "must be available" in sentence
    api("DELETE", f"/attachments/{made['id']}")
    api.act(volume["id"], {flag: {"readonly": "false"}})
    assert api.shown(volume["id"])["metadata"] == {"readonly": "False"}
    made = api.attachment(volume["id"], connector=connector("r"), **more)
    assert node_live(node, volume) == {initiator("r"): "rw"}


def test_readonly_is_409_where_the_target_cannot_enforce_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    from dataclasses import replace

    volume = api.volume()
    api.act(volume["id"], {"os-update_readonly_flag": {"readonly": True}})
    unable = replace(FakeTarget.ABILITIES, enforces_read_only=False)
    monkeypatch.setattr(FakeTarget, "ABILITIES", unable)
    for more in ({}, {"connector": connector("h")}):
        asked = {"attachment": {"volume_uuid": volume["id"], **more}}
        assert "read-only" in api.fault(409, "POST", "/attachments", asked)
    assert api.shown(volume["id"])["status"] == "available"


def test_the_summary_counts_volumes_and_shows_their_metadata(api: Api):
    api.volume(size=2, metadata={"a": "1"})
    api.volume(size=1, metadata={"a": "2", "b": "1"})
    totals = {"total_count": 2, "total_size": 3}
    assert api("GET", "/volumes/summary")["volume-summary"] == {
        **totals,
        "metadata": {"a": ["1", "2"], "b": ["1"]},
    }
    assert api.at("3.35")("GET", "/volumes/summary")["volume-summary"] == totals
    api.at("3.11").fault(404, "GET", "/volumes/summary")
    other = Api(api.client.app)
    assert other("GET", "/volumes/summary")["volume-summary"]["total_count"] == 0
    everyone = other("GET", "/volumes/summary?all_tenants=1")["volume-summary"]
    assert everyone["total_count"] >= 2


@pytest.mark.parametrize("hint", [5, {}, [1], "x" * 37], ids=str)
def test_an_invalid_hint_is_400(api: Api, hint: Any):
    key = "OS-SCH-HNT:scheduler_hints"
    asked = {"volume": {"size": 1}, key: {"same_host": hint}}
    if hint == {}:
        api("POST", "/volumes", asked, 202)
    else:
        assert "same_host" in api.fault(400, "POST", "/volumes", asked)


def test_hints_choose_the_backend_of_other_volumes(tmp_path):
    node = Node(tmp_path, backends="one,two").start()
    api, key = Api(node.assembly.app), "OS-SCH-HNT:scheduler_hints"
    where = "os-vol-host-attr:host"

    def made(hints: dict[str, Any]) -> str:
        body = {"volume": {"size": 1}, key: hints}
        volume = api("POST", "/volumes", body, 202)["volume"]
        return str(api.shown(volume["id"])[where])

    first = api.shown(api.volume()["id"])
    for _ in range(3):
        assert made({"same_host": first["id"]}) == first[where]
        assert made({"different_host": [first["id"]]}) != first[where]
    both = {"same_host": [first["id"]], "different_host": [first["id"]]}
    body = {"volume": {"size": 1}, key: both}
    refused = api("POST", "/volumes", body, 202)["volume"]
    assert refused["status"] == "error"
    assert "different_host" in api.shown(refused["id"])["status_reason"]
    node.close()


@pytest.mark.parametrize("connects", [True, False])
def test_a_retry_on_a_readonly_volume_gets_the_first_attachment(
    tmp_path, connects: bool
):
    node = Node(tmp_path).start()
    volume = node.plain_volume()
    node.services.metadata.set_readonly(CTX, volume.id, True)
    host = host_connector("h") if connects else None
    new = NewAttachment(volume.id, mode=Mode.RW, connector=host)
    first = node.services.attachments.create(CTX, new)
    later = Node(tmp_path).start()  # as after kill -9
    assert later.services.attachments.create(CTX, new).id == first.id
    for each in (node, later):
        each.close()


def test_nova_reads_that_a_volume_is_not_encrypted(api: Api):
    made = f"/volumes/{api.volume()['id']}/encryption"
    assert api("GET", made) == {"encryption_key_id": None}
    assert NOWHERE in api.fault(404, "GET", f"/volumes/{NOWHERE}/encryption")
