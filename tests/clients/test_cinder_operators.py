# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command cinder: types, quotas, services, messages."""

from __future__ import annotations

from tests.clients.command import Command
from tests.clients.node import HOST, Node, host
from tests.stands.waiting import until

SERVICE = (f"{HOST}@first", "cinder-volume")


def test_types_have_specs_access_and_a_default(cinder: Command):
    (made,) = cinder.rows("type-create", "kind", "--description", "d")
    assert made["Name"] == "kind"
    cinder("type-key", "kind", "set", "multiattach=<is> True", "a:b=c")
    cinder("type-key", "kind", "unset", "a:b")
    assert "multiattach : <is> True" in cinder.row("type-show", "kind")["extra_specs"]
    assert "multiattach" in cinder("extra-specs-list")
    assert made["ID"] not in cinder("encryption-type-list")
    assert made["ID"] not in cinder("encryption-type-show", "kind")
    cinder("type-update", "--name", "sort", "--is-public", "False", made["ID"])
    access = ("--volume-type", "sort")
    cinder("type-access-add", *access, "--project-id", "other")
    assert "other" in cinder("type-access-list", *access)
    cinder("type-access-remove", *access, "--project-id", "other")
    assert "sort" in cinder("type-list")
    cinder("type-delete", "sort")


def test_types_are_encrypted(cinder: Command):
    (kind,) = cinder.rows("type-create", "secret")
    ident = kind["ID"]
    where = ("--control-location", "front-end", "--key-size", "256")
    cinder("encryption-type-create", *where, ident, "luks")
    (shown,) = cinder.rows("encryption-type-show", ident)
    assert (shown["Provider"], shown["Key Size"]) == ("luks", "256")
    cinder("encryption-type-update", "--provider", "luks2", ident)
    assert "luks2" in cinder("encryption-type-list")
    cinder.fails("encrypted", "create", "1", "--volume-type", "secret")
    cinder("encryption-type-delete", ident)
    assert "luks2" not in cinder("encryption-type-list")
    cinder("type-delete", "secret")


def test_a_project_has_a_default_type(cinder: Command, node: Node):
    own = node.caller.project
    cinder("type-create", "usual")
    cinder("default-type-set", "usual", own)
    set_to = cinder.row("default-type-list", "--project-id", own)["volume_type_id"]
    (usual,) = cinder.rows("type-default")
    assert (usual["ID"], usual["Name"]) == (set_to, "usual")
    cinder("default-type-unset", own)
    cinder("type-delete", "usual")


def test_qos_specs_are_associated_with_types(cinder: Command):
    (kind,) = cinder.rows("type-create", "limited")
    made = cinder.row("qos-create", "q", "consumer=front-end", "read_iops_sec=100")
    assert made["name"] == "q"
    ident = made["id"]
    cinder("qos-key", ident, "set", "write_iops_sec=50")
    cinder("qos-key", ident, "unset", "read_iops_sec")
    assert "write_iops_sec : 50" in cinder.row("qos-show", ident)["specs"]
    assert "read_iops_sec" not in cinder("qos-list")
    cinder("qos-associate", ident, kind["ID"])
    assert "limited" in cinder("qos-get-association", ident)
    cinder("qos-disassociate", ident, kind["ID"])
    cinder("qos-associate", ident, kind["ID"])
    cinder("qos-disassociate-all", ident)
    cinder("qos-delete", ident)
    cinder("type-delete", "limited")


def test_quotas_are_shown_and_changed(cinder: Command):
    assert cinder.row("quota-update", "--volumes", "7", "other")["volumes"] == "7"
    assert cinder.row("quota-show", "other")["volumes"] == "7"
    cinder("quota-delete", "other")
    assert cinder.row("quota-defaults", "other")["volumes"] == "-1"
    used = {row["Type"]: row for row in cinder.rows("quota-usage", "other")}
    assert (used["volumes"]["In_use"], used["volumes"]["Limit"]) == ("0", "-1")
    cinder("quota-class-update", "--snapshots", "9", "default")
    assert cinder.row("quota-class-show", "default")["snapshots"] == "9"
    cinder("quota-class-update", "--snapshots", "-1", "default")
    assert cinder.row("absolute-limits")["maxTotalVolumes"] == "-1"
    cinder("rate-limits")


def test_services_are_disabled_frozen_and_listed(cinder: Command):
    cinder("service-disable", *SERVICE, "--reason", "disks")
    (row,) = cinder.rows("service-list", "--host", SERVICE[0])
    assert (row["Status"], row["Disabled Reason"]) == ("disabled", "disks")
    cinder("service-enable", *SERVICE)
    cinder("freeze-host", SERVICE[0])
    cinder("thaw-host", SERVICE[0])
    cinder("service-set-log", "--binary", "cinder-volume", "DEBUG")
    assert "DEBUG" in cinder("service-get-log", "--binary", "cinder-volume")
    cinder("service-set-log", "INFO")
    cinder("work-cleanup")


def test_pools_zones_and_versions_are_listed(cinder: Command):
    assert host("second") in cinder("get-pools", "--detail")
    assert "Volume" in cinder("get-capabilities", SERVICE[0])
    assert "nova" in cinder("availability-zone-list")
    assert "3.71" in cinder("version-list")
    assert "3.71" in cinder("api-version")
    assert "volume" in cinder("list-filters")
    cinder("list-extensions")
    cinder("cluster-list")


def test_messages_say_why_a_volume_failed(cinder: Command):
    cinder("type-create", "nowhere")
    cinder("type-key", "nowhere", "set", "volume_backend_name=none")
    ident = cinder.row("create", "1", "--volume-type", "nowhere")["id"]
    until(lambda: cinder.row("show", ident)["status"] == "error", "error")
    (row,) = cinder.rows("message-list")
    said = cinder.row("message-show", row["ID"])["user_message"]
    assert "no backend can hold" in said
    cinder("message-delete", row["ID"])
    assert row["ID"] not in cinder("message-list")
    cinder("delete", ident)
