# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command openstack: types, QoS, services, messages."""

from __future__ import annotations

from tests.clients.command import Command
from tests.clients.node import HOST, host
from tests.stands.waiting import until

SERVICE = (f"{HOST}@first", "cinder-volume")


def test_types_have_properties(openstack: Command):
    words = ("--multiattach", "--property", "a:b=c", "--description", "d", "kind")
    made = openstack.json("volume type create", *words)
    assert made["properties"] == {"multiattach": "<is> True", "a:b": "c"}
    openstack("volume type set", "--property", "e=f", "--name", "sort", "kind")
    openstack("volume type unset", "--property", "a:b", "sort")
    found = openstack.json("volume type show", "sort")
    assert found["properties"] == {"multiattach": "<is> True", "e": "f"}
    assert "sort" in openstack("volume type list", "--long")
    openstack("volume type delete", "sort")


def test_types_are_encrypted(openstack: Command):
    where = ("--encryption-control-location", "front-end")
    openstack("volume type create --encryption-provider luks", *where, "secret")
    found = openstack.json("volume type show", "--encryption-type", "secret")
    assert found["encryption"]["provider"] == "luks"
    openstack("volume type unset", "--encryption-type", "secret")
    openstack("volume type delete", "secret")


def test_qos_specs_are_associated_with_types(openstack: Command):
    openstack("volume type create", "limited")
    words = ("--consumer", "front-end", "--property", "read_iops_sec=100", "q")
    assert openstack.json("volume qos create", *words)["consumer"] == "front-end"
    openstack("volume qos set", "--property", "write_iops_sec=50", "q")
    openstack("volume qos unset", "--property", "read_iops_sec", "q")
    openstack("volume qos associate", "q", "limited")
    shown = openstack.json("volume qos show", "q")
    assert shown["associations"] == ["limited"]
    assert shown["properties"] == {"write_iops_sec": "50"}
    (row,) = openstack.json("volume qos list")
    assert row["Associations"] == ["limited"]
    openstack("volume qos disassociate", "--volume-type", "limited", "q")
    openstack("volume qos associate", "q", "limited")
    openstack("volume qos disassociate", "--all", "q")
    openstack("volume qos delete", "q")


def test_services_are_disabled_and_listed(openstack: Command):
    reason = ("--disable-reason", "disks")
    openstack("volume service set", "--disable", *reason, *SERVICE)
    asked = ("--service", "cinder-volume", "--host", SERVICE[0], "--long")
    (row,) = openstack.json("volume service list", *asked)
    assert (row["Status"], row["Disabled Reason"]) == ("disabled", "disks")
    openstack("volume service set", "--enable", *SERVICE)
    openstack("volume host set", "--disable", SERVICE[0])
    openstack("volume host set", "--enable", SERVICE[0])
    level = ("--service", "cinder-volume")
    openstack("block storage log level set", *level, "DEBUG")
    assert "DEBUG" in openstack("block storage log level list", *level)
    openstack("block storage log level set", "INFO")


def test_pools_filters_and_clusters_are_listed(openstack: Command):
    pools = openstack.json("volume backend pool list", "--long")
    assert {pool["Name"] for pool in pools} == {host("first"), host("second")}
    openstack.json("volume backend capability show", SERVICE[0])
    filters = openstack.json("block storage resource filter list")
    assert "volume" in {row["Resource"] for row in filters}
    openstack.json("block storage resource filter show", "volume")
    assert openstack.json("block storage cluster list") == []
    openstack.json("availability zone list --volume")
    openstack.json("extension list --volume")


def test_messages_say_why_a_volume_failed(openstack: Command):
    none = ("--property", "volume_backend_name=none", "nowhere")
    openstack("volume type create", *none)
    words = ("--size", "1", "--type", "nowhere", "failed")
    ident = openstack.json("volume create", *words)["id"]
    until(lambda: openstack.json("volume show", ident)["status"] == "error", "error")
    (row,) = openstack.json("volume message list")
    assert "no backend can hold" in row["User Message"]
    openstack("volume message delete", row["ID"])
    assert openstack.json("volume message list") == []
    openstack("volume delete", ident)
