# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Another type, and another backend, for a volume that is there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.errors import (
    CommandFailed,
    DiskBusy,
    ForeignBytes,
    NoSpace,
    Unsupported,
)
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import CTX, Node, connector, node_fixture
from tests.stands.waiting import until

NOWHERE = "11111111-2222-3333-4444-555555555555"
BROKEN = CommandFailed(("dd",), 1, "Input/output error")
SHARED = "<is> True"


# A node with two backends.
node = node_fixture("module", backends="here,there")


def place(api: Api, node: Node, backend: str = "here", **fields: Any) -> dict[str, Any]:
    """A new volume on this backend, with different bytes each time."""
    kind = api.type(volume_backend_name=backend, **fields.pop("specs", {}))
    made = api.volume(volume_type=kind["name"], **fields)
    fake_storage.storage(backend).write(made["id"], 0, made["id"].encode())
    fake_storage.storage(backend).write(made["id"], GIB - 4096, b"end")
    return made


def is_complete(volume: dict[str, Any], backend: str) -> bool:
    """Whether this backend has the volume with all its bytes, and no other has."""
    held = fake_storage.storage(backend)
    other = fake_storage.storage({"here": "there", "there": "here"}[backend])
    until(lambda: volume["id"] not in other.disks)
    start = held.read(volume["id"], 0, 36) == volume["id"].encode()
    return start and held.read(volume["id"], GIB - 4096, 3) == b"end"


def migrate(node: Node, backend: str, **more: Any) -> dict[str, Any]:
    return {"os-migrate_volume": {"host": node.services.node.host_of(backend), **more}}


def retype(kind: dict[str, Any], policy: str | None = None) -> dict[str, Any]:
    asked = {"new_type": kind["name"], "migration_policy": policy}
    return {"os-retype": {k: v for k, v in asked.items() if v}}


def is_on(api: Api, volume: dict[str, Any], node: Node, backend: str) -> bool:
    host = api.shown(volume["id"])["os-vol-host-attr:host"]
    return bool(host == node.services.node.host_of(backend))


