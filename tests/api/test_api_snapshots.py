# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, volumes from snapshots, and revert."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from lunshare.drivers.errors import CommandFailed, DiskBusy, NoSpace, Unsupported
from lunshare.drivers.fake import fake_storage
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator
from tests.stands.waiting import until

NOWHERE = "11111111-2222-3333-4444-555555555555"
BROKEN = CommandFailed(("lvcreate",), 5, "no such group")
AT_3_0 = {
    "id",
    "created_at",
    "updated_at",
    "name",
    "description",
    "volume_id",
    "status",
    "size",
    "metadata",
}


def write(volume: dict[str, Any], data: bytes) -> None:
    fake_storage.storage("api").write(volume["id"], 0, data)


def read(volume: dict[str, Any], length: int) -> bytes:
    return fake_storage.storage("api").read(volume["id"], 0, length)


def test_create_show_rename_delete(api: Api):
    source = api.volume(size=2)
    asked = {"name": "s", "description": "d", "metadata": {"a": "b"}}
    made = api.snapshot(source["id"], **asked)
    assert made["status"] == "available"
    assert (made["volume_id"], made["size"]) == (source["id"], 2)
    path = f"/snapshots/{made['id']}"
    shown = api("GET", path)["snapshot"]
    assert {key: shown[key] for key in made} == made
    assert shown["os-extended-snapshot-attributes:project_id"] == api.project
    assert shown["os-extended-snapshot-attributes:progress"] == "100%"
    changes = {"name": "s2", "description": None, "metadata": {"c": "d"}}
    changed = api("PUT", path, {"snapshot": changes})["snapshot"]
    assert {key: changed[key] for key in changes} == changes
    api("DELETE", path, status=202)
    api.gone(path)
    assert made["id"] not in fake_storage.storage("api").snapshots


@pytest.mark.parametrize("version", ["3.0", "3.71"])
def test_a_list_has_filters_by_zone_and_host_of_the_volume(api: Api, version: str):
    one, volume = api.at(version), api.volume()
    made = api.snapshot(volume["id"])
    host = api.shown(volume["id"])["os-vol-host-attr:host"]
    own = ("availability_zone=nova", f"host={host.partition('#')[0]}")
    for text in (*own, f"host={quote(host)}", f"host={host.partition('@')[0]}"):
        for path in ("/snapshots", "/snapshots/detail"):
            (row,) = one("GET", f"{path}?{text}")["snapshots"]
            assert row["id"] == made["id"], text
    for text in ("availability_zone=other", "host=other", f"host={quote(host)}x"):
        assert one("GET", f"/snapshots?{text}")["snapshots"] == [], text
    if version != "3.0":
        counted = api("GET", f"/snapshots?with_count=true&{'&'.join(own)}")
        assert counted["count"] == 1
        sorted_by = api("GET", "/snapshots?sort=availability_zone:asc")["snapshots"]
        assert [row["id"] for row in sorted_by] == [made["id"]]


LATER = {"3.14": "group_snapshot_id", "3.41": "user_id", "3.65": "consumes_quota"}


def test_a_later_field_exists_from_its_version_on(api: Api):
    path = f"/snapshots/{api.snapshot(api.volume()['id'])['id']}"
    extended = {
        "os-extended-snapshot-attributes:project_id",
        "os-extended-snapshot-attributes:progress",
    }
    assert set(api.at("3.0")("GET", path)["snapshot"]) == AT_3_0 | extended
    for version, field in LATER.items():
        before = api.at(f"3.{int(version[2:]) - 1}")("GET", path)["snapshot"]
        since = api.at(version)("GET", path)["snapshot"]
        assert set(since) - set(before) == {field}


def test_lists_of_snapshots_have_filters_order_pages_and_count(api: Api):
    first, second = api.volume(), api.volume()
    for name in ("b", "a", "c"):
        api.snapshot(first["id"], name=name, metadata={"n": name})
    api.snapshot(second["id"], name="d")

    def names(query: str, version: str = "3.71", path: str = "/snapshots") -> list[str]:
        found = api.at(version)("GET", path + query)["snapshots"]
        return [row["name"] for row in found]

    assert names("?sort=name:asc") == ["a", "b", "c", "d"]
    assert names("?sort_key=name&sort_dir=desc", path="/snapshots/detail")[0] == "d"
    assert names(f"?volume_id={second['id']}") == ["d"]
    assert names("?name=a&status=available") == ["a"]
    assert names("?metadata={'n':'c'}") == ["c"]
    assert len(names("?metadata={'n':'c'}", "3.21")) == 4
    assert names("?colour=red") == []
    page = api("GET", "/snapshots?sort=name:asc&limit=3&with_count=true")
    assert page["count"] == 4
    (link,) = page["snapshots_links"]
    rest = api("GET", "/snapshots?" + link["href"].partition("?")[2])["snapshots"]
    assert [row["name"] for row in rest] == ["d"]
    assert Api(api.client.app)("GET", "/snapshots")["snapshots"] == []


