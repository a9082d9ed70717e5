# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Metadata of snapshots, actions on them, and foreign snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.agent.db import snapshots
from lunshare.agent.model.states import SnapshotStatus
from lunshare.drivers.errors import CommandFailed
from tests.api.calls import Api
from tests.stands.node import Node, node_fixture
from tests.stands.waiting import until

NOWHERE = "11111111-2222-3333-4444-555555555555"
STATUSES = ("creating", "available", "deleting", "error", "error_deleting")
PROGRESS = "os-extended-snapshot-attributes:progress"


# A node of its own: these tests reconcile it.
node = node_fixture("module", backends="acted")


def act(api: Api, ident: str, action: dict[str, Any], status: int = 202) -> Any:
    return api("POST", f"/snapshots/{ident}/action", action, status)


def refused(api: Api, ident: str, action: dict[str, Any], status: int = 400) -> str:
    return api.fault(status, "POST", f"/snapshots/{ident}/action", action)


def reset(api: Api, ident: str, status: str) -> None:
    act(api, ident, {"os-reset_status": {"status": status}})


def shown(api: Api, ident: str) -> dict[str, Any]:
    found: dict[str, Any] = api("GET", f"/snapshots/{ident}")["snapshot"]
    return found


def made(api: Api, **fields: Any) -> str:
    ident: str = api.snapshot(api.volume()["id"], **fields)["id"]
    return ident


def test_metadata_is_added_replaced_and_deleted(api: Api):
    ident = made(api, metadata={"a": "1"})
    path = f"/snapshots/{ident}/metadata"
    assert api("GET", path) == {"metadata": {"a": "1"}}
    added = api("POST", path, {"metadata": {"b": "2"}})
    assert added == {"metadata": {"a": "1", "b": "2"}}
    assert api("PUT", path, {"metadata": {"c": "3"}}) == {"metadata": {"c": "3"}}
    assert api("GET", f"{path}/c") == {"meta": {"c": "3"}}
    assert api("PUT", f"{path}/c", {"meta": {"c": "4"}}) == {"meta": {"c": "4"}}
    assert api("PUT", f"{path}/d", {"meta": {"d": ""}}) == {"meta": {"d": ""}}
    assert api("DELETE", f"{path}/c") is None
    assert shown(api, ident)["metadata"] == {"d": ""}
    assert api("PUT", path, {"metadata": {}}) == {"metadata": {}}


def test_metadata_that_is_not_there_is_404(api: Api):
    path = f"/snapshots/{made(api)}/metadata/colour"
    for method in ("GET", "DELETE"):
        assert "colour" in api.fault(404, method, path)
    path = f"/snapshots/{NOWHERE}/metadata"
    assert NOWHERE in api.fault(404, "GET", path)
    for method in ("POST", "PUT"):
        assert NOWHERE in api.fault(404, method, path, {"metadata": {}})
    assert NOWHERE in api.fault(404, "PUT", f"{path}/a", {"meta": {"a": "b"}})
    assert NOWHERE in api.fault(404, "DELETE", f"{path}/a")


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "a",
        {"a": 1},
        {"a": None},
        {"": "a"},
        {"a": "x" * 256},
        {"x" * 256: ""},
    ],
    ids=str,
)
def test_wrong_metadata_is_400_and_named(api: Api, metadata: Any):
    path = f"/snapshots/{made(api, metadata={'k': 'v'})}/metadata"
    for method in ("POST", "PUT"):
        assert "metadata" in api.fault(400, method, path, {"metadata": metadata})
    assert "meta" in api.fault(400, "PUT", f"{path}/a", {"meta": metadata})
    assert api("GET", path) == {"metadata": {"k": "v"}}


@pytest.mark.parametrize("meta", [{}, {"b": "1"}, {"a": "1", "b": "2"}])
def test_one_item_is_under_the_key_of_the_url(api: Api, meta: dict[str, str]):
    path = f"/snapshots/{made(api)}/metadata/a"
    assert "meta" in api.fault(400, "PUT", path, {"meta": meta})


