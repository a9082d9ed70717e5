# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks that are managed, and volumes that are unmanaged."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lunshare.drivers.errors import CommandFailed, DiskBusy, NoSpace, Unsupported
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB, Manageable
from tests.api.calls import Api
from tests.stands.node import Node, connector
from tests.stands.waiting import until

UNMANAGE: dict[str, Any] = {"os-unmanage": None}
NOWHERE = "11111111-2222-3333-4444-555555555555"
BROKEN = CommandFailed(("lvrename",), 5, "no such group")
UNABLE = Unsupported("taking over a disk on backend api", "use another")
BUSY = DiskBusy(NOWHERE, "it is open")


@pytest.fixture
def host(node: Node) -> str:
    return node.services.node.host_of("api")


def foreign(data: bytes = b"theirs", size: int = GIB) -> str:
    """Create a foreign disk."""
    held, name = fake_storage.storage("api"), f"disk-{uuid.uuid4()}"
    disk = held.foreign_disks[name] = fake_storage.FakeDisk(size)
    disk.write(0, data)
    held.foreign += size
    return name


def manage(host: str, name: str, /, **fields: Any) -> dict[str, Any]:
    return {"volume": {"host": host, "ref": {"source-name": name}, **fields}}


def names(api: Api, host: str, query: str = "") -> list[str]:
    path = f"/manageable_volumes?host={host.replace('#', '%23')}{query}"
    found = api("GET", path)["manageable-volumes"]
    return [row["reference"]["source-name"] for row in found]


@pytest.mark.parametrize("path", ["/manageable_volumes", "/os-volume-manage"])
def test_a_managed_disk_becomes_a_volume_with_its_bytes(api: Api, host: str, path: str):
    name = foreign(size=GIB)
    assert name in names(api, host)
    asked = manage(host, name, name="n", description="d", metadata={"a": "b"})
    made = api("POST", path, asked, 202)["volume"]
    assert (made["status"], made["size"], made["name"]) == ("available", 1, "n")
    assert fake_storage.storage("api").read(made["id"], 0, 6) == b"theirs"
    assert name not in names(api, host)
    assert api.shown(made["id"])["os-vol-host-attr:host"] == host
    api.attachment(made["id"], connector=connector("h"))


def test_the_host_may_be_named_without_its_pool(api: Api, host: str):
    short = host.partition("#")[0]
    name = foreign()
    assert name in names(api, short)
    api("POST", "/manageable_volumes", manage(short, name), 202)


def test_a_managed_disk_is_extended_to_full_gib(api: Api, host: str):
    name = foreign(b"odd", GIB + 512)
    made = api("POST", "/manageable_volumes", manage(host, name), 202)["volume"]
    assert made["size"] == 2
    disk = fake_storage.storage("api").disks[made["id"]]
    assert (disk.size, disk.read(0, 3)) == (2 * GIB, b"odd")


