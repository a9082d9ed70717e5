# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What has no row: listed, recovered under its own id, deleted when asked."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers.values import GIB, Connector, Export, Mode, Snapshot, Volume
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator
from tests.stands.waiting import until


def stray_disk(node: Node, size: int = GIB, data: bytes = b"") -> str:
    """Create a disk without a row, as after the restore of an old database."""
    driver, made = node.driver("api"), Volume(str(uuid.uuid4()), size)
    driver.create(made)
    if data:
        driver.storage.write(made.id, 0, data)
    return made.id


def export(node: Node, volume_id: str) -> None:
    """Export it to a host."""
    disk = node.driver("api").disk(volume_id)
    host = Connector(initiator("stray"), Mode.RW)
    node.target("api").apply(Export(volume_id, disk, (host,)))


def orphans(api: Api, ident: str) -> list[dict[str, Any]]:
    """Those of this id."""
    found = api("GET", "/lunshare/orphans")["orphans"]
    return [each for each in found if each["id"] == ident]


def volume_on_one_of_two(path: Path) -> tuple[Node, str, str, str]:
    """Create a node and a volume; return them, its backend, and the other backend."""
    names = [f"b{uuid.uuid4().hex}" for _ in "ab"]  # the fakes outlive their nodes
    node = Node(path, backends=",".join(names)).start()
    api = Api(node.assembly.app)
    made = api.volume()
    host = api.shown(made["id"])["os-vol-host-attr:host"]
    (own,) = (name for name in names if host == node.services.node.host_of(name))
    (other,) = (name for name in names if name != own)
    return node, made["id"], own, other


def test_a_disk_without_a_row_is_recovered_with_its_bytes_and_id(
    api: Api, node: Node
) -> None:
    kind = api.type(multiattach="<is> True")
    ident = stray_disk(node, 2 * GIB, b"data")
    (found,) = orphans(api, ident)
    assert (found["kind"], found["backend"]) == ("disk", "api")
    asked = {"volume": {"id": ident, "name": "back", "volume_type": kind["id"]}}
    made = api("POST", "/lunshare/orphans", asked, 202)["volume"]
    assert (made["id"], made["size"], made["status"]) == (ident, 2, "available")
    assert api.shown(ident)["multiattach"] is True
    assert orphans(api, ident) == []
    api.attachment(ident, mode="ro", connector=connector("reader"))
    assert node.driver("api").storage.read(ident, 0, 4) == b"data"
    assert "has a row" in api.fault(409, "POST", "/lunshare/orphans", asked)


def test_a_volume_whose_row_was_deleted_is_recovered(api: Api, node: Node) -> None:
    volume = api.volume()
    row = api.attachment(volume["id"], connector=connector("once"))
    api("DELETE", f"/attachments/{row['id']}")
    api("DELETE", f"/volumes/{volume['id']}", status=202)
    api.gone(f"/volumes/{volume['id']}")
    node.driver("api").create(Volume(volume["id"], GIB))
    asked = {"volume": {"id": volume["id"]}}
    api("POST", "/lunshare/orphans", asked, 202)
    assert api.shown(volume["id"])["status"] == "available"


def test_an_orphaned_export_is_deleted_before_its_disk(api: Api, node: Node) -> None:
    ident = stray_disk(node)
    export(node, ident)
    assert {each["kind"] for each in orphans(api, ident)} == {"disk", "export"}
    recover = {"volume": {"id": ident}}
    said = api.fault(409, "POST", "/lunshare/orphans", recover)
    assert "is still exported: delete the orphaned export first" in said
    assert said == api.fault(409, "DELETE", f"/lunshare/orphans/disk/{ident}")
    api("DELETE", f"/lunshare/orphans/export/{ident}", status=204)
    assert node.target("api").observe_volume(ident) is None
    api("DELETE", f"/lunshare/orphans/disk/{ident}", status=204)
    assert orphans(api, ident) == []
    api.fault(404, "DELETE", f"/lunshare/orphans/disk/{ident}")
    api.fault(404, "POST", "/lunshare/orphans", recover)