@pytest.fixture
def other_sectors(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disks of backend "there" have logical sectors of 4,096 bytes."""
    there = node.driver("there")
    capacity = there.capacity
    with monkeypatch.context() as patch:
        patch.setattr(there, "capacity", lambda: replace(capacity(), sector=4096))
        node.services.node.refresh()
        yield
    node.services.node.refresh()


def test_a_volume_is_not_migrated_to_other_sectors(
    api: Api, node: Node, other_sectors: None
):
    made, kind = place(api, node), api.type(volume_backend_name="there")
    for action in (migrate(node, "there"), retype(kind, "on-demand")):
        refused = api.refused(400, made["id"], action)
        assert "sectors of 4096 bytes and the volume's 512" in refused
    assert is_on(api, made, node, "here")
    assert is_complete(made, "here")


@pytest.mark.parametrize("changed", ["here", "there"])
def test_sectors_that_the_node_has_not_seen_yet_are_read_before_a_copy(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch, changed: str
):
    """A pool that was never read counted as one with sectors of 512 bytes."""
    made, driver = place(api, node), node.driver(changed)
    api.act(made["id"], retype(api.type()))
    larger = replace(driver.capacity(), sector=4096)
    monkeypatch.setattr(driver, "capacity", lambda: larger)
    assert "sectors" in api.refused(400, made["id"], migrate(node, "there"))
    assert is_on(api, made, node, "here")
    assert is_complete(made, "here")


def test_a_volume_is_migrated_to_another_backend_and_back(api: Api, node: Node):
    made = api.volume()
    home = "here" if is_on(api, made, node, "here") else "there"
    away = {"here": "there", "there": "here"}[home]
    fake_storage.storage(home).write(made["id"], 0, made["id"].encode())
    fake_storage.storage(home).write(made["id"], GIB - 4096, b"end")
    for backend in (away, home):
        api.act(made["id"], migrate(node, backend, force_host_copy=True))
        assert is_on(api, made, node, backend)
        shown = api.shown(made["id"])
        assert (shown["status"], shown["migration_status"]) == ("available", "success")
        assert shown["os-vol-mig-status-attr:migstat"] == "success"
        assert is_complete(made, backend)
        # The row changes shortly after the disk is deleted.
        until(lambda: node.services.volumes.get(CTX, made["id"]).stale_backend is None)
    api.attachment(made["id"], connector=connector("h"))


def test_a_volume_being_migrated_shows_it_and_cannot_be_attached(api: Api, node: Node):
    made = place(api, node)
    kind = api.type(volume_backend_name="there")
    with (
        ThreadPoolExecutor(1) as client,
        node.driver("there").failures.hold("fill.half") as gate,
    ):
        done = client.submit(api.act, made["id"], retype(kind, "on-demand"))
        assert gate.reached.wait(10)
        shown = api.shown(made["id"])
        assert (shown["status"], shown["migration_status"]) == ("retyping", "migrating")
        asked: dict[str, Any] = {"attachment": {"volume_uuid": made["id"]}}
        assert "retyping" in api.fault(400, "POST", "/attachments", asked)
        other = retype(api.type(volume_backend_name="there"), "on-demand")
        assert "retyping" in api.refused(400, made["id"], other)
        assert "retyping" in api.fault(400, "DELETE", f"/volumes/{made['id']}")
        assert "in use" in api.fault(400, "DELETE", f"/types/{kind['id']}")
        gate.open.set()
        done.result()
    assert is_complete(made, "there")


def test_a_retype_migrates_only_on_demand(api: Api, node: Node):
    made = place(api, node)
    kind = api.type(volume_backend_name="there", multiattach=SHARED)
    for policy in (None, "never"):
        sentence = api.refused(400, made["id"], retype(kind, policy))
        assert sentence.startswith("os-retype.migration_policy: ")
    api.act(made["id"], retype(kind, "on-demand"))
    shown = api.shown(made["id"])
    assert shown["volume_type_id"] == kind["id"]
    assert (shown["multiattach"], shown["status"]) == (True, "available")
    assert is_complete(made, "there")


def test_a_retype_that_fits_the_backend_changes_only_the_row(api: Api, node: Node):
    made = place(api, node)
    kind = api.type(volume_backend_name="here")
    api.complete(api.attachment(made["id"], connector=connector("h"))["id"])
    api.act(made["id"], {"os-retype": {"new_type": kind["id"]}})
    shown = api.shown(made["id"])
    assert (shown["volume_type"], shown["status"]) == (kind["name"], "in-use")
    assert is_complete(made, "here")


def test_multiattach_changes_only_while_no_host_is_attached(api: Api, node: Node):
    made = place(api, node)
    shared = api.type(volume_backend_name="here", multiattach=SHARED)
    row = api.attachment(made["id"], connector=connector("h"))
    sentence = api.refused(400, made["id"], retype(shared))
    assert "1 attachments" in sentence
    assert api.shown(made["id"])["multiattach"] is False
    api("DELETE", f"/attachments/{row['id']}")
    api.act(made["id"], retype(shared))
    assert api.shown(made["id"])["multiattach"] is True


@pytest.mark.parametrize("point", ["create.after", "fill.before", "fill.half"])
def test_a_failed_retype_changes_nothing(api: Api, node: Node, point: str):
    made = place(api, node)
    before = api.shown(made["id"])
    kind = api.type(volume_backend_name="there", multiattach=SHARED)
    with node.driver("there").failures.fail(point, BROKEN):
        api.refused(500, made["id"], retype(kind, "on-demand"))
    shown = api.shown(made["id"])
    assert shown["migration_status"] == "error"
    for key in ("volume_type_id", "multiattach", "status", "os-vol-host-attr:host"):
        assert shown[key] == before[key]
    assert is_complete(made, "here")
    until(lambda: node.services.volumes._rows.get(made["id"]).stale_backend is None)
    api.act(made["id"], retype(kind, "on-demand"))


def test_a_target_that_had_bytes_of_another_disk_gets_no_copy(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
):
    """The copy ends before the disk does, where the pool rounds sizes up."""
    made, there = place(api, node), node.driver("there")
    api.act(made["id"], retype(api.type()))

    def refuse(volume_id: str) -> None:
        raise ForeignBytes(volume_id, "group/unmanaged")

    monkeypatch.setattr(there, "require_empty", refuse)
    api.refused(500, made["id"], migrate(node, "there"))
    assert api.shown(made["id"])["migration_status"] == "error"
    assert is_complete(made, "here")
    monkeypatch.undo()
    until(lambda: node.services.volumes._rows.get(made["id"]).stale_backend is None)
    api.act(made["id"], migrate(node, "there"))


FULL, UNABLE = NoSpace("there", "full"), Unsupported("migration", "use another")


@pytest.mark.parametrize(("error", "status"), [(FULL, 413), (UNABLE, 400)], ids=repr)
def test_a_refused_migration_changes_nothing(
    api: Api, node: Node, error: Exception, status: int
):
    made = place(api, node, "here")
    kind = api.type()
    api.act(made["id"], retype(kind))
    with node.driver("there").failures.fail("fill.before", error):
        api.refused(status, made["id"], migrate(node, "there"))
    assert api.shown(made["id"])["status"] == "available"
    assert is_complete(made, "here")


def test_a_driver_that_cannot_receive_bytes_is_400_and_creates_nothing(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
):
    made = place(api, node, "here")
    api.act(made["id"], retype(api.type()))
    passed: list[str] = []
    node.driver("there").failures.watch(passed.append)
    nothing = VolumeAbilities(supports_snapshots=True)
    monkeypatch.setattr(type(node.driver("there")), "ABILITIES", nothing)
    sentence = api.refused(400, made["id"], migrate(node, "there"))
    assert "block disk" in sentence
    node.driver("there").failures.watch(lambda _: None)
    assert "create.before" not in passed
    shown = api.shown(made["id"])
    assert (shown["status"], shown["migration_status"]) == ("available", None)


def test_reconcile_deletes_the_old_disk_of_a_migration(api: Api, node: Node):
    made = place(api, node)
    api.act(made["id"], retype(api.type()))
    busy = DiskBusy(made["id"], "it is open")
    with node.driver("here").failures.fail("delete.before", busy):
        api.act(made["id"], migrate(node, "there"))
        until(lambda: is_on(api, made, node, "there"))
        sentence = api.refused(409, made["id"], migrate(node, "here"))
        assert "its last migration" in sentence
        assert "last migration" in api.refused(400, made["id"], {"os-unmanage": None})
        api.attachment(made["id"], connector=connector("h"))
    # On real targets an export goes by its volume's id: it is of "there" by now.
    passed: list[str] = []
    node.target("here").failures.watch(passed.append)
    node.assembly.reconcile.run()
    assert is_complete(made, "there")
    assert "observe" in passed
    assert "remove.before" not in passed
    node.target("here").failures.watch(lambda _: None)


def test_a_foreign_disk_of_the_same_name_is_not_overwritten(api: Api, node: Node):
    made = place(api, node)
    api.act(made["id"], retype(api.type()))
    held = fake_storage.storage("there")
    held.create(made["id"], GIB).complete = True
    held.write(made["id"], 0, b"whose?")
    assert "whose" in api.refused(409, made["id"], migrate(node, "there"))
    assert held.read(made["id"], 0, 6) == b"whose?"
    assert api.shown(made["id"])["status"] == "available"
    held.drop(made["id"])


def test_a_disk_larger_than_its_volume_is_migrated_with_all_bytes(api: Api, node: Node):
    made = place(api, node)
    api.act(made["id"], retype(api.type()))
    fake_storage.storage("here").create(made["id"], GIB + 4096)
    fake_storage.storage("here").write(made["id"], GIB, b"beyond")
    api.act(made["id"], migrate(node, "there"))
    assert fake_storage.storage("there").read(made["id"], GIB, 6) == b"beyond"


def test_a_volume_in_use_is_not_migrated(api: Api, node: Node):
    made = place(api, node)
    api.act(made["id"], retype(api.type()))
    row = api.attachment(made["id"])
    assert "1 attachments" in api.refused(400, made["id"], migrate(node, "there"))
    api("DELETE", f"/attachments/{row['id']}")
    api.snapshot(made["id"])
    assert "1 snapshots" in api.refused(400, made["id"], migrate(node, "there"))


def test_a_migration_to_an_unfit_host_is_400(api: Api, node: Node):
    made = place(api, node)
    assert "there" in api.refused(400, made["id"], migrate(node, "here"))
    sentence = api.refused(400, made["id"], migrate(node, "there"))
    assert "volume_backend_name" in sentence
    sentence = api.refused(400, made["id"], {"os-migrate_volume": {"host": "x@y"}})
    assert sentence.startswith("os-migrate_volume.host: ")
    large = api.type(volume_backend_name="nowhere")
    sentence = api.refused(400, made["id"], retype(large, "on-demand"))
    assert "volume_backend_name" in sentence


BAD: dict[str, dict[str, Any]] = {
    "os-retype.new_type": {"os-retype": {}},
    "os-retype.migration_policy": {
        "os-retype": {"new_type": "x", "migration_policy": "x"}
    },
    "os-migrate_volume.host": {"os-migrate_volume": {}},
    "os-migrate_volume.lock_volume": {
        "os-migrate_volume": {"host": "h", "lock_volume": "so"}
    },
}


@pytest.mark.parametrize("field", BAD)
def test_an_invalid_body_is_400_and_names_the_field(api: Api, field: str):
    assert field in api.refused(400, api.volume()["id"], BAD[field])


def test_an_unknown_volume_or_type_is_404_and_the_same_type_400(api: Api, node: Node):
    kind = api.type()
    assert NOWHERE in api.refused(404, NOWHERE, retype(kind))
    assert NOWHERE in api.refused(404, NOWHERE, migrate(node, "there"))
    made = api.volume(volume_type=kind["id"])
    sentence = api.refused(400, made["id"], retype(kind))
    assert "already" in sentence
    unknown = {"name": uuid.uuid4().hex}
    assert unknown["name"] in api.refused(404, made["id"], retype(unknown))


def test_a_delete_removes_the_old_disk_of_a_migration_too(api: Api, node: Node):
    made = place(api, node)
    api.act(made["id"], retype(api.type()))
    with node.driver("here").failures.fail("delete.before", BROKEN):
        api.act(made["id"], migrate(node, "there"))
        until(lambda: is_on(api, made, node, "there"))
    api("DELETE", f"/volumes/{made['id']}", status=202)
    api.gone(f"/volumes/{made['id']}")
    for backend in ("here", "there"):
        assert made["id"] not in fake_storage.storage(backend).disks
