# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Statuses that an administrator sets, and deletes and detaches by force."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.fake import fake_storage
from tests.api.calls import Api
from tests.api.test_api_attachments import name, node_live
from tests.api.test_legacy_actions import NOWHERE, attached
from tests.stands.node import Node, connector, initiator
from tests.stands.waiting import until

FORCE_DELETE: dict[str, Any] = {"os-force_delete": None}
LABELS = ["creating", "error", "error_deleting", "extending", "retyping", "maintenance"]


def reset(**asked: Any) -> dict[str, Any]:
    return {"os-reset_status": asked}


def status(api: Api, volume: dict[str, Any]) -> str:
    return str(api.shown(volume["id"])["status"])


@pytest.mark.parametrize("wanted", LABELS)
def test_setting_a_status_starts_no_operation(api: Api, node: Node, wanted: str):
    volume = api.volume()
    api.act(volume["id"], reset(status=wanted))
    assert status(api, volume) == wanted
    asked = {"attachment": {"volume_uuid": volume["id"]}}
    assert wanted in api.fault(400, "POST", "/attachments", asked)
    node.assembly.reconcile.run()
    assert status(api, volume) == wanted
    assert volume["id"] in fake_storage.storage("api").disks
    api.act(volume["id"], reset(status="available"))
    assert status(api, volume) == "available"
    api.attachment(volume["id"])


