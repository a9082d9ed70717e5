# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command openstack: volumes and what belongs to them."""

from __future__ import annotations

from typing import Any

from tests.clients.command import Command
from tests.clients.node import UNMANAGED, host
from tests.stands.waiting import until


def volume(openstack: Command, name: str, *words: str) -> str:
    """A new volume, available; its id."""
    size = () if {"--source", "--snapshot"} & {*words} else ("--size", "1")
    ident = str(openstack.json("volume create", *size, *words, name)["id"])
    reaches(openstack, ident, "available")
    return ident


def reaches(openstack: Command, ident: str, status: str) -> None:
    until(lambda: shown(openstack, ident)["status"] == status, status)


def shown(openstack: Command, ident: str) -> dict[str, Any]:
    found: dict[str, Any] = openstack.json("volume show", ident)
    return found


def test_volumes_are_created_listed_and_deleted(openstack: Command):
    ident = volume(openstack, "one", "--property", "a=b", "--description", "d")
    assert ident in [row["ID"] for row in openstack.json("volume list", "--long")]
    openstack("volume set", "--name", "two", "--property", "c=d", "one")
    openstack("volume unset", "--property", "a", "two")
    assert openstack.json("volume show", "two")["properties"] == {"c": "d"}
    openstack("volume set", "--size", "2", "two")
    until(lambda: openstack.json("volume show", "two")["size"] == 2, "extended")
    assert openstack.json("volume summary")["Total Count"] == 1
    openstack("volume delete", "two")
    until(lambda: not openstack.json("volume list", "--name", "two"), "deleted")


def test_flags_and_image_properties_change(openstack: Command):
    ident = volume(openstack, "flags", "--bootable", "--read-only")
    assert shown(openstack, ident)["properties"] == {"readonly": "True"}
    openstack("volume set", "--read-write", "--non-bootable", ident)
    openstack("volume set", "--image-property", "k=v", ident)
    assert shown(openstack, ident)["volume_image_metadata"] == {"k": "v"}
    openstack("volume unset", "--image-property", "k", ident)
    openstack("volume set", "--state", "error", ident)
    assert shown(openstack, ident)["status"] == "error"
    openstack("volume delete", "--force", ident)


def test_a_volume_changes_its_type_and_its_backend(openstack: Command):
    there = ("--property", "volume_backend_name=second", "there")
    openstack("volume type create", *there)
    ident = volume(openstack, "moved")
    policy = ("--migration-policy", "on-demand")
    openstack("volume set", "--type", "there", *policy, ident)
    at = "os-vol-host-attr:host"
    until(lambda: shown(openstack, ident)[at] == host("second"), "retyped")
    reaches(openstack, ident, "available")
    other = volume(openstack, "migrated")
    places = {host("first"), host("second")}
    (free,) = places - {shown(openstack, other)[at]}
    openstack("volume migrate", "--host", free, other)
    until(lambda: shown(openstack, other)[at] == free, "migrated")
    reaches(openstack, other, "available")
    openstack("volume delete", ident, other)


def test_snapshots_are_created_copied_and_reverted(openstack: Command):
    ident = volume(openstack, "source")
    words = ("--volume", "source", "--property", "a=b", "s")
    made = openstack.json("volume snapshot create", *words)["id"]

    def status() -> str:
        return str(openstack.json("volume snapshot show", made)["status"])

    until(lambda: status() == "available", "available")
    listed = openstack.json("volume snapshot list", "--volume", "source", "--long")
    assert [row["ID"] for row in listed] == [made]
    openstack("volume snapshot set", "--name", "t", "--property", "c=d", "s")
    openstack("volume snapshot unset", "--property", "a", "t")
    assert openstack.json("volume snapshot show", "t")["properties"] == {"c": "d"}
    copies = [
        volume(openstack, "copy", "--snapshot", "t"),
        volume(openstack, "clone", "--source", "source"),
    ]
    openstack("volume revert", "t")
    reaches(openstack, ident, "available")
    openstack("volume snapshot set", "--state", "error", "t")
    assert status() == "error"
    openstack("volume snapshot delete", "t")
    until(lambda: not openstack.json("volume snapshot list"), "deleted")
    openstack("volume delete", *copies, ident)


def test_disks_are_managed(openstack: Command):
    ident = volume(openstack, "m")
    at = shown(openstack, ident)["os-vol-host-attr:host"]
    openstack("volume delete --remote", ident)
    until(lambda: not openstack.json("volume list"), "unmanaged")
    listed = openstack("block storage volume manageable list", "--long", at)
    assert UNMANAGED % ident in listed
    source = ("--remote-source", f"source-name={UNMANAGED % ident}", "--host", at)
    managed = openstack.json("volume create", *source, "again")["id"]
    reaches(openstack, managed, "available")
    openstack("volume delete", managed)


def test_foreign_snapshots_are_listed(openstack: Command):
    place = host("first")
    assert openstack.json("block storage snapshot manageable list", place) == []


def test_a_volume_is_given_to_another_project(openstack: Command):
    ident = volume(openstack, "given")
    request = "volume transfer request"
    kept = openstack.json(f"{request} create", "--name", "no", "given")["id"]
    assert openstack.json(f"{request} show", kept)["volume_id"] == ident
    assert [row["ID"] for row in openstack.json(f"{request} list")] == [kept]
    openstack(f"{request} delete", kept)
    made = openstack.json(f"{request} create", "given")
    key = ("--auth-key", made["auth_key"])
    assert openstack.json(f"{request} accept", *key, made["id"])["volume_id"] == ident
    openstack("volume delete", ident)


def test_a_host_detaches(openstack: Command, cinder: Command):
    ident = volume(openstack, "attached")
    made = cinder.row("attachment-create", ident, "--mode", "ro")["id"]
    words = ("--initiator", "iqn.1994-05.com.example:o", "--host", "o")
    opened = openstack.json("volume attachment set", *words, made)
    assert opened["Properties"]["access_mode"] == "ro"
    openstack("volume attachment complete", made)
    assert openstack.json("volume attachment show", made)["Status"] == "attached"
    listed = openstack.json("volume attachment list", "--volume-id", ident)
    assert [row["ID"] for row in listed] == [made]
    openstack("volume attachment delete", made)
    openstack("volume delete", ident)