def test_an_unknown_id_is_404(api: Api):
    path = f"/snapshots/{NOWHERE}"
    for method, body in (("GET", None), ("PUT", {"snapshot": {"name": "x"}})):
        assert NOWHERE in api.fault(404, method, path, body)
    assert NOWHERE in api.fault(404, "DELETE", path)
    api.fault(404, "POST", "/snapshots", {"snapshot": {"volume_id": None}})
    asked = {"snapshot": {"volume_id": NOWHERE}}
    assert NOWHERE in api.fault(404, "POST", "/snapshots", asked)


BAD: dict[str, dict[str, Any]] = {
    "snapshot.volume_id": {"volume_id": "x"},
    "snapshot.force": {"volume_id": NOWHERE, "force": "perhaps"},
    "snapshot.colour": {"volume_id": NOWHERE, "colour": "red"},
    "snapshot.name": {"volume_id": NOWHERE, "name": "x" * 256},
}


@pytest.mark.parametrize("field", BAD)
def test_an_invalid_body_is_400_and_names_the_field(api: Api, field: str):
    said = api.fault(400, "POST", "/snapshots", {"snapshot": BAD[field]})
    assert field in said or field.partition(".")[2] in said
    api.fault(400, "POST", "/snapshots", {"snapshot": {}})
    made = f"/snapshots/{api.snapshot(api.volume()['id'])['id']}"
    assert "size" in api.fault(400, "PUT", made, {"snapshot": {"size": 1}})


def test_a_volume_in_use_needs_force_below_3_66_and_none_from_then_on(api: Api):
    made = api.volume()
    api.complete(api.attachment(made["id"], connector=connector("h"))["id"])
    asked: dict[str, Any] = {"snapshot": {"volume_id": made["id"]}}
    sentence = api.at("3.65").fault(400, "POST", "/snapshots", asked)
    assert "snapshot.force" in sentence
    forced = {"snapshot": {"volume_id": made["id"], "force": True}}
    api.at("3.65")("POST", "/snapshots", forced, 202)
    api("POST", "/snapshots", asked, 202)
    api("POST", "/snapshots", forced, 202)
    asked["snapshot"]["force"] = False
    assert "snapshot.force" in api.fault(400, "POST", "/snapshots", asked)


def test_a_snapshot_has_the_bytes_before_later_writes_of_a_host(api: Api, node: Node):
    made = api.shared_volume()
    row = api.attachment(made["id"], connector=connector("w"), mode="rw")
    auth = row["connection_info"]
    from lunshare.drivers.values import Auth

    session = node.target("api").login(
        made["id"], initiator("w"), Auth(auth["auth_username"], auth["auth_password"])
    )
    session.write(0, b"before")
    snapshot = api.snapshot(made["id"])
    session.write(0, b"after!")
    assert session.alive
    again = api.volume(size=None, snapshot_id=snapshot["id"])
    assert read(again, 6) == b"before"
    assert read(made, 6) == b"after!"


@pytest.mark.parametrize("kind", ["snapshot_id", "source_volid"])
def test_a_volume_is_created_from_another(api: Api, kind: str):
    source = api.shared_volume(size=2, name="s")
    write(source, b"bytes")
    of = api.snapshot(source["id"])["id"] if kind == "snapshot_id" else source["id"]
    same = api("POST", "/volumes", {"volume": {kind: of}}, 202)["volume"]
    assert (same["size"], same[kind], same["status"]) == (2, of, "available")
    assert same["volume_type_id"] == source["volume_type_id"]
    assert same["multiattach"] is True
    larger = api.volume(size=3, **{kind: of})
    assert read(larger, 6) == b"bytes\0"
    assert fake_storage.storage("api").disks[larger["id"]].size == 3 * 1024**3
    sentence = api.fault(400, "POST", "/volumes", {"volume": {"size": 1, kind: of}})
    assert sentence == (
        "volume.size: 1 GiB is less than the size of its source; give 2 or more, or"
        " leave it out."
    )
    write(same, b"other")
    assert read(source, 5) == read(larger, 5) == b"bytes"
    shown = api.shown(same["id"])
    assert shown[kind] == of
    found = api("GET", f"/volumes?{kind}={of}")["volumes"]
    assert {row["id"] for row in found} == {same["id"], larger["id"]}
    snapshots = fake_storage.storage("api").snapshots
    assert {same["id"], larger["id"]} & set(snapshots) == set()


