# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a project cannot have because of its quotas, and what it uses."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.drivers.errors import CommandFailed, NoSpace
from lunshare.drivers.fake import fake_storage
from lunshare.drivers.values import GIB
from tests import counted_rows
from tests.api.calls import Api
from tests.api.quota_calls import OPTIONS, limit, usages, used
from tests.stands.node import Node, is_counted, node_fixture
from tests.stands.waiting import until

# A node with the quotas that Cinder has by default, and two backends.
node = node_fixture("module", extra=OPTIONS, backends="quota,other")


def over(api: Api, quota: str, method: str, path: str, body: Any) -> None:
    """Send what the quota refuses; the answer is that of the contract."""
    answer = api.send(method, path, body)
    assert answer.status_code == 413, answer.text
    assert answer.headers["retry-after"] == "0"
    (fault,) = answer.json.items()
    assert fault[0] == "overLimit"
    assert (fault[1]["code"], fault[1]["retryAfter"]) == (413, "0")
    assert f"quota {quota} exceeded:" in fault[1]["message"]


def on(node: Node, volume_id: str) -> Any:
    """The driver of the backend that has the volume."""
    found = [d for d in map(node.driver, ("quota", "other")) if has(d, volume_id)]
    return found[0]


def has(driver: Any, volume_id: str) -> bool:
    return volume_id in {disk.volume_id for disk in driver.disks()}


def test_one_volume_too_many_is_413_and_nothing_is_left(api: Api, node: Node):
    limit(api, volumes=1)
    volume = api.volume()
    body = {"volume": {"size": 1}}
    over(api, "volumes", "POST", "/volumes", body)
    assert [row["id"] for row in api("GET", "/volumes")["volumes"]] == [volume["id"]]
    assert usages(api, "volumes", "gigabytes") == (1, 1)
    api("DELETE", f"/volumes/{volume['id']}", status=202)
    api.gone(f"/volumes/{volume['id']}")
    assert used(api, "volumes") == 0
    api.volume()
    assert is_counted(node, api.project)


def test_gigabytes_are_those_of_volumes_and_snapshots(api: Api):
    limit(api, gigabytes=5)
    volume = api.volume(size=3)
    over(api, "gigabytes", "POST", "/volumes", {"volume": {"size": 3}})
    small = api.volume(size=1)
    body = {"snapshot": {"volume_id": volume["id"]}}
    over(api, "gigabytes", "POST", "/snapshots", body)
    assert api("GET", "/snapshots")["snapshots"] == []
    snapshot = api.snapshot(small["id"])
    assert usages(api, "gigabytes", "snapshots", "volumes") == (5, 1, 2)
    api("DELETE", f"/snapshots/{snapshot['id']}", status=202)
    api.gone(f"/snapshots/{snapshot['id']}")
    assert usages(api, "gigabytes", "snapshots") == (4, 0)


def test_one_snapshot_too_many_is_413(api: Api):
    limit(api, snapshots=1)
    volume = api.volume()
    api.snapshot(volume["id"])
    body = {"snapshot": {"volume_id": volume["id"]}}
    over(api, "snapshots", "POST", "/snapshots", body)
    assert used(api, "snapshots") == 1


def test_clones_and_volumes_from_snapshots_count(api: Api):
    volume = api.volume()
    snapshot = api.snapshot(volume["id"])
    limit(api, volumes=1)
    for source in ({"source_volid": volume["id"]}, {"snapshot_id": snapshot["id"]}):
        over(api, "volumes", "POST", "/volumes", {"volume": source})
    limit(api, volumes=2)
    api.volume(source_volid=volume["id"])
    assert used(api, "volumes") == 2


def test_a_managed_disk_counts_and_an_unmanaged_one_does_not(api: Api, node: Node):
    name = f"disk-{uuid.uuid4()}"
    held = fake_storage.storage("quota")
    held.foreign_disks[name] = fake_storage.FakeDisk(GIB)
    held.foreign += GIB
    host = node.services.node.host_of("quota")
    body = {"volume": {"host": host, "ref": {"source-name": name}}}
    limit(api, volumes=0)
    over(api, "volumes", "POST", "/manageable_volumes", body)
    assert name in held.foreign_disks
    limit(api, volumes=1)
    made = api("POST", "/manageable_volumes", body, 202)["volume"]
    assert usages(api, "volumes", "gigabytes") == (1, 1)
    api.act(made["id"], {"os-unmanage": None})
    api.gone(f"/volumes/{made['id']}")
    assert usages(api, "volumes", "gigabytes") == (0, 0)