def test_lists_of_foreign_disks_have_pages_order_and_reasons(
    api: Api, node: Node, host: str, monkeypatch: pytest.MonkeyPatch
):
    there = (
        Manageable("b", GIB),
        Manageable("a", GIB // 2, "it is mounted"),
        Manageable("c", 3 * GIB),
    )
    monkeypatch.setattr(node.driver("api"), "manageable", lambda: there)
    assert names(api, host, "&sort=size:desc") == ["c", "b", "a"]
    assert names(api, host, "&sort=reference:asc&limit=2") == ["a", "b"]
    assert names(api, host, "&sort=reference:asc&marker=a") == ["b", "c"]
    assert names(api, host, "&offset=2") == ["c"]
    path = f"?host={host.replace('#', '%23')}&sort=reference:asc"
    (row, *_) = api("GET", f"/manageable_volumes/detail{path}")["manageable-volumes"]
    assert row == {
        "reference": {"source-name": "a"},
        "size": 1,
        "safe_to_manage": False,
        "reason_not_safe": "it is mounted",
        "cinder_id": None,
        "extra_info": None,
    }
    asked = manage(host, "a")
    assert "it is mounted" in api.fault(400, "POST", "/manageable_volumes", asked)
    assert "sort" in api.fault(400, "GET", f"/manageable_volumes{path},x")


def test_manageable_volumes_exist_from_3_8_on(api: Api, host: str):
    path = f"/manageable_volumes?host={host.replace('#', '%23')}"
    api.at("3.7").fault(404, "GET", path)
    api.at("3.8")("GET", path)
    assert "host" in api.fault(400, "GET", "/manageable_volumes")
    for unknown in ("x@y", "x", host + "x"):
        asked = manage(unknown, "n")
        assert unknown in api.fault(404, "POST", "/manageable_volumes", asked)


BAD: dict[str, dict[str, Any]] = {
    "volume.host": {"ref": {"source-name": "n"}},
    "volume.ref": {"host": "h"},
    "volume.ref.source-name": {"host": "h", "ref": {"source-id": "n"}},
    "volume.colour": {"host": "h", "ref": {"source-name": "n"}, "colour": "red"},
    "volume.bootable": {"host": "h", "ref": {"source-name": "n"}, "bootable": "so"},
}


@pytest.mark.parametrize("field", BAD)
def test_an_invalid_body_is_400_and_names_the_field(api: Api, field: str):
    asked = {"volume": BAD[field]}
    assert field in api.fault(400, "POST", "/manageable_volumes", asked)


def test_an_unknown_or_unfit_disk_is_400(api: Api, host: str):
    sentence = api.fault(400, "POST", "/manageable_volumes", manage(host, "nothing"))
    assert sentence.startswith("volume.ref.source-name: ")
    name = foreign()
    kind = api.type(volume_backend_name="elsewhere")["id"]
    asked = manage(host, name, volume_type=kind)
    sentence = api.fault(400, "POST", "/manageable_volumes", asked)
    assert sentence.startswith("volume.volume_type: ")
    asked = manage(host, name, availability_zone="mars")
    assert "mars" in api.fault(400, "POST", "/manageable_volumes", asked)
    assert name in names(api, host)


@pytest.mark.parametrize(
    ("point", "error", "status"),
    [
        ("manage.before", BROKEN, 500),
        ("manage.before", BUSY, 409),
        ("manage.before", UNABLE, 400),
        ("manage.after", BROKEN, 500),
        ("extend.before", NoSpace("api", "full"), 413),
    ],
)
def test_a_disk_that_cannot_be_managed_is_not_changed(
    api: Api, node: Node, point: str, error: Exception, status: int
):
    host = node.services.node.host_of("api")
    data = uuid.uuid4().bytes
    name = foreign(data, GIB + 512)
    asked = manage(host, name)
    with node.driver("api").failures.fail(point, error):
        api.fault(status, "POST", "/manageable_volumes", asked)
    assert api("GET", "/volumes")["volumes"] == []
    theirs = fake_storage.storage("api").foreign_disks.values()
    assert data in [disk.read(0, len(data)) for disk in theirs]


def test_a_late_failure_is_an_error_and_a_delete_releases_the_disk(
    api: Api, node: Node, host: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node.assembly.managed_disks._jobs, "_create_wait", 0.0)
    data = uuid.uuid4().bytes
    name = foreign(data)
    fail, hold = node.driver("api").failures.fail, node.driver("api").failures.hold
    with fail("manage.after", BROKEN):
        with hold("manage.before") as gate:
            asked = manage(host, name)
            made = api("POST", "/manageable_volumes", asked, 202)["volume"]
            assert made["status"] == "creating"
            gate.open.set()
        until(lambda: api.shown(made["id"])["status"] == "error")
    api("DELETE", f"/volumes/{made['id']}", status=202)
    api.gone(f"/volumes/{made['id']}")
    theirs = fake_storage.storage("api").foreign_disks.values()
    assert data in [disk.read(0, len(data)) for disk in theirs]


def test_a_volume_is_unmanaged_and_managed_again(api: Api, host: str):
    made = api.volume()
    fake_storage.storage("api").write(made["id"], 0, b"data")
    before = set(names(api, host))
    api.act(made["id"], UNMANAGE)
    api.fault(404, "GET", f"/volumes/{made['id']}")
    (name,) = set(names(api, host)) - before
    again = api("POST", "/manageable_volumes", manage(host, name), 202)["volume"]
    assert fake_storage.storage("api").read(again["id"], 0, 4) == b"data"


def test_a_volume_in_use_is_not_unmanaged(api: Api, node: Node):
    made = api.volume()
    row = api.attachment(made["id"])
    assert "1 attachments" in api.refused(400, made["id"], UNMANAGE)
    api("DELETE", f"/attachments/{row['id']}")
    snapshot = api.snapshot(made["id"])
    assert "1 snapshots" in api.refused(400, made["id"], UNMANAGE)
    api("DELETE", f"/snapshots/{snapshot['id']}", status=202)
    api.gone(f"/snapshots/{snapshot['id']}")
    asked = {"volume": {"source_volid": made["id"]}}
    with (
        ThreadPoolExecutor(1) as client,
        node.driver("api").failures.hold("create_from.before") as gate,
    ):
        client.submit(api.send, "POST", "/volumes", asked)
        assert gate.reached.wait(10)
        assert "not complete" in api.refused(400, made["id"], UNMANAGE)
        gate.open.set()
    api.refused(404, NOWHERE, UNMANAGE)


@pytest.mark.parametrize(("error", "status"), [(UNABLE, 400), (BUSY, 409)], ids=repr)
def test_a_refused_unmanage_changes_nothing(
    api: Api, node: Node, error: Exception, status: int
):
    made = api.volume()
    with node.driver("api").failures.fail("unmanage.before", error):
        api.refused(status, made["id"], UNMANAGE)
    assert api.shown(made["id"])["status"] == "available"


def test_reconcile_retries_a_failed_unmanage(api: Api, node: Node):
    made = api.volume()
    with node.driver("api").failures.fail("unmanage.after", BROKEN):
        api.refused(500, made["id"], UNMANAGE)
    assert api.shown(made["id"])["status"] == "error_unmanaging"
    asked = {"attachment": {"volume_uuid": made["id"]}}
    assert "unmanaging" in api.fault(400, "POST", "/attachments", asked)
    node.assembly.reconcile.run()
    api.fault(404, "GET", f"/volumes/{made['id']}")