def test_the_type_of_a_copy_decides_whether_it_can_be_shared(api: Api):
    source = api.shared_volume()
    plain = api.type()
    made = api.volume(source_volid=source["id"], volume_type=plain["id"])
    assert (made["multiattach"], made["volume_type_id"]) == (False, plain["id"])
    unfit = api.type(volume_backend_name="elsewhere")
    made = api.volume(source_volid=source["id"], volume_type=unfit["id"])
    assert made["status"] == "error"
    assert "volume_backend_name" in made["status_reason"]


def test_a_volume_has_one_source(api: Api):
    source = api.volume()
    snapshot = api.snapshot(source["id"])
    asked = {"source_volid": source["id"], "snapshot_id": snapshot["id"]}
    assert "volume.source_volid" in api.fault(
        400, "POST", "/volumes", {"volume": asked}
    )


def test_a_clone_is_created_from_an_attached_volume(api: Api):
    source = api.volume()
    api.complete(api.attachment(source["id"], connector=connector("h"))["id"])
    assert api.volume(source_volid=source["id"])["status"] == "available"


def test_a_source_is_not_locked_while_it_is_copied(api: Api, node: Node):
    """The source is attached, detached and extended while a clone is created."""
    source = api.shared_volume()
    asked = {"volume": {"source_volid": source["id"]}}
    with (
        ThreadPoolExecutor(1) as client,
        node.driver("api").failures.hold("create_from.before") as gate,
    ):
        made = client.submit(api.send, "POST", "/volumes", asked)
        assert gate.reached.wait(10)
        row = api.attachment(source["id"], connector=connector("h"))
        api("DELETE", f"/attachments/{row['id']}")
        api.act(source["id"], {"os-extend": {"new_size": 2}})
        sentence = api.fault(400, "DELETE", f"/volumes/{source['id']}?cascade=true")
        assert "not complete yet" in sentence
        gate.open.set()
        copy = made.result().json["volume"]
    until(lambda: api.shown(copy["id"])["status"] == "available")
    assert (copy["size"], api.shown(source["id"])["size"]) == (1, 2)
    api("DELETE", f"/volumes/{source['id']}", status=202)
    api.gone(f"/volumes/{source['id']}")


def test_a_source_being_extended_is_not_cloned(api: Api, node: Node):
    source = api.volume()
    asked = {"volume": {"source_volid": source["id"]}}
    with (
        ThreadPoolExecutor(2) as clients,
        node.driver("api").failures.hold("extend.before") as gate,
    ):
        grown = {"os-extend": {"new_size": 2}}
        clients.submit(api.act, source["id"], grown)
        assert gate.reached.wait(10)
        sentence = api.fault(400, "POST", "/volumes", asked)
        assert "extending" in sentence
        gate.open.set()
    until(lambda: api.shown(source["id"])["size"] == 2)


@pytest.mark.parametrize(
    ("error", "status"), [(NoSpace("api", "full"), 413), (BROKEN, 500)]
)
@pytest.mark.parametrize("point", ["create_snapshot.before", "create_from.half"])
def test_a_failed_clone_is_an_error_in_the_answer_and_leaves_nothing(
    api: Api, node: Node, point: str, error: Exception, status: int
):
    source = api.volume()
    asked = {"volume": {"source_volid": source["id"]}}
    storage = fake_storage.storage("api")
    before = (set(storage.disks), set(storage.snapshots))
    with node.driver("api").failures.fail(point, error):
        api.fault(status, "POST", "/volumes", asked)
    # Less than before is right: the deletes of earlier tests end meanwhile.
    assert set(storage.disks) <= before[0]
    assert set(storage.snapshots) <= before[1]
    assert len(api("GET", "/volumes")["volumes"]) == 1
    api("DELETE", f"/volumes/{source['id']}", status=202)


UNABLE = Unsupported("a snapshot on backend api", "use another")


def test_a_driver_without_snapshots_is_400_and_leaves_nothing(api: Api, node: Node):
    source = api.volume()
    fail = node.driver("api").failures.fail
    with fail("create_snapshot.before", UNABLE), fail("delete_snapshot.before", UNABLE):
        asked: dict[str, Any] = {"snapshot": {"volume_id": source["id"]}}
        assert "not supported" in api.fault(400, "POST", "/snapshots", asked)
        asked = {"volume": {"source_volid": source["id"]}}
        assert "not supported" in api.fault(400, "POST", "/volumes", asked)
    assert api("GET", "/snapshots")["snapshots"] == []
    assert [row["id"] for row in api("GET", "/volumes")["volumes"]] == [source["id"]]
    assert api.shown(source["id"])["status"] == "available"


