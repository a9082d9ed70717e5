# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The limits of projects: show, change and delete them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calls import Api
from tests.api.quota_calls import OPTIONS, limit
from tests.stands.node import node_fixture

DEFAULTS = {
    "volumes": 10,
    "snapshots": 10,
    "gigabytes": 1000,
    "per_volume_gigabytes": -1,
    "backups": 10,
    "backup_gigabytes": 1000,
    "groups": 10,
}


# A node with the quotas that Cinder has by default, and two backends.
node = node_fixture("module", extra=OPTIONS, backends="quota,other")


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
