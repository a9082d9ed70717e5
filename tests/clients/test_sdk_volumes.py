# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""openstacksdk: volumes and what belongs to them."""

from __future__ import annotations

from tests.clients.library import Library
from tests.clients.node import UNMANAGED, host
from tests.stands.node import connector
from tests.stands.waiting import until

SERVER = "11111111-2222-3333-4444-555555555555"


def volume(sdk: Library, **more: object) -> str:
    """A new volume of 1 GiB, available; its id."""
    ident = str(sdk.create_volume(size=1, **more)["id"])
    reaches(sdk, ident, "available")
    return ident


def reaches(sdk: Library, ident: str, status: str) -> None:
    until(lambda: sdk.get_volume(ident)["status"] == status, status)


def snapshot(sdk: Library, ident: str) -> str:
    """A new snapshot of the volume, available; its id."""
    made = str(sdk.create_snapshot(volume_id=ident, name="s")["id"])
    until(lambda: sdk.get_snapshot(made)["status"] == "available", "available")
    return made


def test_volumes_are_created_listed_and_deleted(sdk: Library):
    ident = volume(sdk, name="one", description="d")
    assert sdk.find_volume("one")["id"] == ident
    assert ident in [row["id"] for row in sdk.volumes(name="one")]
    sdk.update_volume(ident, name="two")
    sdk.set_volume_metadata(ident, a="b", c="d")
    sdk.delete_volume_metadata(ident, ["a"])
    assert sdk.get_volume_metadata(ident)["metadata"] == {"c": "d"}
    assert sdk.fetch_volume_metadata(ident)["metadata"] == {"c": "d"}
    sdk.extend_volume(ident, 2)
    until(lambda: sdk.get_volume(ident)["size"] == 2, "extended")
    assert sdk.summary(False)["total_count"] == 1
    sdk.delete_volume(ident)
    until(lambda: sdk.find_volume("two") is None, "deleted")


def test_flags_and_image_metadata_change(sdk: Library):
    ident = volume(sdk)
    sdk.set_volume_readonly(ident)
    assert sdk.get_volume(ident)["metadata"] == {"readonly": "True"}
    sdk.set_volume_bootable_status(ident, True)
    assert sdk.get_volume(ident)["is_bootable"] is True
    sdk.set_volume_image_metadata(ident, k="v")
    assert sdk.get_volume(ident)["volume_image_metadata"] == {"k": "v"}
    sdk.delete_volume_image_metadata(ident, ["k"])
    sdk.reset_volume_status(ident, "error")
    assert sdk.get_volume(ident)["status"] == "error"
    sdk.delete_volume(ident, force=True)


def test_a_volume_changes_its_type_and_its_backend(sdk: Library):
    kind = sdk.create_type(name="there")["id"]
    sdk.update_type_extra_specs(kind, volume_backend_name="second")
    ident = volume(sdk)
    sdk.retype_volume(ident, "there", migration_policy="on-demand")
    until(lambda: sdk.get_volume(ident)["host"] == host("second"), "retyped")
    reaches(sdk, ident, "available")
    other = volume(sdk)
    (free,) = {host("first"), host("second")} - {sdk.get_volume(other)["host"]}
    sdk.migrate_volume(other, host=free)
    until(lambda: sdk.get_volume(other)["host"] == free, "migrated")
    reaches(sdk, other, "available")
    for each in (ident, other):
        sdk.delete_volume(each)