@pytest.mark.parametrize(
    ("error", "status"), [(NoSpace("api", "full"), 413), (BROKEN, 500)]
)
def test_a_failed_snapshot_is_an_error_in_the_answer_and_leaves_nothing(
    api: Api, node: Node, error: Exception, status: int
):
    source = api.volume()
    asked = {"snapshot": {"volume_id": source["id"]}}
    for point in ("create_snapshot.before", "create_snapshot.after"):
        with node.driver("api").failures.fail(point, error):
            api.fault(status, "POST", "/snapshots", asked)
    assert api("GET", "/snapshots")["snapshots"] == []
    api("DELETE", f"/volumes/{source['id']}", status=202)


def test_a_failed_snapshot_delete_is_an_error_and_can_be_repeated(api: Api, node: Node):
    path = f"/snapshots/{api.snapshot(api.volume()['id'])['id']}"
    busy = DiskBusy(NOWHERE, "it is open")
    with node.driver("api").failures.fail("delete_snapshot.before", busy):
        api("DELETE", path, status=202)
        until(lambda: api("GET", path)["snapshot"]["status"] == "error_deleting")
    api("DELETE", path, status=202)
    api.gone(path)


def test_a_volume_with_snapshots_is_deleted_only_with_cascade(api: Api):
    made = api.volume()
    ids = [api.snapshot(made["id"])["id"] for _ in range(2)]
    path = f"/volumes/{made['id']}"
    assert "cascade" in api.fault(400, "DELETE", path)
    assert api.shown(made["id"])["status"] == "available"
    api("DELETE", f"{path}?cascade=true", status=202)
    api.gone(path)
    for snapshot in ids:
        api.fault(404, "GET", f"/snapshots/{snapshot}")
    assert set(ids) & set(fake_storage.storage("api").snapshots) == set()


def test_a_snapshot_is_not_deleted_while_a_volume_is_created_from_it(
    api: Api, node: Node
):
    source = api.volume()
    snapshot = api.snapshot(source["id"])
    asked = {"volume": {"snapshot_id": snapshot["id"]}}
    with (
        ThreadPoolExecutor(1) as client,
        node.driver("api").failures.hold("create_from.half") as gate,
    ):
        made = client.submit(api.send, "POST", "/volumes", asked)
        assert gate.reached.wait(10)
        sentence = api.fault(400, "DELETE", f"/snapshots/{snapshot['id']}")
        assert "a volume is being created" in sentence
        sentence = api.fault(400, "DELETE", f"/volumes/{source['id']}?cascade=true")
        assert snapshot["id"] in sentence
        gate.open.set()
        assert made.result().status_code == 202
    copy = made.result().json["volume"]["id"]
    until(lambda: api.shown(copy)["status"] == "available")
    api("DELETE", f"/snapshots/{snapshot['id']}", status=202)


def test_a_snapshot_in_error_creates_no_volume(api: Api, node: Node):
    snapshot = api.snapshot(api.volume()["id"])
    with node.driver("api").failures.hold("delete_snapshot.before") as gate:
        api("DELETE", f"/snapshots/{snapshot['id']}", status=202)
        assert gate.reached.wait(10)
        asked = {"volume": {"snapshot_id": snapshot["id"]}}
        sentence = api.fault(400, "POST", "/volumes", asked)
        assert sentence.startswith("volume.snapshot_id: ")
        sentence = api.fault(400, "DELETE", f"/snapshots/{snapshot['id']}")
        assert "deleting" in sentence
        gate.open.set()
    api.gone(f"/snapshots/{snapshot['id']}")


@pytest.mark.parametrize("kind", ["snapshot", "volume"])
def test_a_source_extended_before_its_snapshot_is_409(api: Api, node: Node, kind: str):
    """The row of the copy has the size of the source, which must not have changed."""
    source = api.volume()
    asked: dict[str, Any] = {
        "snapshot": {"snapshot": {"volume_id": source["id"]}},
        "volume": {"volume": {"source_volid": source["id"]}},
    }[kind]
    path = f"/{kind}s"

    def others() -> list[str]:
        found = api("GET", path)[f"{kind}s"]
        return [row["id"] for row in found if row["id"] != source["id"]]

    locks = node.services.snapshots._locks
    with ThreadPoolExecutor(2) as clients:
        with locks.volume(source["id"], "the test"):
            made = clients.submit(api.send, "POST", path, asked)
            until(lambda: len(others()) == 1)
            grown = {"os-extend": {"new_size": 2}}
            clients.submit(api.act, source["id"], grown)
            until(lambda: api.shown(source["id"])["status"] == "extending")
        assert made.result().status_code == 409
    assert others() == []
    until(lambda: api.shown(source["id"])["size"] == 2)
