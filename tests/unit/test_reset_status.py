# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Errors have a reason, are retried and can be reset; lost disks are reported."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.model.errors import BackendFailed, Conflict
from lunshare.agent.model.records import NewSnapshot
from lunshare.agent.model.states import RESETTABLE, VOLUME_TRANSITIONS, VolumeStatus
from lunshare.agent.service.recovery import RetryPace
from lunshare.agent.service.volumes.reset_status import Reset
from lunshare.drivers.errors import CommandFailed, TargetFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from lunshare.drivers.values import Volume as DriverVolume
from tests.api.calls import Api
from tests.stands.node import CTX, Node, attach, initiator, node_fixture
from tests.stands.waiting import until

DETACHED = {"attach_status": "detached"}
BROKEN = CommandFailed(("lvchange",), 5, "because of the test")


node = node_fixture(forget_storage=True)


@pytest.fixture
def api(node: Node) -> Api:
    return Api(node.assembly.app)


def shown(api: Api, volume_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api("GET", f"/volumes/{volume_id}")["volume"]
    return found


def test_every_error_status_of_a_volume_can_be_left() -> None:
    """Not only by a retry of the failed operation."""
    errors = {status for status in VolumeStatus if status.startswith("error")}
    ends = {VolumeStatus.AVAILABLE, VolumeStatus.DELETING}
    for status in errors:
        assert ends & {new for old, new, _ in VOLUME_TRANSITIONS if old is status}
    for status in RESETTABLE:
        moves = {(old, new) for old, new, _ in VOLUME_TRANSITIONS}
        assert (status, VolumeStatus.AVAILABLE) in moves


def test_a_failed_unmanage_has_a_status_reason(node: Node, api: Api) -> None:
    volume = api.volume()["id"]
    path, asked = f"/volumes/{volume}/action", {"os-unmanage": None}
    with node.driver().failures.fail("unmanage.before", BROKEN):
        api.fault(500, "POST", path, asked)
        found = shown(api, volume)
        assert found["status"] == "error_unmanaging"
        assert "because of the test" in found["status_reason"]
        node.assembly.reconcile.run()
        until(lambda: shown(api, volume)["status"] == "error_unmanaging")
        api("POST", path, {"os-reset_status": {"status": "available"}}, 202)
    found = shown(api, volume)
    assert found["status"] == "available"
    assert "status_reason" not in found
    with node.driver().failures.fail("unmanage.before", BROKEN):
        api.fault(500, "POST", path, asked)
    api("POST", path, asked, 202)
    assert api.send("GET", f"/volumes/{volume}").status_code == 404
    assert f"unmanaged-{volume}" in fake_storage.storage("fake").foreign_disks


def test_reset_of_an_unmanaged_disk_is_refused(node: Node, api: Api) -> None:
    volume = api.volume()["id"]
    path = f"/volumes/{volume}/action"
    with node.driver().failures.fail("unmanage.after", BROKEN):
        api.fault(500, "POST", path, {"os-unmanage": None})
    reset = {"os-reset_status": {"status": "available"}}
    assert "no disk" in api.fault(409, "POST", path, reset)
    api("POST", path, {"os-unmanage": None}, 202)
    assert api.send("GET", f"/volumes/{volume}").status_code == 404


def test_a_failed_creation_is_not_reset(tmp_path: Path) -> None:
    node = Node(tmp_path, "create_wait = 0").start()
    api = Api(node.assembly.app)
    with node.driver().failures.fail("create.before", BROKEN):
        volume = api.volume()["id"]
        until(lambda: shown(api, volume)["status"] == "error")
    asked = {"os-reset_status": {"status": "available"}}
    said = api.refused(400, volume, asked)
    assert said.startswith("os-reset_status.status: ")
    api.act(volume, {"os-reset_status": {"status": "maintenance"}})
    assert "is error" in api.refused(400, volume, asked)
    api.act(volume, {"os-force_delete": None})
    api.gone(f"/volumes/{volume}")
    node.close()


def test_a_failing_extend_can_be_reset_to_the_size_of_the_disk(
    node: Node, api: Api
) -> None:
    volume = api.volume()["id"]
    path = f"/volumes/{volume}/action"
    with node.driver().failures.fail("extend.after", BROKEN):
        api.fault(500, "POST", path, {"os-extend": {"new_size": 3}})
        assert shown(api, volume)["status"] == "error_extending"
        api("POST", path, {"os-reset_status": {"status": "available"}}, 202)
    found = shown(api, volume)
    assert (found["status"], found["size"]) == ("available", 3)
    (pool,) = node.services.node.pools(CTX)
    assert pool.capabilities["provisioned_capacity_gb"] == 3


def test_a_reset_applies_the_size_that_the_volume_has_then(
    node: Node, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = node.plain_volume()
    node.services.attachments.complete(CTX, attach(node, volume, "a").id)
    asked = {"os-extend": {"new_size": 3}}
    path = f"/volumes/{volume.id}/action"
    backend, sizes = node.assembly.backends["fake"].drivers, []
    apply = backend.apply

    def noted(volume: DriverVolume, *given: Any) -> Any:
        sizes.append(volume.size // GIB)
        return apply(volume, *given)

    with node.driver().failures.fail("extend.after", BROKEN):
        api.fault(500, "POST", path, asked)
    monkeypatch.setattr(backend, "apply", noted)
    api("POST", path, {"os-reset_status": {"status": "available", **DETACHED}}, 202)
    assert shown(api, volume.id)["size"] == 3
    assert sizes[-1] == 3


def test_a_failed_delete_is_retried(node: Node, api: Api) -> None:
    volume, kept = api.volume()["id"], api.volume()["id"]
    snapshot = api.snapshot(kept)["id"]
    failures = node.driver().failures
    with (
        failures.fail("delete.before", BROKEN),
        failures.fail("delete_snapshot.before", BROKEN),
    ):
        api("DELETE", f"/volumes/{volume}", status=202)
        api("DELETE", f"/snapshots/{snapshot}", status=202)
        until(lambda: shown(api, volume)["status"] == "error_deleting")
        path = f"/snapshots/{snapshot}"
        until(lambda: api("GET", path)["snapshot"]["status"] == "error_deleting")
        assert "because of the test" in shown(api, volume)["status_reason"]
        assert "because of" in api("GET", path)["snapshot"]["status_reason"]
    node.assembly.reconcile.run()
    api.gone(f"/volumes/{volume}")
    api.gone(path)
    assert node.driver().snapshots() == ()


def test_failed_work_is_retried_less_and_less_often() -> None:
    now = 0.0
    pace, tried = RetryPace(lambda: now), []
    while now < 20_000:
        if pace.due(["it"]):
            tried.append(now)
        now += 60
    gaps = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert tried[0] == 0
    assert gaps[:6] == [60, 120, 240, 480, 960, 1920]
    assert set(gaps[6:]) == {3600}
    pace.due([])  # it has succeeded, and fails another time
    assert pace.due(["it"]) == {"it"}


def test_a_failing_detach_can_be_forced_when_nothing_is_open(
    node: Node, api: Api
) -> None:
    volume = node.shared_volume()
    row = attach(node, volume, "a")
    path = f"/volumes/{volume.id}/action"
    force = {"os-force_detach": {"attachment_id": row.id}}
    refused = TargetFailed(volume.id, "because of the test")
    with node.target().failures.fail("remove.before", refused):
        with pytest.raises(BackendFailed):
            node.services.attachments.delete(CTX, row.id)
        shown = api("GET", f"/attachments/{row.id}")["attachment"]
        assert shown["status"] == "error_detaching"
        assert "because of the test" in shown["status_reason"]
        assert initiator("a") in api.fault(409, "POST", path, force)
        fake_storage.storage("fake").exports.clear()
        api("POST", path, force, 202)
    assert api.send("GET", f"/attachments/{row.id}").status_code == 404


def test_a_row_without_its_disk_is_reported(node: Node) -> None:
    lost, small, whole = (node.plain_volume(2) for _ in range(3))
    node.services.snapshots.create(CTX, NewSnapshot(whole.id))
    held = fake_storage.storage("fake")
    del held.disks[lost.id]
    held.disks[small.id].size = GIB
    failed = node.assembly.reconcile.run().failed
    assert len(failed) == 2
    assert any(f"volume {lost.id} has no disk on backend fake" in s for s in failed)
    assert any(f"volume {small.id} has 2 GiB" in s for s in failed)
    assert set(node.services.node.health().failed) == set(failed)
    with pytest.raises(Conflict):
        node.services.status_resetter._disk_size(lost)


def test_a_waiting_delete_leaves_a_snapshot_that_was_reset(node: Node) -> None:
    """A reconcile retries the failed delete, and waits for the volume's lock."""
    volume, resetter = node.plain_volume(), node.services.snapshot_resetter
    snapshot = node.services.snapshots.create(CTX, NewSnapshot(volume.id))
    with node.driver().failures.fail("delete_snapshot.before", BROKEN):
        node.services.snapshots.delete(CTX, snapshot.id)
        until(lambda: snapshot_status(node, snapshot.id) == "error_deleting")
    with node.assembly.reconcile._locks.volume(volume.id, "the test"):
        (job,) = node.assembly.reconcile._recovery.start_steps().values()
        until(lambda: node.assembly.jobs.in_progress()["fake", True] == 1)
        resetter.reset(CTX, snapshot.id, "available")
        resetter.reset(CTX, snapshot.id, "error_deleting")
    job.result(20)
    assert node.driver().snapshots() == (snapshot.id,)
    resetter.reset(CTX, snapshot.id, "available")
    assert snapshot_status(node, snapshot.id) == "available"


def snapshot_status(node: Node, snapshot_id: str) -> str:
    return node.services.snapshots.get(CTX, snapshot_id).status


def test_a_waiting_extend_leaves_a_volume_whose_status_was_set(node: Node) -> None:
    """As above; the status that was set has no size to extend to."""
    volume, reset = node.plain_volume(), node.services.status_resetter.reset
    extender = node.services.extender
    with (
        node.driver().failures.fail("extend.before", BROKEN),
        pytest.raises(BackendFailed),
    ):
        extender.extend(CTX, volume.id, 2, in_use=True)
    reset(CTX, volume.id, Reset("available"))
    reset(CTX, volume.id, Reset("extending"))
    extender.finish_extend(volume.id)
    found = node.services.volumes.get(CTX, volume.id)
    assert found.own_status is VolumeStatus.EXTENDING
    assert found.reset_from is VolumeStatus.AVAILABLE