def test_an_extend_counts_from_its_acceptance_on(api: Api, node: Node):
    volume = api.volume()
    limit(api, gigabytes=3)
    path = f"/volumes/{volume['id']}/action"
    over(api, "gigabytes", "POST", path, {"os-extend": {"new_size": 4}})
    assert api.shown(volume["id"])["status"] == "available"
    assert used(api, "gigabytes") == 1
    failures = on(node, volume["id"]).failures
    with failures.fail("extend.before", NoSpace("pool quota", "1 GiB")):
        api.refused(413, volume["id"], {"os-extend": {"new_size": 2}})
    assert used(api, "gigabytes") == 1
    with failures.fail("extend.before", CommandFailed(("lvextend",), 5, "no group")):
        api.refused(500, volume["id"], {"os-extend": {"new_size": 2}})
    assert api.shown(volume["id"])["status"] == "error_extending"
    assert used(api, "gigabytes") == 2
    api.act(volume["id"], {"os-extend": {"new_size": 3}})
    assert used(api, "gigabytes") == 3
    assert is_counted(node, api.project)


def test_one_volume_has_a_largest_size(api: Api):
    limit(api, per_volume_gigabytes=2)
    over(api, "per_volume_gigabytes", "POST", "/volumes", {"volume": {"size": 3}})
    volume = api.volume(size=2)
    path = f"/volumes/{volume['id']}/action"
    body = {"os-extend": {"new_size": 3}}
    over(api, "per_volume_gigabytes", "POST", path, body)
    assert used(api, "per_volume_gigabytes") == 0


def test_each_type_has_its_own_limits(api: Api, node: Node):
    kind = api.type()
    name, ident = kind["name"], kind["id"]
    limit(api, **{f"volumes_{name}": 1, f"gigabytes_{name}": 2, f"snapshots_{name}": 0})
    volume = api.volume(volume_type=ident)
    body = {"volume": {"size": 1, "volume_type": name}}
    over(api, f"volumes_{name}", "POST", "/volumes", body)
    snapshot = {"snapshot": {"volume_id": volume["id"]}}
    over(api, f"snapshots_{name}", "POST", "/snapshots", snapshot)
    path = f"/volumes/{volume['id']}/action"
    over(api, f"gigabytes_{name}", "POST", path, {"os-extend": {"new_size": 3}})
    api.volume()
    assert usages(api, "volumes", f"volumes_{name}", f"gigabytes_{name}") == (2, 1, 1)
    assert is_counted(node, api.project)


@pytest.mark.parametrize("migrates", [False, True])
def test_a_retype_counts_for_the_new_type(api: Api, node: Node, migrates: bool):
    old = api.type(volume_backend_name="quota")
    backend = "other" if migrates else "quota"
    new = api.type(volume_backend_name=backend)
    volume = api.volume(volume_type=old["name"])
    limit(api, volumes=1, **{f"gigabytes_{new['name']}": 0})
    asked = {"os-retype": {"new_type": new["id"], "migration_policy": "on-demand"}}
    path = f"/volumes/{volume['id']}/action"
    over(api, f"gigabytes_{new['name']}", "POST", path, asked)
    assert api.shown(volume["id"])["volume_type"] == old["name"]
    limit(api, **{f"gigabytes_{new['name']}": 1})
    api.act(volume["id"], asked)
    until(lambda: api.shown(volume["id"])["volume_type"] == new["name"])
    assert usages(api, f"volumes_{old['name']}", f"volumes_{new['name']}") == (0, 1)
    assert is_counted(node, api.project)


def test_snapshots_count_for_the_new_type_of_their_volume(api: Api, node: Node):
    old, new = (api.type(volume_backend_name="quota") for _ in range(2))
    volume = api.volume(volume_type=old["name"])
    for _ in range(2):
        api.snapshot(volume["id"])
    asked = {"os-retype": {"new_type": new["id"], "migration_policy": "never"}}
    path = f"/volumes/{volume['id']}/action"
    for quota, most in (("snapshots", 1), ("gigabytes", 2)):
        limit(api, **{f"{quota}_{new['name']}": most})
        over(api, f"{quota}_{new['name']}", "POST", path, asked)
        limit(api, **{f"{quota}_{new['name']}": -1})
    assert api.shown(volume["id"])["volume_type"] == old["name"]
    api.act(volume["id"], asked)
    counted = [
        f"{q}_{t['name']}" for t in (old, new) for q in ("snapshots", "gigabytes")
    ]
    assert usages(api, *counted) == (0, 0, 2, 3)
    assert is_counted(node, api.project)


