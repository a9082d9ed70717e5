# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume that no pool can hold: accepted, in error, without a backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.api.handlers.volume_actions import ACTIONS
from lunshare.drivers.errors import CommandFailed
from tests.api.calls import Api
from tests.stands.node import Node, connector, is_counted

NO_BACKEND = "VOLUME_VOLUME_001_003"
HINTS = "OS-SCH-HNT:scheduler_hints"
NOWHERE = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Node]:
    """A node of one backend that has little space."""
    made = Node(tmp_path, section="fake_capacity_gb = 10").start()
    yield made
    made.close()


@pytest.fixture
def project(small: Node) -> Api:
    """A project on it."""
    return Api(small.assembly.app)


def messages(api: Api) -> list[dict[str, Any]]:
    """The user messages of the project."""
    found: list[dict[str, Any]] = api("GET", "/messages")["messages"]
    return found


def unplaced(api: Api, **fields: Any) -> dict[str, Any]:
    """A new volume that is in error, after a check of its message."""
    hints = {HINTS: fields.pop(HINTS)} if HINTS in fields else {}
    asked = {"volume": {"size": 1, **fields}, **hints}
    answer = api.send("POST", "/volumes", asked)
    assert answer.status_code == 202, answer.text
    shown = api.shown(answer.json["volume"]["id"])
    assert (shown["status"], shown["os-vol-host-attr:host"]) == ("error", None)
    assert shown["service_uuid"] is None
    (message,) = [m for m in messages(api) if m["resource_uuid"] == shown["id"]]
    assert message["event_id"] == NO_BACKEND
    assert message["resource_type"] == "VOLUME"
    assert message["request_id"] == answer.headers["x-openstack-request-id"]
    assert message["user_message"] == shown["status_reason"]
    return shown


def usage(api: Api) -> tuple[int, int]:
    """How many volumes and GiB count for the project."""
    absolute = api("GET", "/limits")["limits"]["absolute"]
    return absolute["totalVolumesUsed"], absolute["totalGigabytesUsed"]


def refusals(api: Api) -> None:
    """What is wrong in the request itself is refused, and leaves nothing."""
    before = messages(api), usage(api)
    for fields, status in (
        ({"size": 0}, 400),
        ({"availability_zone": "mars"}, 400),
        ({"volume_type": NOWHERE}, 404),
        ({"snapshot_id": NOWHERE}, 404),
        ({"source_volid": NOWHERE}, 404),
    ):
        api.fault(status, "POST", "/volumes", {"volume": {"size": 1, **fields}})
    assert (messages(api), usage(api)) == before


def test_a_type_that_no_backend_meets(project: Api):
    refusals(project)
    kind = project.type(storage_protocol="none", vendor_name="none")
    shown = unplaced(project, volume_type=kind["id"])
    assert "vendor_name" in shown["status_reason"]
    assert shown["volume_type"] == kind["name"]
    shared = project.type(multiattach="<is> True", tier="gold")
    assert unplaced(project, volume_type=shared["id"])["multiattach"] is True
    refusals(project)


def test_more_than_every_pool_has_space_for(project: Api):
    assert "no backend has space" in unplaced(project, size=100_000)["status_reason"]


def test_a_backend_that_is_disabled_or_down(project: Api, small: Node):
    (line,) = project("GET", "/os-services?binary=cinder-volume")["services"]
    asked = {"host": line["host"], "binary": line["binary"]}
    project("PUT", "/os-services/disable", asked)
    assert "disabled" in unplaced(project)["status_reason"]
    project("PUT", "/os-services/enable", asked)
    error = CommandFailed(("vgs",), 5, "because of the test")
    with small.driver().failures.fail("capacity", error):
        small.services.node.refresh()
        assert "because of the test" in unplaced(project)["status_reason"]
    small.services.node.refresh()
    assert project.volume()["status"] == "available"


def test_hints_that_no_backend_meets(project: Api):
    volume = project.volume()
    nowhere = unplaced(project, **{HINTS: {"different_host": volume["id"]}})
    # And a hint that names a volume without a backend.
    unplaced(project, **{HINTS: {"same_host": nowhere["id"]}})
    asked = {"volume": {"size": 1}, HINTS: {"different_host": nowhere["id"]}}
    made = project("POST", "/volumes", asked, 202)["volume"]
    assert made["status"] == "available"


@pytest.mark.parametrize("source", ["source_volid", "snapshot_id"])
def test_a_copy_that_its_backend_cannot_hold(project: Api, source: str):
    """It keeps nothing of its source: that can be deleted at once."""
    volume = project.volume()
    snapshot = project.snapshot(volume["id"])
    ident = {"source_volid": volume["id"], "snapshot_id": snapshot["id"]}[source]
    made = [unplaced(project, size=100_000, **{source: ident}) for _ in range(2)]
    kind = project.type(volume_backend_name="elsewhere")
    made.append(unplaced(project, volume_type=kind["id"], **{source: ident}))
    assert {each[source] for each in made} == {ident}
    project("DELETE", f"/snapshots/{snapshot['id']}", status=202)
    project.gone(f"/snapshots/{snapshot['id']}")
    project("DELETE", f"/volumes/{volume['id']}", status=202)
    project.gone(f"/volumes/{volume['id']}")


