# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A fault for which no request waits is reported to its project by a user message."""

from __future__ import annotations

from typing import Any

import pytest

from lunshare.agent.service.messages import FAULTS
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests.api.calls import Api
from tests.stands.node import Node, node_fixture
from tests.stands.waiting import until

BROKEN = CommandFailed(("lv",), 5, "because of the test")


# A node that waits for no disk.
node = node_fixture(extra="create_wait = 0", backends="one,two")


@pytest.fixture
def api(node: Node) -> Api:
    return Api(node.assembly.app)


def ready(api: Api, path: str, kind: str) -> None:
    until(lambda: api("GET", path)[kind]["status"] == "available")


def volume(api: Api) -> str:
    made = str(api.volume()["id"])
    ready(api, f"/volumes/{made}", "volume")
    return made


def reported(api: Api, event: str, ident: str) -> None:
    def found() -> list[dict[str, Any]]:
        rows = api("GET", f"/messages?resource_uuid={ident}")["messages"]
        return [row for row in rows if row["event_id"] == event]

    until(lambda: len(found()) == 1)
    (message,) = found()
    assert "because of the test" in message["user_message"]
    assert "failed" in message["user_message"]
    other = Api(api.client.app)
    assert other("GET", "/messages")["messages"] == []


def where(api: Api, ident: str) -> str:
    host = api.shown(ident)["os-vol-host-attr:host"]
    return str(host).partition("@")[2].partition("#")[0]


def test_a_creation_that_fails_later_is_reported(api: Api, node: Node):
    with (
        node.driver("one").failures.fail("create.before", BROKEN),
        node.driver("two").failures.fail("create.before", BROKEN),
    ):
        made = api.volume()["id"]
        reported(api, "VOLUME_VOLUME_008_001", made)
    assert api.shown(made)["status"] == "error"


@pytest.mark.parametrize(
    ("point", "action", "event"),
    [
        ("extend.before", {"os-extend": {"new_size": 2}}, "007"),
        ("unmanage.before", {"os-unmanage": None}, "006"),
        ("delete.before", {"os-force_delete": None}, "901"),
    ],
)
def test_an_action_that_fails_later_is_reported(
    api: Api, node: Node, point: str, action: dict[str, Any], event: str
):
    made = volume(api)
    with node.driver(where(api, made)).failures.fail(point, BROKEN):
        api.act(made, action)
        reported(api, f"VOLUME_VOLUME_{event}_001", made)


def test_a_migration_that_fails_later_is_reported(api: Api, node: Node):
    made = volume(api)
    other = "two" if where(api, made) == "one" else "one"
    host = node.services.node.host_of(other)
    with node.driver(other).failures.fail("create.before", BROKEN):
        api.act(made, {"os-migrate_volume": {"host": host}})
        reported(api, "VOLUME_VOLUME_903_001", made)


def test_faults_of_snapshots_are_reported(api: Api, node: Node):
    made = volume(api)
    failures = node.driver(where(api, made)).failures
    with failures.fail("create_snapshot.before", BROKEN):
        first = api.snapshot(made)["id"]
        reported(api, "VOLUME_VOLUME_SNAPSHOT_009_001", first)
    second = api.snapshot(made)["id"]
    ready(api, f"/snapshots/{second}", "snapshot")
    with failures.fail("revert.before", BROKEN):
        api.act(made, {"revert": {"snapshot_id": second}})
        reported(api, "VOLUME_VOLUME_902_001", made)
    with failures.fail("delete_snapshot.before", BROKEN):
        api("DELETE", f"/snapshots/{second}", status=202)
        reported(api, "VOLUME_VOLUME_SNAPSHOT_010_001", second)


def test_a_manage_that_fails_later_is_reported(api: Api, node: Node):
    storage = fake_storage.storage("one")
    storage.foreign_disks["somebodys"] = fake_storage.FakeDisk(GIB)
    host = node.services.node.host_of("one")
    asked = {"volume": {"host": host, "ref": {"source-name": "somebodys"}}}
    with node.driver("one").failures.fail("manage.before", BROKEN):
        made = api("POST", "/manageable_volumes", asked, 202)["volume"]["id"]
        reported(api, "VOLUME_VOLUME_904_001", made)


def test_faults_of_foreign_snapshots_are_reported(api: Api, node: Node):
    made = volume(api)
    storage = fake_storage.storage(where(api, made))
    storage.foreign_snapshots["somebodys"] = disk = fake_storage.FakeDisk(GIB)
    disk.origin = made
    failures = node.driver(where(api, made)).failures
    asked = {"snapshot": {"volume_id": made, "ref": {"source-name": "somebodys"}}}
    with failures.fail("manage_snapshot.before", BROKEN):
        first = api("POST", "/manageable_snapshots", asked, 202)["snapshot"]["id"]
        reported(api, "VOLUME_VOLUME_SNAPSHOT_905_001", first)
    assert api("GET", f"/snapshots/{first}")["snapshot"]["status"] == "error"
    # Its delete gives back what is not managed.
    api("DELETE", f"/snapshots/{first}", status=202)
    api.gone(f"/snapshots/{first}")
    assert list(storage.foreign_snapshots) == ["somebodys"]
    second = api.snapshot(made)["id"]
    ready(api, f"/snapshots/{second}", "snapshot")
    with failures.fail("unmanage_snapshot.before", BROKEN):
        path = f"/snapshots/{second}/action"
        api("POST", path, {"os-unmanage": None}, 202)
        reported(api, "VOLUME_VOLUME_SNAPSHOT_906_001", second)


def test_every_step_of_a_request_has_its_message(node: Node):
    """The table is read by the names of the steps."""
    steps = [
        *node.assembly.reconcile._recovery._steps.values(),
        *node.services.snapshots.steps.values(),
        *node.services.managed_snapshots.steps.values(),
    ]
    assert {step.__qualname__ for step in steps} == set(FAULTS)