@pytest.mark.parametrize("status", STATUSES)
def test_the_status_is_set(api: Api, status: str):
    ident = made(api)
    reset(api, ident, status)
    assert shown(api, ident)["status"] == status
    reset(api, ident, "available")
    assert shown(api, ident)["status"] == "available"


@pytest.mark.parametrize(
    "action",
    [
        {"os-reset_status": {}},
        {"os-reset_status": {"status": ""}},
        {"os-reset_status": {"status": "fine"}},
        {"os-reset_status": {"status": None}},
        {"os-reset_status": {"status": "error", "colour": "red"}},
        {"os-reset_status": None},
        {"os-update_snapshot_status": {"progress": "1%"}},
        {"os-update_snapshot_status": {"status": "error", "progress": "101%"}},
        {"os-update_snapshot_status": {"status": "error", "progress": "half"}},
        {"colour": None},
        {},
        {"os-force_delete": None, "os-unmanage": None},
    ],
    ids=str,
)
def test_a_wrong_action_is_400_and_changes_nothing(api: Api, action: dict[str, Any]):
    ident = made(api)
    refused(api, ident, action)
    assert shown(api, ident)["status"] == "available"


def test_an_action_on_an_unknown_snapshot_is_404(api: Api):
    for action in (
        {"os-reset_status": {"status": "error"}},
        {"os-force_delete": None},
        {"os-update_snapshot_status": {"status": "error"}},
        {"os-unmanage": None},
    ):
        assert NOWHERE in refused(api, NOWHERE, action, 404)


def test_a_snapshot_that_the_backend_lost_does_not_become_available(
    api: Api, node: Node
):
    ident = made(api)
    reset(api, ident, "error")
    node.driver("acted").delete_snapshot(ident)
    action = {"os-reset_status": {"status": "available"}}
    assert "does not exist on backend" in refused(api, ident, action, 409)
    assert shown(api, ident)["status"] == "error"


def test_a_snapshot_that_was_not_created_does_not_become_available(
    api: Api, node: Node
):
    """A driver may have left a part of it, which must not be read as the whole."""
    ident = made(api)
    with node.assembly.database.writing() as connection:  # as a kill would leave it
        snapshots.change_status(
            connection,
            ident,
            {SnapshotStatus.AVAILABLE},
            SnapshotStatus.CREATING,
            forced=True,
        )
    broken = CommandFailed(("lvcreate",), 5, "no such group")
    with node.driver("acted").failures.fail("create_snapshot.before", broken):
        node.assembly.reconcile.run()
        until(lambda: shown(api, ident)["status"] == "error")
    for _ in range(2):
        action = {"os-reset_status": {"status": "available"}}
        assert "was not created" in refused(api, ident, action, 409)
        reset(api, ident, "deleting")


@pytest.mark.parametrize("status", STATUSES)
def test_a_snapshot_is_deleted_by_force_in_any_status(api: Api, status: str):
    ident = made(api)
    reset(api, ident, status)
    act(api, ident, {"os-force_delete": None})
    api.gone(f"/snapshots/{ident}")


def test_a_snapshot_that_is_read_is_not_deleted_by_force(api: Api, node: Node):
    ident = made(api)
    with node.driver("acted").failures.hold("create_from.before"):
        copy = api.volume(snapshot_id=ident)
        assert copy["status"] == "creating"
        assert "being created from" in refused(api, ident, {"os-force_delete": None})
    until(lambda: api.shown(copy["id"])["status"] == "available")


def test_status_and_progress_are_updated_while_it_is_in_progress(api: Api):
    ident = made(api)
    update = {"os-update_snapshot_status": {"status": "error", "progress": "80%"}}
    assert "available" in refused(api, ident, update)
    reset(api, ident, "creating")
    act(api, ident, update)
    found = shown(api, ident)
    assert (found["status"], found[PROGRESS]) == ("error", "80%")
    assert "error" in refused(api, ident, update)
    reset(api, ident, "deleting")
    assert shown(api, ident)[PROGRESS] == "0%"
    update = {"os-update_snapshot_status": {"status": "available"}}
    assert "deleting" in refused(api, ident, update)
    act(api, ident, {"os-update_snapshot_status": {"status": "error_deleting"}})
    assert shown(api, ident)["status"] == "error_deleting"
