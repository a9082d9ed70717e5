# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas: their limits, and what a project cannot have because of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import quotas
from lunshare.drivers import fake_storage
from lunshare.drivers.errors import CommandFailed, NoSpace
from lunshare.drivers.values import GIB
from tests.api.calls import Api, until
from tests.node import Node, is_counted

NOWHERE = "11111111-2222-3333-4444-555555555555"
DEFAULTS = {
    "volumes": 10,
    "snapshots": 10,
    "gigabytes": 1000,
    "per_volume_gigabytes": -1,
    "backups": 10,
    "backup_gigabytes": 1000,
    "groups": 10,
}
OPTIONS = "quota_volumes = 10\nquota_snapshots = 10\nquota_gigabytes = 1000"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with the quotas that Cinder has by default, and two backends."""
    path = tmp_path_factory.mktemp("quotas")
    made = Node(path, OPTIONS, backends="quota,other").start()
    yield made
    made.close()


def limit(api: Api, **limits: Any) -> dict[str, Any]:
    path = f"/os-quota-sets/{api.project}"
    found: dict[str, Any] = api("PUT", path, {"quota_set": limits})["quota_set"]
    return found


def used(api: Api, key: str) -> int:
    """How much the project has; every counter must equal a count of its rows."""
    path = f"/os-quota-sets/{api.project}?usage=True"
    found: dict[str, Any] = api("GET", path)["quota_set"]
    assert found["id"] == api.project
    assert found[key]["reserved"] == 0
    return int(found[key]["in_use"])


def usages(api: Api, *keys: str) -> tuple[int, ...]:
    return tuple(used(api, key) for key in keys)


def over(api: Api, quota: str, method: str, path: str, body: Any) -> None:
    """Send what the quota refuses; the answer is that of the contract."""
    answer = api.send(method, path, body)
    assert answer.status_code == 413, answer.text
    assert answer.headers["retry-after"] == "0"
    (fault,) = answer.json.items()
    assert fault[0] == "overLimit"
    assert (fault[1]["code"], fault[1]["retryAfter"]) == (413, "0")
    assert f"quota {quota}:" in fault[1]["message"]


def on(node: Node, volume_id: str) -> Any:
    """The driver of the backend that has the volume."""
    found = [d for d in map(node.driver, ("quota", "other")) if has(d, volume_id)]
    return found[0]


def has(driver: Any, volume_id: str) -> bool:
    return volume_id in {disk.volume_id for disk in driver.disks()}


def test_a_project_has_the_quotas_of_the_options(api: Api):
    shown = api("GET", f"/os-quota-sets/{api.project}")["quota_set"]
    assert shown.pop("id") == api.project
    assert {key: shown[key] for key in DEFAULTS} == DEFAULTS
    default = api("GET", f"/os-quota-sets/{api.project}/defaults")["quota_set"]
    assert default == {"id": api.project, **shown}


def test_every_volume_type_has_its_quotas(api: Api):
    name = api.type()["name"]
    shown = api("GET", f"/os-quota-sets/{api.project}")["quota_set"]
    for kind in ("volumes", "gigabytes", "snapshots"):
        assert shown[f"{kind}_{name}"] == -1


def test_limits_are_set_and_deleted(api: Api):
    path = f"/os-quota-sets/{api.project}"
    name = api.type()["name"]
    asked = {"volumes": 3, "gigabytes": "7", f"volumes_{name}": 2, "tenant_id": "x"}
    changed = limit(api, **asked)
    assert "id" not in changed
    assert (changed["volumes"], changed["gigabytes"]) == (3, 7)
    assert changed[f"volumes_{name}"] == 2
    shown = api("GET", path)["quota_set"]
    assert shown == {"id": api.project, **changed}
    assert api("GET", f"{path}/defaults")["quota_set"]["volumes"] == 10
    other = Api(api.client.app)
    assert other("GET", f"/os-quota-sets/{other.project}")["quota_set"]["volumes"] == 10
    assert api("DELETE", path) is None
    assert api("GET", path)["quota_set"]["volumes"] == 10
    assert api("DELETE", path) is None


def test_a_renamed_type_keeps_its_quotas_and_a_deleted_one_has_none(api: Api):
    kind = api.type()
    limit(api, **{f"gigabytes_{kind['name']}": 5})
    name = uuid.uuid4().hex
    api("PUT", f"/types/{kind['id']}", {"volume_type": {"name": name}})
    shown = api("GET", f"/os-quota-sets/{api.project}")["quota_set"]
    assert shown[f"gigabytes_{name}"] == 5
    api("DELETE", f"/types/{kind['id']}", status=202)
    shown = api("GET", f"/os-quota-sets/{api.project}")["quota_set"]
    assert f"gigabytes_{name}" not in shown


def test_the_default_class_is_of_every_project(api: Api):
    path = "/os-quota-class-sets/default"
    shown = api("GET", path)["quota_class_set"]
    assert shown.pop("id") == "default"
    assert shown["groups"] == 10
    try:
        asked = {"quota_class_set": {"groups": 11}}
        changed = api("PUT", path, asked)["quota_class_set"]
        assert changed == {**shown, "groups": 11}
        assert api("GET", f"/os-quota-sets/{api.project}")["quota_set"]["groups"] == 11
        limit(api, groups=12)
        assert api("GET", f"/os-quota-sets/{api.project}")["quota_set"]["groups"] == 12
    finally:
        api("PUT", path, {"quota_class_set": {"groups": 10}})
    other = api("GET", "/os-quota-class-sets/gold")["quota_class_set"]
    assert (other["id"], other["volumes"]) == ("gold", 10)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({}, "quota_set"),
        ({"colour": 1}, "'colour' is unknown"),
        ({"volumes_no-such-type": 1}, "volumes_no-such-type"),
        ({"backups_standard": 1}, "backups_standard"),
        ({"volumes": -2}, "quota_set.volumes: give a whole number"),
        ({"volumes": "many"}, "quota_set.volumes: give a whole number"),
        ({"volumes": 1.5}, "quota_set.volumes: give a whole number"),
        ({"volumes": None}, "quota_set.volumes: give a whole number"),
        ({"volumes": True}, "quota_set.volumes: give a whole number"),
        ({"volumes": 2**31}, "quota_set.volumes: give a whole number"),
        ({"volumes": "9" * 30}, "quota_set.volumes: give a whole number"),
        ({"x" * 600: 1}, "the names of quotas"),
    ],
    ids=str,
)
def test_a_limit_that_is_not_valid_is_400_and_named(
    api: Api, limits: dict[str, Any], named: str
):
    path = f"/os-quota-sets/{api.project}"
    assert named in api.fault(400, "PUT", path, {"quota_set": limits})
    path = "/os-quota-class-sets/default"
    named = named.replace("quota_set", "quota_class_set")
    assert named in api.fault(400, "PUT", path, {"quota_class_set": limits})
    assert limits.keys().isdisjoint(api("GET", path)["quota_class_set"]) or (
        api("GET", path)["quota_class_set"]["volumes"] == 10
    )


@pytest.mark.parametrize("body", [{}, {"quota_set": None}, {"volumes": 1}])
def test_a_body_without_a_quota_set_is_400(api: Api, body: Any):
    assert "quota_set" in api.fault(400, "PUT", f"/os-quota-sets/{api.project}", body)


def test_the_name_of_a_project_that_is_too_long_is_400(api: Api):
    asked = {"quota_set": {"volumes": 1}}
    assert "255" in api.fault(400, "PUT", f"/os-quota-sets/{'p' * 256}", asked)


def test_a_limit_below_what_is_used_is_400(api: Api):
    api.volume(size=2)
    path = f"/os-quota-sets/{api.project}"
    for asked, named in (
        ({"gigabytes": 1}, "gigabytes: 1"),
        ({"volumes": 0}, "volumes"),
    ):
        assert named in api.fault(400, "PUT", path, {"quota_set": asked})
    limit(api, volumes=1, gigabytes=-1)


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
    for source in (
        {"source_volid": volume["id"]},
        {"snapshot_id": snapshot["id"]},
    ):
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


def test_limits_show_quotas_and_usage(api: Api):
    api.snapshot(api.volume(size=2)["id"])
    limit(api, volumes=7)
    limits = api("GET", "/limits")["limits"]
    assert limits["rate"] == []
    assert limits["absolute"] == {
        "maxTotalVolumes": 7,
        "maxTotalVolumeGigabytes": 1000,
        "maxTotalSnapshots": 10,
        "maxTotalBackups": 10,
        "maxTotalBackupGigabytes": 1000,
        "totalVolumesUsed": 1,
        "totalGigabytesUsed": 4,
        "totalSnapshotsUsed": 1,
        "totalBackupsUsed": 0,
        "totalBackupGigabytesUsed": 0,
    }


def test_limits_of_another_project_are_shown_from_3_39_on(api: Api):
    other = Api(api.client.app)
    limit(other, volumes=7)
    for name in ("project_id", "tenant_id"):
        path = f"/limits?{name}={other.project}"
        assert api("GET", path)["limits"]["absolute"]["maxTotalVolumes"] == 7
        before = api.at("3.38")("GET", path)["limits"]["absolute"]
        assert before["maxTotalVolumes"] == 10


def test_a_check_costs_the_same_whatever_the_project_has(api: Api, node: Node):
    limit(api, volumes=-1)
    statements: list[str] = []
    engine = node.assembly.database.engine

    def count(*event: Any) -> None:
        statements.append(event[2])

    def cost() -> list[str]:
        statements.clear()
        api.volume()
        return list(statements)

    api.volume()
    sa.event.listen(engine, "before_cursor_execute", count)
    try:
        first = cost()
        sa.event.remove(engine, "before_cursor_execute", count)
        for _ in range(12):
            api.volume()
        sa.event.listen(engine, "before_cursor_execute", count)
        assert len(cost()) == len(first) > 0
    finally:
        sa.event.remove(engine, "before_cursor_execute", count)
    with node.assembly.database.reading() as connection:
        assert len(quotas.projects(connection)[api.project]) == 1