@pytest.mark.parametrize(
    ("quota", "name"),
    [
        ("volumes", "VolumeLimitExceeded"),
        ("gigabytes", "VolumeSizeExceedsAvailableQuota"),
        ("per_volume_gigabytes", "VolumeSizeExceedsLimit"),
        ("snapshots", "SnapshotLimitExceeded"),
    ],
)
def test_an_answer_begins_with_the_name_that_clients_know(
    api: Api, quota: str, name: str
):
    volume = api.volume()
    limit(api, **{quota: 1 if quota != "snapshots" else 0})
    path, body = "/volumes", {"volume": {"size": 2}}
    if quota == "snapshots":
        path, body = "/snapshots", {"snapshot": {"volume_id": volume["id"]}}
    assert api.fault(413, "POST", path, body).startswith(f"{name}: ")


def test_a_create_that_fails_uses_nothing(api: Api, node: Node):
    broken = CommandFailed(("lvcreate",), 5, "no such group")
    kind = api.type(volume_backend_name="quota")
    body = {"volume": {"size": 1, "volume_type": kind["id"]}}
    with node.driver("quota").failures.fail("create.before", broken):
        api.fault(500, "POST", "/volumes", body)
    assert api("GET", "/volumes")["volumes"] == []
    assert usages(api, "volumes", "gigabytes") == (0, 0)
    assert is_counted(node, api.project)


def test_of_many_creates_at_once_no_more_than_the_limit_succeed(api: Api, node: Node):
    limit(api, volumes=5)
    with ThreadPoolExecutor(12) as threads:
        body = {"volume": {"size": 1}}
        answers = threads.map(lambda _: api.send("POST", "/volumes", body), range(12))
        codes = sorted(answer.status_code for answer in answers)
    assert codes == [202] * 5 + [413] * 7
    assert used(api, "volumes") == 5
    assert is_counted(node, api.project)


def test_a_check_costs_the_same_whatever_the_project_has(api: Api, node: Node):
    limit(api, volumes=-1)
    statements: list[str] = []
    engine = node.assembly.database.engine

    def watch(driver: Any, *_: Any) -> None:
        # Prepared statements (``prepared``) cause no event of SQLAlchemy.
        driver.set_trace_callback(statements.append)

    def cost() -> int:
        statements.clear()
        api.volume()
        work = ("SELECT", "INSERT", "UPDATE", "DELETE")
        return len([text for text in statements if text.startswith(work)])

    node.assembly.database.close()  # the next connections are watched
    sa.event.listen(engine, "connect", watch)
    try:
        api.volume()
        first = cost()
        for _ in range(12):
            api.volume()
        assert cost() == first > 0
    finally:
        sa.event.remove(engine, "connect", watch)
        node.assembly.database.close()
    with node.assembly.database.reading() as connection:
        assert len(counted_rows.every_usage(connection)[api.project]) == 1


@pytest.mark.parametrize("quota", ["volumes", "gigabytes", "snapshots"])
def test_an_accepted_transfer_counts_for_the_new_project(
    api: Api, node: Node, quota: str
):
    other = Api(node.assembly.app)
    volume = api.volume()
    api.snapshot(volume["id"])
    asked = {"transfer": {"volume_id": volume["id"]}}
    offered = api("POST", "/volume-transfers", asked, 202)["transfer"]
    path = f"/volume-transfers/{offered['id']}/accept"
    body = {"accept": {"auth_key": offered["auth_key"]}}
    limit(other, **{quota: 0})
    over(other, quota, "POST", path, body)
    counted = ("volumes", "gigabytes", "snapshots")
    assert (usages(api, *counted), usages(other, *counted)) == ((1, 2, 1), (0, 0, 0))
    assert api.shown(volume["id"])["status"] == "awaiting-transfer"
    limit(other, **{quota: 2})
    other("POST", path, body, 202)
    assert (usages(api, *counted), usages(other, *counted)) == ((0, 0, 0), (1, 2, 1))
    assert is_counted(node, api.project)
    assert is_counted(node, other.project)
