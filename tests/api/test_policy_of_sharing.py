# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that depend on rows: volumes of several hosts, extend while attached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.identity_daemon import Answer, Running, daemon, users
from tests.stands.node import connector

pytestmark = pytest.mark.daemon

OPTIONS = """auth_strategy = http_basic
http_basic_auth_user_file = {}
quota_volumes = -1
"""
ROLES = {"root": "admin:one", "anna": "member:one"}
POLICY = """"volume:multiattach": "rule:admin_api"
"volume:multiattach_bootable_volume": "rule:admin_api"
"volume:extend_attached_volume": "rule:admin_api"
"volume_extension:volume_image_metadata:show": "rule:admin_api"
"volume_extension:volume_tenant_attribute": "rule:admin_api"
"volume_extension:extended_snapshot_attributes": "rule:admin_api"
"volume_extension:access_types_extra_specs": "rule:admin_api"
"volume_extension:volume_type_access": "rule:admin_api"
"""


class Calls:
    """Requests of users, and a type whose volumes several hosts may have."""

    def __init__(self, running: Running) -> None:
        self._running = running
        shared = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
        self("root", "POST", "/types", {"volume_type": shared})
        self("root", "POST", "/types", {"volume_type": {"name": "plain"}})

    def __call__(self, user: str, method: str, path: str, body: Any = None) -> Answer:
        return self._running.basic(user, method, f"/v3{path}", body=body)

    def volume(self, user: str = "root", **fields: Any) -> str:
        answer = self(user, "POST", "/volumes", {"volume": {"size": 1, **fields}})
        assert answer.status == 202, answer.body
        return str(answer.body["volume"]["id"])

    def act(self, user: str, volume: str, action: str, value: Any = None) -> Answer:
        return self(user, "POST", f"/volumes/{volume}/action", {action: value})

    def attach(self, user: str, volume: str, host: str) -> Answer:
        fields = {"volume_uuid": volume, "connector": connector(host)}
        return self(user, "POST", "/attachments", {"attachment": fields})


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = tmp_path_factory.mktemp("sharing")
    (path / "policy.yaml").write_text(POLICY)
    with daemon(path, OPTIONS.format(users(path, **ROLES))) as running:
        yield Calls(running)


def refuses(answer: Answer, rule: str) -> bool:
    return answer.fault == (
        403,
        "forbidden",
        f"Policy doesn't allow {rule} to be performed.",
    )


def test_a_volume_of_several_hosts_needs_volume_multiattach(calls: Calls):
    shared = calls.volume(volume_type="shared")
    snapshot = {"snapshot": {"volume_id": shared}}
    taken = calls("root", "POST", "/snapshots", snapshot).body["snapshot"]["id"]
    before = len(calls("anna", "GET", "/volumes").body["volumes"])
    for source in (
        {"volume_type": "shared"},
        {"source_volid": shared},
        {"snapshot_id": taken},
    ):
        body = {"volume": {"size": 1, **source}}
        answer = calls("anna", "POST", "/volumes", body)
        assert refuses(answer, "volume:multiattach"), source
    assert len(calls("anna", "GET", "/volumes").body["volumes"]) == before
    assert calls.volume("anna", source_volid=shared, volume_type="plain")


def test_a_retype_to_one_needs_it_as_well(calls: Calls):
    volume, new = calls.volume("anna"), {"new_type": "shared"}
    answer = calls.act("anna", volume, "os-retype", new)
    assert refuses(answer, "volume:multiattach")
    assert calls.act("anna", volume, "os-retype", {"new_type": "plain"}).status == 202
    assert calls.act("root", volume, "os-retype", new).status == 202
    assert calls.act("anna", volume, "os-retype", {"new_type": "plain"}).status == 202


def test_a_bootable_volume_gets_a_second_host_only_by_its_own_rule(calls: Calls):
    rule = "volume:multiattach_bootable_volume"
    volume = calls.volume(volume_type="shared")
    calls.act("root", volume, "os-set_bootable", {"bootable": True})
    assert calls.attach("anna", volume, "a").status == 200
    assert refuses(calls.attach("anna", volume, "b"), rule)
    reserved = {"attachment": {"volume_uuid": volume}}
    assert refuses(calls("anna", "POST", "/attachments", reserved), rule)
    assert refuses(calls.act("anna", volume, "os-reserve"), rule)
    host = {"connector": connector("b")}
    answer = calls.act("anna", volume, "os-initialize_connection", host)
    assert refuses(answer, rule)
    left = calls("anna", "GET", f"/attachments?volume_id={volume}").body["attachments"]
    assert len(left) == 1
    assert calls.attach("root", volume, "b").status == 200


def test_other_volumes_do_not_need_that_rule(calls: Calls):
    volume = calls.volume(volume_type="shared")
    for host in ("a", "b"):
        assert calls.attach("anna", volume, host).status == 200
    plain = calls.volume("anna")
    calls.act("root", plain, "os-set_bootable", {"bootable": True})
    assert calls.attach("anna", plain, "a").status == 200
    assert calls.attach("anna", plain, "b").status == 400  # takes one


def test_an_extend_while_attached_needs_its_own_rule(calls: Calls):
    volume, asked = calls.volume("anna"), {"new_size": 2}
    assert calls.act("anna", volume, "os-extend", asked).status == 202
    attached = calls.attach("anna", volume, "a").body["attachment"]["id"]
    path = f"/attachments/{attached}/action"
    assert calls("anna", "POST", path, {"os-complete": None}).status == 204
    asked = {"new_size": 3}
    answer = calls.act("anna", volume, "os-extend", asked)
    assert refuses(answer, "volume:extend_attached_volume")
    assert calls.act("root", volume, "os-extend", asked).status == 202


def test_fields_have_rules(calls: Calls):
    volume = calls.volume("anna")
    made = calls("anna", "POST", "/snapshots", {"snapshot": {"volume_id": volume}})
    snapshot = made.body["snapshot"]["id"]
    kinds = calls("root", "GET", "/types").body["volume_types"]
    calls.act("root", volume, "os-set_image_metadata", {"metadata": {"a": "b"}})
    for path, fields in (
        (
            f"/volumes/{volume}",
            {"volume_image_metadata", "os-vol-tenant-attr:tenant_id"},
        ),
        (
            f"/snapshots/{snapshot}",
            {
                "os-extended-snapshot-attributes:project_id",
                "os-extended-snapshot-attributes:progress",
            },
        ),
        (
            f"/types/{kinds[0]['id']}",
            {"extra_specs", "qos_specs_id", "os-volume-type-access:is_public"},
        ),
    ):
        (all_of_it,) = calls("root", "GET", path).body.values()
        (some,) = calls("anna", "GET", path).body.values()
        assert set(all_of_it) - set(some) >= fields
        assert set(some) < set(all_of_it)