def test_an_orphaned_snapshot_is_deleted_without_its_volume(
    api: Api, node: Node
) -> None:
    volume = api.volume()
    stray = Snapshot(str(uuid.uuid4()), volume["id"], GIB)
    node.driver("api").create_snapshot(stray)
    (found,) = orphans(api, stray.id)
    assert found["kind"] == "snapshot"
    api("DELETE", f"/lunshare/orphans/snapshot/{stray.id}", status=204)
    assert orphans(api, stray.id) == []
    assert api.shown(volume["id"])["status"] == "available"


def test_a_disk_with_a_row_cannot_be_deleted_as_an_orphan(api: Api, node: Node) -> None:
    volume = api.volume()
    snapshot = api.snapshot(volume["id"])
    for kind, ident in (("disk", volume), ("export", volume), ("snapshot", snapshot)):
        path = f"/lunshare/orphans/{kind}/{ident['id']}"
        assert "has a row" in api.fault(409, "DELETE", path)
    api.fault(404, "DELETE", f"/lunshare/orphans/pool/{volume['id']}")
    assert node.driver("api").disk(volume["id"]).size == GIB


def test_two_disks_of_one_id_are_listed_and_none_is_chosen(tmp_path: Path) -> None:
    """An old database was restored during a migration: one of them is half a copy."""
    node = Node(tmp_path, backends="left,right").start()
    api, lost = Api(node.assembly.app), Volume(str(uuid.uuid4()), GIB)
    paths = {node.driver(name).create(lost).path for name in ("left", "right")}
    assert {each["backend"] for each in orphans(api, lost.id)} == {"left", "right"}
    asked = {"volume": {"id": lost.id}}
    disk = f"/lunshare/orphans/disk/{lost.id}"
    for fault in (
        api.fault(409, "POST", "/lunshare/orphans", asked),
        api.fault(409, "DELETE", disk),
    ):
        assert all(path in fault for path in paths)
    assert [len(node.driver(name).disks()) for name in ("left", "right")] == [1, 1]
    node.driver("right").delete(lost.id)
    api("POST", "/lunshare/orphans", asked, 202)
    assert api.shown(lost.id)["status"] == "available"
    node.close()


def test_second_disk_of_a_volume_on_another_backend_is_reported(tmp_path: Path) -> None:
    """A copy that a migration left behind; it has no row, but its id has one."""
    node, ident, own, other = volume_on_one_of_two(tmp_path)
    api = Api(node.assembly.app)
    assert orphans(api, ident) == []
    path = node.driver(other).create(Volume(ident, GIB)).path
    where = f"disk {path} (volume {ident} is on backend {own})"
    (found,) = orphans(api, ident)
    assert (found["backend"], found["where"]) == (other, where)
    assert node.assembly.reconcile.run().unknown == [f"{where} has no row"]
    assert f"{where} has no row" in str(api("GET", "/lunshare/health"))
    disk = f"/lunshare/orphans/disk/{ident}"
    assert "remove a second disk by hand" in api.fault(409, "DELETE", disk)
    # Nothing was changed, and the volume's own disk is not reported.
    assert [len(node.driver(name).disks()) for name in (own, other)] == [1, 1]
    node.driver(other).delete(ident)
    assert orphans(api, ident) == []


@pytest.mark.parametrize("held", [("other", "fill.after"), ("own", "delete.before")])
def test_disks_of_a_migration_in_progress_are_not_orphans(
    tmp_path: Path, held: tuple[str, str]
) -> None:
    node, ident, own, other = volume_on_one_of_two(tmp_path)
    api = Api(node.assembly.app)
    backend, point = {"own": own, "other": other}[held[0]], held[1]
    migrate = {"os-migrate_volume": {"host": node.services.node.host_of(other)}}
    with (
        ThreadPoolExecutor(1) as client,
        node.driver(backend).failures.hold(point) as gate,
    ):
        done = client.submit(api.act, ident, migrate)
        assert gate.reached.wait(10)
        assert [len(node.driver(name).disks()) for name in (own, other)] == [1, 1]
        assert orphans(api, ident) == []
        gate.open.set()
        done.result()
    until(lambda: not node.driver(own).disks())