def test_a_migrating_volume_is_not_deleted_by_force(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    node = Node(tmp_path, backends="one,two").start()
    api = Api(node.assembly.app)
    volume = api.volume()
    hosts = {each: node.services.node.host_of(each) for each in ("one", "two")}
    here = api.shown(volume["id"])["os-vol-host-attr:host"]
    (there,) = [each for each, host in hosts.items() if host != here]
    with (
        ThreadPoolExecutor(1) as client,
        node.driver(there).failures.hold("fill.half") as gate,
    ):
        move = {"os-migrate_volume": {"host": hosts[there]}}
        done = client.submit(api.act, volume["id"], move)
        assert gate.reached.wait(60)
        assert "maintenance" in api.refused(400, volume["id"], FORCE_DELETE)
        gate.open.set()
        done.result()
    assert status(api, volume) == "available"
    node.close()


@pytest.mark.parametrize("wanted", [None, "attaching", "reserved", *LABELS], ids=str)
def test_a_volume_in_any_status_is_deleted_by_force(api: Api, wanted: str | None):
    volume = api.volume()
    if wanted:
        api.act(volume["id"], reset(status=wanted))
        assert status(api, volume) == wanted
    api.act(volume["id"], FORCE_DELETE)
    api.gone(f"/volumes/{volume['id']}")
    assert volume["id"] not in fake_storage.storage("api").disks


def test_a_volume_in_use_or_with_snapshots_is_not_deleted_by_force(api: Api):
    volume = api.volume()
    made = api.attachment(volume["id"], connector=connector(name()))
    assert "attachments" in api.refused(400, volume["id"], FORCE_DELETE)
    api.complete(made["id"])
    api.refused(400, volume["id"], FORCE_DELETE)
    api("DELETE", f"/attachments/{made['id']}")
    api.snapshot(volume["id"])
    assert "snapshots" in api.refused(400, volume["id"], FORCE_DELETE)
    offered = api.volume()
    asked = {"transfer": {"volume_id": offered["id"]}}
    api("POST", "/volume-transfers", asked, 202)
    assert "awaiting-transfer" in api.refused(400, offered["id"], FORCE_DELETE)
    assert NOWHERE in api.refused(404, NOWHERE, FORCE_DELETE)


BAD: list[dict[str, Any]] = [
    {},
    {"status": None},
    {"status": ""},
    {"status": "deleting"},
    {"status": "sleeping"},
    {"status": "in-use"},
    {"status": "detaching"},
    {"attach_status": "attached"},
    {"attach_status": "half"},
    {"migration_status": "walking"},
    {"status": "error", "attach_status": "attached"},
    {"status": "error", "colour": "red"},
]


@pytest.mark.parametrize("asked", BAD, ids=str)
def test_an_invalid_reset_is_400_and_changes_nothing(api: Api, asked: dict[str, Any]):
    volume = api.volume()
    api.refused(400, volume["id"], reset(**asked))
    assert status(api, volume) == "available"


def test_a_volume_with_hosts_is_made_available_only_with_its_detach(
    api: Api, node: Node
):
    volume = api.shared_volume()
    attached(api, volume, name())
    api.attachment(volume["id"], connector=connector(name()), mode="ro")
    sentence = api.refused(400, volume["id"], reset(status="available"))
    assert "attach_status" in sentence
    assert len(node_live(node, volume)) == 2
    api.act(volume["id"], reset(status="available", attach_status="detached"))
    assert node_live(node, volume) == {}
    assert api.shown(volume["id"])["attachments"] == []
    assert status(api, volume) == "available"


def test_a_stale_reservation_ends_with_a_reset(api: Api):
    volume = api.volume()
    api.attachment(volume["id"])
    assert status(api, volume) == "reserved"
    api.act(volume["id"], reset(status="available"))
    assert status(api, volume) == "available"
    assert api("GET", f"/attachments?volume_id={volume['id']}")["attachments"] == []


def test_an_attached_volume_keeps_its_hosts_in_an_error(api: Api, node: Node):
    volume, host = api.volume(), name()
    attached(api, volume, host)
    api.act(volume["id"], reset(status="error", migration_status="error"))
    shown = api.shown(volume["id"])
    assert (shown["status"], shown["migration_status"]) == ("error", "error")
    assert node_live(node, volume) == {initiator(host): "rw"}
    api.act(volume["id"], reset(status="in-use", migration_status="none"))
    shown = api.shown(volume["id"])
    assert (shown["status"], shown["migration_status"]) == ("in-use", None)
    api.act(volume["id"], reset(status="detaching"))
    assert status(api, volume) == "detaching"


def test_a_reset_brings_the_target_back_in_line(api: Api, node: Node):
    volume, host = api.volume(), name()
    attached(api, volume, host)
    node.target("api").remove(volume["id"])
    assert node_live(node, volume) == {}
    api.act(volume["id"], reset(status="in-use"))
    assert node_live(node, volume) == {initiator(host): "rw"}


def test_a_volume_in_an_operation_is_not_reset(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    node = Node(tmp_path, "volume_lock_timeout = 0.3").start()
    api = Api(node.assembly.app)
    with (
        ThreadPoolExecutor(1) as client,
        node.driver().failures.hold("create.before") as gate,
    ):
        done = client.submit(api.volume)
        assert gate.reached.wait(30)
        (shown,) = api("GET", "/volumes/detail")["volumes"]
        assert shown["status"] == "creating"
        where = f"/volumes/{shown['id']}/action"
        api.fault(409, "POST", where, reset(status="error"))
        gate.open.set()
        done.result()
    node.close()


def test_an_attachment_is_detached_by_force_whatever_its_status(api: Api, node: Node):
    volume = api.shared_volume()
    keeps, goes = name(), name()
    attached(api, volume, keeps)
    leaving = attached(api, volume, goes)
    force = {"os-force_detach": {"attachment_id": leaving, "connector": None}}
    assert "several" not in api.refused(400, volume["id"], {"os-force_detach": {}})
    api.act(volume["id"], force)
    assert node_live(node, volume) == {initiator(keeps): "rw"}
    assert leaving in api.refused(404, volume["id"], force)
    api.act(volume["id"], {"os-force_detach": {"connector": connector(keeps)}})
    assert node_live(node, volume) == {}
    assert status(api, volume) == "available"
    bad = {"os-force_detach": {"attachment_id": "x"}}
    assert "attachment_id" in api.refused(400, volume["id"], bad)


def test_a_forced_detach_leaves_what_it_cannot_close(api: Api, node: Node):
    volume, host = api.volume(), name()
    attached(api, volume, host)
    error = TargetFailed(volume["id"], "because of the test")
    with node.target("api").failures.fail("remove.before", error):
        sentence = api.refused(409, volume["id"], {"os-force_detach": {}})
    assert initiator(host) in sentence
    assert len(api("GET", f"/attachments?volume_id={volume['id']}")["attachments"]) == 1


def snapshot_of(api: Api) -> str:
    return str(api.snapshot(api.volume()["id"])["id"])


def snapshot_act(api: Api, snapshot: str, action: Any, status: int = 202) -> Any:
    where = f"/snapshots/{snapshot}/action"
    if status == 202:
        return api("POST", where, action, 202)
    return api.fault(status, "POST", where, action)


PROGRESS = "os-extended-snapshot-attributes:progress"


@pytest.mark.parametrize("wanted", ["creating", "deleting", "error", "error_deleting"])
def test_setting_a_snapshot_status_starts_no_operation(
    api: Api, node: Node, wanted: str
):
    snapshot = snapshot_of(api)
    snapshot_act(api, snapshot, reset(status=wanted))
    node.assembly.reconcile.run()
    assert api("GET", f"/snapshots/{snapshot}")["snapshot"]["status"] == wanted
    asked = {"volume": {"snapshot_id": snapshot}}
    api.fault(400, "POST", "/volumes", asked)
    snapshot_act(api, snapshot, reset(status="available"))
    api("POST", "/volumes", asked, 202)
    snapshot_act(api, snapshot, reset(status=wanted))
    snapshot_act(api, snapshot, FORCE_DELETE)
    api.gone(f"/snapshots/{snapshot}")
    assert snapshot not in node.driver("api").snapshots()


def test_the_progress_of_a_snapshot_is_shown(api: Api):
    snapshot, path = snapshot_of(api), "os-update_snapshot_status"
    asked = {path: {"status": "creating", "progress": "80%"}}
    assert "give one of: none" in snapshot_act(api, snapshot, asked, 400)
    snapshot_act(api, snapshot, reset(status="creating"))
    snapshot_act(api, snapshot, asked)
    shown = api("GET", f"/snapshots/{snapshot}")["snapshot"]
    assert (shown["status"], shown[PROGRESS]) == ("creating", "80%")
    wrong: list[dict[str, str]] = [
        {"status": "creating", "progress": "101%"},
        {"status": "lost"},
        {},
    ]
    for bad in wrong:
        snapshot_act(api, snapshot, {path: bad}, 400)
    snapshot_act(api, snapshot, {path: {"status": "available"}})
    shown = api("GET", f"/snapshots/{snapshot}")["snapshot"]
    assert (shown["status"], shown[PROGRESS]) == ("available", "100%")


def test_a_snapshot_without_its_bytes_is_not_made_available(api: Api, node: Node):
    volume = api.volume()
    snapshot = str(api.snapshot(volume["id"])["id"])
    failures = node.driver("api").failures
    error = TargetFailed(volume["id"], "because of the test")
    with failures.fail("delete_snapshot.after", error):
        api("DELETE", f"/snapshots/{snapshot}", status=202)
        path = f"/snapshots/{snapshot}"
        until(lambda: api("GET", path)["snapshot"]["status"] == "error_deleting")
    sentence = snapshot_act(api, snapshot, reset(status="available"), 409)
    assert "delete it" in sentence
    snapshot_act(api, snapshot, FORCE_DELETE)
    api.gone(path)


def test_an_invalid_action_of_a_snapshot_is_refused(api: Api):
    snapshot = snapshot_of(api)
    wrong: tuple[Any, ...] = (
        {"os-sing": None},
        reset(),
        reset(status="sleeping"),
        {},
        [],
    )
    for bad in wrong:
        snapshot_act(api, snapshot, bad, 400)
    for action in (reset(status="error"), FORCE_DELETE):
        assert NOWHERE in snapshot_act(api, NOWHERE, action, 404)
