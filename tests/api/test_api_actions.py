# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Extend and revert, as clients ask for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lunshare.agent.service.reconcile import Reconciler
from lunshare.drivers.errors import CommandFailed, DiskBusy, NoSpace, Unsupported
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB, Auth
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator
from tests.stands.waiting import until

NOWHERE = "11111111-2222-3333-4444-555555555555"
BROKEN = CommandFailed(("lvextend",), 5, "no such group")
UNABLE = Unsupported("that on backend api", "use another")
FULL = NoSpace("api", "full")
BUSY = DiskBusy(NOWHERE, "it is open")


def extend(size: Any) -> dict[str, Any]:
    return {"os-extend": {"new_size": size}}


def revert(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {"revert": {"snapshot_id": snapshot["id"]}}


def disk(volume: dict[str, Any]) -> fake_storage.FakeDisk:
    return fake_storage.storage("api").disks[volume["id"]]


def reconcile(node: Node) -> Reconciler:
    return node.assembly.reconcile


@pytest.mark.parametrize(
    "body", [{}, {"os-extend": {}, "revert": {}}, {"os-sing": None}, []], ids=str
)
def test_an_unknown_action_of_a_volume_is_400(api: Api, body: Any):
    api.fault(400, "POST", f"/volumes/{api.volume()['id']}/action", body)


def test_an_action_on_an_unknown_volume_is_404(api: Api):
    assert NOWHERE in api.refused(404, NOWHERE, extend(2))
    assert NOWHERE in api.refused(404, NOWHERE, revert({"id": NOWHERE}))


def test_a_volume_is_extended(api: Api):
    made = api.volume(size=1)
    answer = api.act(made["id"], extend("3"))
    assert "Lunshare-Rescan" not in answer.headers
    shown = api.shown(made["id"])
    assert (shown["size"], shown["status"]) == (3, "available")
    assert disk(made).size == 3 * GIB


@pytest.mark.parametrize("size", [0, -1, 1.5, None, "x", 2**31, True], ids=str)
def test_an_invalid_new_size_is_400(api: Api, size: Any):
    sentence = api.refused(400, api.volume()["id"], extend(size))
    assert sentence.startswith("Invalid input for field/attribute new_size. Value: ")
    assert ". os-extend.new_size: give" in sentence


def test_an_extend_to_a_smaller_or_equal_size_is_400(api: Api):
    made = api.volume(size=2)
    for size in (1, 2):
        sentence = api.refused(400, made["id"], extend(size))
        assert sentence.endswith("has 2 GiB; give 3 or more.")


def test_hosts_see_the_new_size_in_their_sessions(api: Api, node: Node):
    made = api.shared_volume()
    row = api.attachment(made["id"], connector=connector("w"), mode="rw")
    api.attachment(made["id"], connector=connector("r"), mode="ro")
    api.complete(row["id"])
    info = row["connection_info"]
    auth = Auth(info["auth_username"], info["auth_password"])
    session = node.target("api").login(made["id"], initiator("w"), auth)
    sentence = api.at("3.41").refused(400, made["id"], extend(2))
    assert "3.42" in sentence
    answer = api.at("3.42").act(made["id"], extend(2))
    assert answer.headers["Lunshare-Rescan"].startswith("2 attachments; ")
    assert session.alive
    assert session.size == 2 * GIB
    session.write(2 * GIB - 4, b"last")
    shown = api.shown(made["id"])
    assert (shown["size"], shown["status"]) == (2, "in-use")


def test_a_volume_being_attached_is_not_extended(api: Api):
    made = api.volume()
    api.attachment(made["id"])
    assert "reserved" in api.refused(400, made["id"], extend(2))
    other = api.volume()
    api.attachment(other["id"], connector=connector("h"))
    assert "attaching" in api.refused(400, other["id"], extend(2))


def test_some_drivers_cannot_extend_an_attached_volume(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
):
    made = api.volume()
    row = api.attachment(made["id"], connector=connector("h"))
    api.complete(row["id"])
    unable = replace(node.driver("api").ABILITIES, extends_open=False)
    monkeypatch.setattr(type(node.driver("api")), "ABILITIES", unable)
    assert "attachments" in api.refused(400, made["id"], extend(2))
    api("DELETE", f"/attachments/{row['id']}")
    api.act(made["id"], extend(2))


@pytest.mark.parametrize(
    ("error", "status"), [(FULL, 413), (UNABLE, 400), (BUSY, 409)], ids=repr
)
def test_a_refused_extend_does_not_change_the_volume(
    api: Api, node: Node, error: Exception, status: int
):
    made = api.volume()
    with node.driver("api").failures.fail("extend.before", error):
        api.refused(status, made["id"], extend(2))
    shown = api.shown(made["id"])
    assert (shown["size"], shown["status"]) == (1, "available")


def test_an_extend_beyond_the_free_space_is_413_and_starts_nothing(api: Api):
    made = api.volume()
    sentence = api.refused(413, made["id"], extend(2**31 - 1))
    assert "new_size" in sentence
    assert api.shown(made["id"])["status"] == "available"


def test_reconcile_repeats_an_extend_of_unknown_outcome(api: Api, node: Node):
    made = api.volume()
    with node.driver("api").failures.fail("extend.after", BROKEN):
        api.refused(500, made["id"], extend(3))
        shown = api.shown(made["id"])
        assert (shown["size"], shown["status"]) == (1, "error_extending")
        sentence = api.refused(400, made["id"], extend(2))
        assert sentence.endswith("may already have 3 GiB; give 3 or more.")
    reconcile(node).run()
    shown = api.shown(made["id"])
    assert (shown["size"], shown["status"]) == (3, "available")


def test_a_volume_with_an_extend_of_unknown_outcome_can_be_extended_or_deleted(
    api: Api, node: Node
):
    made, other = api.volume(), api.volume()
    for volume in (made, other):
        with node.driver("api").failures.fail("extend.after", BROKEN):
            api.refused(500, volume["id"], extend(2))
    api.act(made["id"], extend(2))
    assert api.shown(made["id"])["size"] == 2
    api("DELETE", f"/volumes/{other['id']}", status=202)
    api.gone(f"/volumes/{other['id']}")


def test_hosts_stay_connected_when_the_target_cannot_show_the_new_size(
    api: Api, node: Node
):
    made = api.shared_volume()
    row = api.attachment(made["id"], connector=connector("w"))
    api.complete(row["id"])
    with node.target("api").failures.fail("apply.before", BROKEN):
        api.refused(500, made["id"], extend(2))
    assert api.shown(made["id"])["status"] == "error_extending"
    assert node.target("api").observe()
    reconcile(node).run()
    assert api.shown(made["id"])["status"] == "in-use"


def test_a_volume_is_reverted_to_its_latest_snapshot(api: Api):
    made = api.volume()
    disk(made).write(0, b"old")
    first = api.snapshot(made["id"])
    disk(made).write(0, b"mid")
    latest = api.snapshot(made["id"])
    disk(made).write(0, b"new")
    api.at("3.39").refused(404, made["id"], revert(latest))
    sentence = api.refused(400, made["id"], revert(first))
    assert latest["id"] in sentence
    api.at("3.40").act(made["id"], revert(latest))
    assert disk(made).read(0, 3) == b"mid"
    assert api.shown(made["id"])["status"] == "available"
    api("DELETE", f"/snapshots/{latest['id']}", status=202)
    api.gone(f"/snapshots/{latest['id']}")
    api.act(made["id"], revert(first))
    assert disk(made).read(0, 3) == b"old"


def test_a_revert_needs_a_snapshot_of_the_volume_and_of_its_size(api: Api):
    made = api.volume()
    other = api.snapshot(api.volume()["id"])
    assert other["id"] in api.refused(404, made["id"], revert(other))
    snapshot = api.snapshot(made["id"])
    api.act(made["id"], extend(2))
    sentence = api.refused(400, made["id"], revert(snapshot))
    assert sentence.startswith("revert.snapshot_id: ")
    assert "snapshot_id" in api.refused(400, made["id"], {"revert": {}})


def test_an_attached_volume_is_not_reverted(api: Api):
    made = api.shared_volume()
    snapshot = api.snapshot(made["id"])
    row = api.attachment(made["id"], connector=connector("h"))
    assert "1 attachments" in api.refused(409, made["id"], revert(snapshot))
    api("DELETE", f"/attachments/{row['id']}")
    api.act(made["id"], revert(snapshot))


@pytest.mark.parametrize(("error", "status"), [(UNABLE, 400), (BUSY, 409)], ids=repr)
def test_a_refused_revert_does_not_change_the_volume(
    api: Api, node: Node, error: Exception, status: int
):
    made = api.volume()
    snapshot = api.snapshot(made["id"])
    with node.driver("api").failures.fail("revert.before", error):
        api.refused(status, made["id"], revert(snapshot))
    assert api.shown(made["id"])["status"] == "available"


def test_a_revert_of_unknown_outcome_is_an_error_and_can_be_repeated(
    api: Api, node: Node
):
    made = api.volume()
    disk(made).write(0, b"old")
    snapshot = api.snapshot(made["id"])
    for error in (BROKEN, BUSY):  # a refusal does not show what the attempt before did
        with node.driver("api").failures.fail("revert.before", error):
            api.refused(500 if error is BROKEN else 409, made["id"], revert(snapshot))
        assert api.shown(made["id"])["status"] == "error"
    asked = {"attachment": {"volume_uuid": made["id"]}}
    api.fault(400, "POST", "/attachments", asked)
    api.act(made["id"], revert(snapshot))
    until(lambda: api.shown(made["id"])["status"] == "available")
    assert disk(made).read(0, 3) == b"old"


def test_a_volume_being_reverted_accepts_no_other_operation(api: Api, node: Node):
    made = api.volume()
    snapshot = api.snapshot(made["id"])
    from concurrent.futures import ThreadPoolExecutor

    with (
        ThreadPoolExecutor(1) as client,
        node.driver("api").failures.hold("revert.before") as gate,
    ):
        done = client.submit(api.act, made["id"], revert(snapshot))
        assert gate.reached.wait(10)
        assert api.shown(made["id"])["status"] == "reverting"
        asked: dict[str, Any] = {"attachment": {"volume_uuid": made["id"]}}
        assert "reverting" in api.fault(400, "POST", "/attachments", asked)
        assert "reverting" in api.refused(400, made["id"], extend(2))
        asked = {"snapshot": {"volume_id": made["id"]}}
        assert "reverting" in api.fault(400, "POST", "/snapshots", asked)
        assert "reverted" in api.fault(400, "DELETE", f"/snapshots/{snapshot['id']}")
        assert "reverting" in api.fault(400, "DELETE", f"/volumes/{made['id']}")
        api.refused(409, made["id"], revert(snapshot))
        gate.open.set()
        done.result()