def test_snapshots_are_created_copied_and_reverted(sdk: Library):
    ident = volume(sdk)
    made = snapshot(sdk, ident)
    assert sdk.find_snapshot("s")["id"] == made
    assert [row["id"] for row in sdk.snapshots(volume_id=ident)] == [made]
    sdk.update_snapshot(made, name="t")
    sdk.set_snapshot_metadata(made, a="b", c="d")
    sdk.delete_snapshot_metadata(made, ["a"])
    assert sdk.get_snapshot_metadata(made)["metadata"] == {"c": "d"}
    assert sdk.fetch_snapshot_metadata(made)["metadata"] == {"c": "d"}
    copies = [volume(sdk, snapshot_id=made), volume(sdk, source_volid=ident)]
    sdk.revert_volume_to_snapshot(ident, made)
    reaches(sdk, ident, "available")
    sdk.reset_snapshot_status(made, "error")
    assert sdk.get_snapshot(made)["status"] == "error"
    sdk.reset_snapshot(made, "available")
    sdk.delete_snapshot(made)
    until(lambda: not sdk.snapshots(), "deleted")
    for each in (*copies, ident):
        sdk.delete_volume(each)


def test_disks_are_managed(sdk: Library):
    ident = volume(sdk)
    at = sdk.get_volume(ident)["host"]
    sdk.unmanage_volume(ident)
    until(lambda: sdk.find_volume(ident) is None, "unmanaged")
    reference = {"source-name": UNMANAGED % ident}
    listed = sdk.manageable_volumes(host=at, details=True)
    assert reference in [row["reference"] for row in listed]
    made = sdk.manage_volume(host=at, ref=reference, name="m")["id"]
    reaches(sdk, made, "available")
    sdk.delete_volume(made)


def test_snapshots_are_managed(sdk: Library):
    ident = volume(sdk)
    at = sdk.get_volume(ident)["host"]
    made = snapshot(sdk, ident)
    sdk.unmanage_snapshot(made)
    until(lambda: not sdk.snapshots(), "unmanaged")
    reference = {"source-name": UNMANAGED % made}
    listed = sdk.manageable_snapshots(host=at)
    assert reference in [row["reference"] for row in listed]
    managed = sdk.manage_snapshot(volume_id=ident, ref=reference)["id"]
    until(lambda: sdk.get_snapshot(managed)["status"] == "available", "available")
    sdk.delete_snapshot(managed)
    until(lambda: not sdk.snapshots(), "deleted")
    sdk.delete_volume(ident)


def test_a_volume_is_given_to_another_project(sdk: Library):
    ident = volume(sdk)
    kept = sdk.create_transfer(volume_id=ident, name="no")["id"]
    assert sdk.get_transfer(kept)["volume_id"] == ident
    assert sdk.find_transfer("no")["id"] == kept
    assert [row["id"] for row in sdk.transfers()] == [kept]
    sdk.delete_transfer(kept)
    made = sdk.create_transfer(volume_id=ident)
    assert sdk.accept_transfer(made["id"], made["auth_key"])["volume_id"] == ident
    sdk.delete_volume(ident)


def test_a_host_attaches_and_detaches(sdk: Library):
    ident = volume(sdk)
    made = sdk.create_attachment(ident, connector=None, instance=SERVER, mode="ro")
    row = made["id"]
    opened = sdk.update_attachment(row, connector=connector("s"))
    assert opened["connection_info"]["access_mode"] == "ro"
    sdk.complete_attachment(row)
    assert sdk.get_attachment(row)["status"] == "attached"
    assert [each["id"] for each in sdk.attachments(volume_id=ident)] == [row]
    sdk.delete_attachment(row)
    assert sdk.get_volume(ident)["status"] == "available"
    sdk.delete_volume(ident)


def test_the_actions_of_older_computes_work(sdk: Library):
    ident = volume(sdk)
    sdk.reserve_volume(ident)
    sdk.unreserve_volume(ident)
    sdk.reserve_volume(ident)
    info = sdk.init_volume_attachment(ident, connector("old"))
    assert info["driver_volume_type"] == "iscsi"
    sdk.attach_volume(ident, "/dev/vdb", instance=SERVER)
    sdk.begin_volume_detaching(ident)
    sdk.abort_volume_detaching(ident)
    (attached,) = sdk.get_volume(ident)["attachments"]
    sdk.terminate_volume_attachment(ident, connector("old"))
    sdk.detach_volume(ident, attached["attachment_id"])
    assert sdk.get_volume(ident)["status"] == "available"
    sdk.delete_volume(ident)