def test_it_counts_until_it_is_deleted(project: Api, small: Node):
    kind = project.type(tier="gold")
    path = f"/os-quota-sets/{project.project}"
    limits = {"volumes": 2, f"gigabytes_{kind['name']}": 5}
    project("PUT", path, {"quota_set": limits})
    one = unplaced(project, size=3, volume_type=kind["id"])
    assert usage(project) == (1, 3)
    asked = {"volume": {"size": 3, "volume_type": kind["id"]}}
    sentence = project.fault(413, "POST", "/volumes", asked)
    assert f"gigabytes_{kind['name']}" in sentence
    assert (usage(project), len(messages(project))) == ((1, 3), 1)
    assert is_counted(small, project.project)
    project("DELETE", f"/volumes/{one['id']}", status=202)
    # Nothing is left to do, so it is gone with the answer.
    project.fault(404, "GET", f"/volumes/{one['id']}")
    assert usage(project) == (0, 0)
    assert is_counted(small, project.project)
    project.fault(404, "DELETE", f"/volumes/{one['id']}")


@pytest.mark.parametrize("query", ["", "?cascade=true", "?force=true"])
def test_it_is_deleted_in_every_way(project: Api, query: str):
    ident = unplaced(project, size=100_000)["id"]
    project("DELETE", f"/volumes/{ident}{query}", status=202)
    project.fault(404, "GET", f"/volumes/{ident}")
    assert project("GET", "/volumes")["volumes"] == []


def test_it_is_deleted_by_force_whatever_its_status_was_set_to(project: Api):
    for status in ("creating", "error_deleting", "extending", "maintenance", None):
        ident = unplaced(project, size=100_000)["id"]
        if status is not None:
            project.act(ident, {"os-reset_status": {"status": status}})
        project.act(ident, {"os-force_delete": None})
        project.fault(404, "GET", f"/volumes/{ident}")
    assert usage(project) == (0, 0)


def actions(snapshot_id: str, kind: str) -> dict[str, Any]:
    """Every action with a body that is right."""
    host = {"connector": connector("h")}
    return {
        "os-attach": {"mountpoint": "/dev/vdb", "host_name": "h"},
        "os-detach": {},
        "os-reserve": None,
        "os-unreserve": None,
        "os-begin_detaching": None,
        "os-roll_detaching": None,
        "os-initialize_connection": host,
        "os-terminate_connection": host,
        "os-extend": {"new_size": 2},
        "os-retype": {"new_type": kind, "migration_policy": "on-demand"},
        "os-migrate_volume": {"host": "node@fake#fake"},
        "os-set_bootable": {"bootable": True},
        "os-update_readonly_flag": {"readonly": True},
        "os-set_image_metadata": {"metadata": {"a": "b"}},
        "os-unset_image_metadata": {"key": "a"},
        "os-show_image_metadata": None,
        "os-reset_status": {"status": "available"},
        "os-force_detach": {"attachment_id": NOWHERE},
        "os-unmanage": None,
        "lunshare:handover": {"to": NOWHERE},
        "lunshare:attach": {"key": "k", "hosts": [connector("b")]},
        "lunshare:detach": {"attachments": [NOWHERE]},
        "revert": {"snapshot_id": snapshot_id},
    }


def test_no_action_gives_it_a_host_or_a_disk(project: Api):
    """Those that only change its row are allowed, as for any volume in error."""
    other = project.volume()
    every = actions(project.snapshot(other["id"])["id"], project.type()["id"])
    assert set(every) | {"os-force_delete"} == set(ACTIONS)
    ident = unplaced(project, volume_type=project.type(tier="gold")["id"])["id"]
    of_the_row = {name for name in every if "image" in name or "boot" in name}
    of_the_row |= {"os-unreserve", "os-roll_detaching", "os-detach"}
    of_the_row |= {"os-terminate_connection"}
    for name, body in every.items():
        answer = project.send("POST", f"/volumes/{ident}/action", {name: body})
        expected = (200, 202) if name in of_the_row else (400, 404)
        assert answer.status_code in expected, (name, answer.text)
        assert project.shown(ident)["status"] == "error", name
    for resource, body in (
        ("snapshot", {"volume_id": ident}),
        ("transfer", {"volume_id": ident}),
        ("volume", {"source_volid": ident}),
        ("attachment", {"volume_uuid": ident, **actions("", "")["os-attach"]}),
    ):
        path = f"/volume-{resource}s" if resource == "transfer" else f"/{resource}s"
        project.fault(400, "POST", path, {resource: body})
    assert len(messages(project)) == 1


def test_it_is_on_no_host(project: Api, small: Node):
    ident = unplaced(project, size=100_000)["id"]
    pool = small.services.node.host_of("fake")
    name = pool.partition("@")[0]
    for host in (pool, pool.partition("#")[0], f"{name}@", f"{name}@%23"):
        found = project("GET", f"/volumes?host={host.replace('#', '%23')}")["volumes"]
        assert found == [], host
    assert [v["id"] for v in project("GET", "/volumes?status=error")["volumes"]] == [
        ident
    ]
    assert "100000" not in str(project("GET", f"/os-hosts/{name}"))
    assert small.services.node.health().problems == ()


def test_many_requests_at_once_get_what_the_quota_allows(project: Api, small: Node):
    path = f"/os-quota-sets/{project.project}"
    project("PUT", path, {"quota_set": {"volumes": 3}})
    asked = {"volume": {"size": 100_000}}
    found: list[int] = []

    def create() -> None:
        found.append(project.send("POST", "/volumes", asked).status_code)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [202] * 3 + [413] * 5
    assert (len(messages(project)), usage(project)) == (3, (3, 300_000))
    assert is_counted(small, project.project)


def test_a_restart_leaves_it_as_it_is(project: Api, small: Node, tmp_path: Path):
    ident = unplaced(project, size=100_000)["id"]
    small.close()
    second = Node(tmp_path, section="fake_capacity_gb = 10").start()
    assert second.outcome.failed == []
    assert second.services.node.health().ready
    again = Api(second.assembly.app)
    again.project = project.project
    assert again.shown(ident)["status"] == "error"
    again("DELETE", f"/volumes/{ident}", status=202)
    again.fault(404, "GET", f"/volumes/{ident}")
    second.close()
