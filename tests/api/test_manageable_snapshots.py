# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign snapshots are listed and managed, and snapshots are unmanaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.errors import CommandFailed, UnknownReference
from lunshare.drivers.fake.fake_storage import FakeDisk, storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import Node, is_counted
from tests.stands.waiting import until

NOWHERE = "11111111-2222-3333-4444-555555555555"
PATHS = ("/manageable_snapshots", "/os-snapshot-manage")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with a storage of its own."""
    made = Node(tmp_path, backends="taken").start()
    yield made
    made.close()
    held = storage("taken")
    for disks in (held.disks, held.snapshots, held.foreign_snapshots):
        disks.clear()
    held.provisioned = held.written = held.foreign = 0


@pytest.fixture
def api(node: Node) -> Api:
    """A project on it."""
    return Api(node.assembly.app)


def host(node: Node) -> str:
    """The backend, as a query names it."""
    return node.services.node.host_of("taken").replace("#", "%23")


def listed(api: Api, node: Node, path: str = PATHS[0], more: str = "") -> Any:
    """What could be managed."""
    return api("GET", f"{path}?host={host(node)}{more}")["manageable-snapshots"]


def wanted(volume: str, reference: str, **fields: Any) -> dict[str, Any]:
    """The body of a manage."""
    ref = {"source-name": reference}
    return {"snapshot": {"volume_id": volume, "ref": ref, **fields}}


def action(api: Api, ident: str, name: str) -> None:
    api("POST", f"/snapshots/{ident}/action", {name: None}, 202)


def refused(api: Api, ident: str, status: int = 400) -> str:
    path = f"/snapshots/{ident}/action"
    return api.fault(status, "POST", path, {"os-unmanage": None})


def foreign(volume: str, name: str, size: int = GIB) -> None:
    """Put a foreign snapshot of a volume into the pool."""
    disk = FakeDisk(size)
    disk.origin = volume
    storage("taken").foreign_snapshots[name] = disk
    storage("taken").foreign += size


def used(api: Api) -> tuple[int, int]:
    absolute = api("GET", "/limits")["limits"]["absolute"]
    return absolute["totalSnapshotsUsed"], absolute["totalGigabytesUsed"]


@pytest.mark.parametrize("path", PATHS)
def test_a_snapshot_is_unmanaged_and_managed_again(api: Api, node: Node, path: str):
    volume = api.volume()["id"]
    storage("taken").write(volume, 0, b"before")
    old = api.snapshot(volume)["id"]
    storage("taken").write(volume, 0, b"after ")
    assert used(api) == (1, 2)
    action(api, old, "os-unmanage")
    api.gone(f"/snapshots/{old}")
    assert used(api) == (0, 1)
    (found,) = listed(api, node, path)
    reference = f"unmanaged-{old}"
    assert found == {
        "reference": {"source-name": reference},
        "size": 1,
        "safe_to_manage": True,
        "source_reference": {"source-name": f"volume-{volume}"},
    }
    (full,) = listed(api, node, f"{path}/detail")
    more = {"reason_not_safe": None, "cinder_id": None, "extra_info": None}
    assert full == found | more
    fields = {"name": "n", "description": "d", "metadata": {"a": "b"}}
    made = api("POST", path, wanted(volume, reference, **fields), 202)["snapshot"]
    shown = api("GET", f"/snapshots/{made['id']}")["snapshot"]
    assert (shown["status"], shown["size"], shown["volume_id"]) == (
        "available",
        1,
        volume,
    )
    assert {key: shown[key] for key in fields} == fields
    assert listed(api, node) == []
    assert used(api) == (1, 2)
    assert is_counted(node, api.project)
    copy = api.volume(snapshot_id=made["id"])["id"]
    assert storage("taken").read(copy, 0, 6) == b"before"
    api.act(volume, {"revert": {"snapshot_id": made["id"]}})
    until(lambda: api.shown(volume)["status"] == "available")
    assert storage("taken").read(volume, 0, 6) == b"before"


def test_an_invalid_request_is_400_and_leaves_nothing(api: Api, node: Node):
    volume, other = api.volume()["id"], api.volume()["id"]
    foreign(volume, "theirs")
    foreign(volume, "odd", GIB + 512)
    before = listed(api, node, more="&sort=reference:asc")
    for path in PATHS:
        for body, field in (
            (wanted(volume, "none"), "none"),
            (wanted(other, "theirs"), "theirs"),
            (wanted(volume, "odd"), "GiB"),
            (wanted(volume, ""), "source-name"),
            ({"snapshot": {"volume_id": volume}}, "ref"),
            ({"snapshot": {"volume_id": volume, "ref": {}}}, "source-name"),
            ({"snapshot": {"volume_id": "x", "ref": {"source-name": "t"}}}, "volume"),
            ({}, "snapshot"),
        ):
            assert field in api.fault(400, "POST", path, body)
        assert NOWHERE in api.fault(404, "POST", path, wanted(NOWHERE, "theirs"))
        for below in ("", "/detail"):
            assert "host is missing" in api.fault(400, "GET", path + below)
            assert "mars" in api.fault(404, "GET", f"{path}{below}?host=mars@x")
    assert listed(api, node, more="&sort=reference:asc") == before
    assert api("GET", "/snapshots")["snapshots"] == []
    assert used(api)[0] == 0
    older = api.at("3.7")
    for method in ("GET", "POST"):
        older.fault(404, method, PATHS[0], {})


def test_the_list_has_pages_and_reasons(api: Api, node: Node):
    volume = api.volume()["id"]
    for name, size in (("b", GIB), ("a", 2 * GIB), ("c", GIB + 512)):
        foreign(volume, name, size)
    full = listed(api, node, f"{PATHS[0]}/detail", "&sort=reference:asc")
    assert [each["reference"]["source-name"] for each in full] == ["a", "b", "c"]
    assert [each["size"] for each in full] == [2, 1, 2]
    assert [each["safe_to_manage"] for each in full] == [True, True, False]
    assert "GiB" in full[2]["reason_not_safe"]
    page = api("GET", f"{PATHS[0]}?host={host(node)}&limit=2&sort=reference:asc")
    assert "marker=b" in page["manageable-snapshots_links"][0]["href"]
    rest = listed(api, node, more="&sort=reference:asc&marker=b")
    assert [each["reference"]["source-name"] for each in rest] == ["c"]


def test_quotas_count(api: Api, node: Node):
    volume = api.volume()["id"]
    foreign(volume, "theirs")
    path = f"/os-quota-sets/{api.project}"
    for limits in ({"snapshots": 0}, {"snapshots": 9, "gigabytes": 1}):
        api("PUT", path, {"quota_set": limits})
        assert "quota" in api.fault(413, "POST", PATHS[0], wanted(volume, "theirs"))
        assert len(listed(api, node)) == 1
        assert used(api) == (0, 1)
    api("PUT", path, {"quota_set": {"gigabytes": 2}})
    api("POST", PATHS[0], wanted(volume, "theirs"), 202)
    assert used(api) == (1, 2)


def test_a_volume_without_a_disk_has_no_foreign_snapshot(api: Api):
    kind = api.type(tier="gold")
    volume = api.volume(volume_type=kind["id"])
    assert volume["status"] == "error"
    api.fault(400, "POST", PATHS[0], wanted(volume["id"], "theirs"))


def test_a_frozen_backend_manages_and_unmanages_no_snapshot(api: Api, node: Node):
    volume = api.volume()["id"]
    snapshot = api.snapshot(volume)["id"]
    foreign(volume, "theirs")
    frozen = host(node).partition("%23")[0]
    api("PUT", "/os-services/freeze", {"host": frozen})
    assert "frozen" in api.fault(400, "POST", PATHS[0], wanted(volume, "theirs"))
    assert "frozen" in refused(api, snapshot)
    api("PUT", "/os-services/thaw", {"host": frozen})
    api("POST", PATHS[0], wanted(volume, "theirs"), 202)


def test_a_snapshot_that_is_read_is_not_unmanaged(api: Api, node: Node):
    snapshot = api.snapshot(api.volume()["id"])["id"]
    with node.driver("taken").failures.hold("create_from.half") as gate:
        asked = {"volume": {"snapshot_id": snapshot}}
        made = api("POST", "/volumes", asked, 202)["volume"]["id"]
        until(gate.reached.is_set)
        assert "is being created from" in refused(api, snapshot)
    until(lambda: api.shown(made)["status"] == "available")
    action(api, snapshot, "os-unmanage")
    refused(api, snapshot, 404)


def test_an_open_snapshot_is_not_unmanaged(api: Api, node: Node):
    snapshot = api.snapshot(api.volume()["id"])["id"]
    storage("taken").open.add(snapshot)
    refused(api, snapshot, 409)
    assert api("GET", f"/snapshots/{snapshot}")["snapshot"]["status"] == "available"
    storage("taken").open.clear()
    action(api, snapshot, "os-unmanage")


def test_an_unmanage_that_fails_is_repeated(api: Api, node: Node):
    snapshot = api.snapshot(api.volume()["id"])["id"]
    error = CommandFailed(("lvrename",), 5, "because of the test")
    failing = node.driver("taken").failures.fail("unmanage_snapshot.before", error)
    with failing:
        refused(api, snapshot, 500)
        shown = api("GET", f"/snapshots/{snapshot}")["snapshot"]
        assert shown["status"] == "unmanaging"
        assert "because of the test" in shown["status_reason"]
        path = f"/snapshots/{snapshot}"
        api.fault(400, "DELETE", path)
        volume = shown["volume_id"]
        api.fault(400, "DELETE", f"/volumes/{volume}?cascade=true")
        for status in ("unmanaging", "managing"):
            asked = {"os-reset_status": {"status": status}}
            assert "give one of" in api.fault(400, "POST", f"{path}/action", asked)
    node.assembly.reconcile.run()
    api.gone(f"/snapshots/{snapshot}")
    assert len(listed(api, node)) == 1


def test_a_failed_manage_leaves_the_snapshot_foreign(api: Api, node: Node):
    volume = api.volume()["id"]
    foreign(volume, "theirs")
    error = CommandFailed(("lvrename",), 5, "because of the test")
    for point in ("manage_snapshot.before", "manage_snapshot.after"):
        (name,) = storage("taken").foreign_snapshots
        with node.driver("taken").failures.fail(point, error):
            api.fault(500, "POST", PATHS[0], wanted(volume, name))
        assert api("GET", "/snapshots")["snapshots"] == []
        assert len(storage("taken").foreign_snapshots) == 1
        assert storage("taken").snapshots == {}
    assert used(api) == (0, 1)


def test_a_delete_keeps_a_snapshot_whose_manage_failed(api: Api, node: Node):
    """Its cleanup failed too, so it still has the name of a snapshot."""
    volume = api.volume()["id"]
    foreign(volume, "theirs")
    api.snapshot(volume)
    error = CommandFailed(("lvrename",), 5, "because of the test")
    failures = node.driver("taken").failures
    with (
        failures.fail("manage_snapshot.after", error),
        failures.fail("unmanage_snapshot.before", error),
    ):
        api.fault(500, "POST", PATHS[0], wanted(volume, "theirs"))
    assert len(storage("taken").snapshots) == 2
    api("DELETE", f"/volumes/{volume}?cascade=true", status=202)
    api.gone(f"/volumes/{volume}")
    assert storage("taken").snapshots == {}
    assert len(storage("taken").foreign_snapshots) == 1


def test_one_of_two_gets_a_foreign_snapshot(api: Api, node: Node):
    volume = api.volume()["id"]
    foreign(volume, "theirs")
    error = UnknownReference("theirs", "another request took it")
    with node.driver("taken").failures.fail("manage_snapshot.before", error):
        api.fault(400, "POST", PATHS[0], wanted(volume, "theirs"))
    assert len(listed(api, node)) == 1
    api("POST", PATHS[0], wanted(volume, "theirs"), 202)
    api.fault(400, "POST", PATHS[0], wanted(volume, "theirs"))
    assert len(api("GET", "/snapshots")["snapshots"]) == 1
