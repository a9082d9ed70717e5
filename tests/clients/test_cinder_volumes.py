# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The command cinder: volumes and what belongs to them."""

from __future__ import annotations

from tests.clients.command import Command
from tests.clients.node import UNMANAGED, host
from tests.stands.waiting import until


def volume(cinder: Command, *words: str) -> str:
    """A new volume of 1 GiB, available; its id."""
    ident = cinder.row("create", "1", *words)["id"]
    reaches(cinder, ident, "available")
    return ident


def reaches(cinder: Command, ident: str, status: str) -> None:
    until(lambda: cinder.row("show", ident)["status"] == status, status)


def test_volumes_are_created_listed_and_deleted(cinder: Command):
    ident = volume(cinder, "--name", "one", "--metadata", "a=b", "--description", "d")
    shown = cinder.row("show", "one")
    assert (shown["id"], shown["size"], shown["metadata"]) == (ident, "1", "a : b")
    assert ident in [row["ID"] for row in cinder.rows("list", "--name", "one")]
    cinder("rename", "one", "two", "--description", "other")
    assert cinder.row("show", "two")["description"] == "other"
    cinder("extend", "two", "2")
    until(lambda: cinder.row("show", "two")["size"] == "2", "extended")
    assert cinder.row("summary")["total_count"] == "1"
    cinder("delete", "two")
    until(lambda: not cinder("list", "--name", "two").count(ident), "deleted")


def test_metadata_flags_and_image_metadata_change(cinder: Command):
    ident = volume(cinder, "--name", "flags")
    cinder("metadata", ident, "set", "a=b", "c=d")
    cinder("metadata", ident, "unset", "a=b")
    assert cinder.row("metadata-show", ident)["c"] == "d"
    assert cinder.row("metadata-update-all", ident, "e=f")["e"] == "f"
    cinder("image-metadata", ident, "set", "k=v")
    assert cinder.row("image-metadata-show", ident)["k"] == "v"
    cinder("image-metadata", ident, "unset", "k=v")
    cinder("set-bootable", ident, "True")
    assert cinder.row("show", ident)["bootable"] == "true"
    cinder("readonly-mode-update", ident, "True")
    assert "readonly : True" in cinder.row("show", ident)["metadata"]
    cinder("delete", ident)


def test_a_status_is_reset_and_a_volume_deleted_by_force(cinder: Command):
    ident = volume(cinder)
    cinder("reset-state", "--state", "error", ident)
    assert cinder.row("show", ident)["status"] == "error"
    cinder("force-delete", ident)


def test_a_volume_changes_its_type_and_its_backend(cinder: Command):
    cinder("type-create", "there")
    cinder("type-key", "there", "set", "volume_backend_name=second")
    ident = volume(cinder)
    cinder("retype", "--migration-policy", "on-demand", ident, "there")
    until(
        lambda: cinder.row("show", ident)["os-vol-host-attr:host"] == host("second"),
        "retyped",
    )
    reaches(cinder, ident, "available")
    other = volume(cinder)
    at = cinder.row("show", other)["os-vol-host-attr:host"]
    free = host("first" if at == host("second") else "second")
    cinder("migrate", other, free)
    until(
        lambda: cinder.row("show", other)["os-vol-host-attr:host"] == free, "migrated"
    )
    reaches(cinder, other, "available")
    cinder("delete", ident, other)


def test_snapshots_are_created_copied_and_reverted(cinder: Command):
    ident = volume(cinder, "--name", "source")
    made = cinder.row("snapshot-create", "--name", "s", "--metadata", "a=b", "source")
    until(lambda: cinder.row("snapshot-show", "s")["status"] == "available", "s")
    listed = cinder.rows("snapshot-list", "--volume-id", ident)
    assert [row["ID"] for row in listed] == [made["id"]]
    cinder("snapshot-rename", "s", "t", "--description", "d")
    cinder("snapshot-metadata", "t", "set", "c=d")
    assert cinder.row("snapshot-metadata-show", "t")["c"] == "d"
    assert "'e': 'f'" in cinder("snapshot-metadata-update-all", "t", "e=f")
    copies = [
        volume(cinder, "--snapshot-id", made["id"]),
        volume(cinder, "--source-volid", ident),
    ]
    cinder("revert-to-snapshot", "t")
    reaches(cinder, ident, "available")
    cinder("snapshot-reset-state", "--state", "error", "t")
    assert cinder.row("snapshot-show", "t")["status"] == "error"
    cinder("snapshot-reset-state", "--state", "available", "t")
    cinder("snapshot-delete", "t")
    until(lambda: made["id"] not in cinder("snapshot-list"), "deleted")
    cinder("delete", *copies, ident)


def test_disks_are_managed(cinder: Command):
    ident = volume(cinder)
    at = cinder.row("show", ident)["os-vol-host-attr:host"]
    cinder("unmanage", ident)
    until(lambda: ident not in cinder("list"), "unmanaged")
    assert UNMANAGED % ident in cinder("manageable-list", at)
    managed = cinder.row("manage", "--name", "m", at, UNMANAGED % ident)["id"]
    reaches(cinder, managed, "available")
    cinder("delete", managed)


def test_snapshots_are_managed(cinder: Command):
    ident = volume(cinder)
    at = cinder.row("show", ident)["os-vol-host-attr:host"]
    made = cinder.row("snapshot-create", ident)["id"]
    available(cinder, made)
    cinder("snapshot-unmanage", made)
    until(lambda: made not in cinder("snapshot-list"), "unmanaged")
    assert UNMANAGED % made in cinder("snapshot-manageable-list", at)
    managed = cinder.row("snapshot-manage", ident, UNMANAGED % made)["id"]
    available(cinder, managed)
    cinder("snapshot-delete", managed)
    until(lambda: managed not in cinder("snapshot-list"), "deleted")
    cinder("delete", ident)


def available(cinder: Command, snapshot: str) -> None:
    until(
        lambda: cinder.row("snapshot-show", snapshot)["status"] == "available",
        "available",
    )


def test_a_volume_is_given_to_another_project(cinder: Command):
    ident = volume(cinder, "--name", "given")
    kept = cinder.row("transfer-create", "--name", "no", "given")["id"]
    assert cinder.row("transfer-show", kept)["volume_id"] == ident
    assert [row["ID"] for row in cinder.rows("transfer-list")] == [kept]
    cinder("transfer-delete", kept)
    made = cinder.row("transfer-create", "given")
    accepted = cinder.row("transfer-accept", made["id"], made["auth_key"])
    assert accepted["volume_id"] == ident
    cinder("delete", ident)


def test_a_host_attaches_and_detaches(cinder: Command):
    ident = volume(cinder)
    server = "11111111-2222-3333-4444-555555555555"
    words = ("--initiator", "iqn.1994-05.com.example:c", "--host", "c")
    made = cinder.row("attachment-create", ident, server, "--mode", "ro")
    assert cinder.row("attachment-show", made["id"])["status"] == "reserved"
    opened = cinder.row("attachment-update", *words, "--ip", "127.0.0.1", made["id"])
    assert (opened["access_mode"], opened["auth_method"]) == ("ro", "CHAP")
    cinder("attachment-complete", made["id"])
    assert cinder.row("show", ident)["status"] == "in-use"
    listed = cinder.rows("attachment-list", "--volume-id", ident)
    assert [row["ID"] for row in listed] == [made["id"]]
    cinder("attachment-delete", made["id"])
    assert cinder.row("show", ident)["status"] == "available"
    cinder("delete", ident)
