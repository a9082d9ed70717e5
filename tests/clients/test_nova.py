# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Nova's own calls of Block Storage (nova.volume.cinder.API)."""

from __future__ import annotations

from lunshare.agent.api import missing_features
from tests.clients.library import Library
from tests.stands.node import connector
from tests.stands.waiting import until

IMAGES = missing_features.ACTIONS["os-reimage"].sentence
COMPLETIONS = missing_features.ACTIONS["os-migrate_volume_completion"].sentence
SERVER = "11111111-2222-3333-4444-555555555555"


def volume(nova: Library, **more: object) -> str:
    """A new volume of 1 GiB, available; its id."""
    ident = str(nova.create(1, "by nova", "d", **more)["id"])
    until(lambda: nova.get(ident)["status"] == "available", "available")
    return ident


def test_an_instance_boots_from_a_new_volume_and_leaves(nova: Library):
    ident = volume(nova, metadata={"a": "b"})
    made = nova.attachment_create(ident, SERVER)
    assert nova.get(ident)["status"] == "reserved"
    opened = nova.attachment_update(made["id"], connector("n"), mountpoint="/dev/vdb")
    info = opened["connection_info"]
    assert info["driver_volume_type"] == "iscsi"
    assert info["data"]["access_mode"] == "rw"
    nova.attachment_complete(made["id"])
    found = nova.get(ident, microversion="3.48")
    assert found["attachments"][SERVER]["mountpoint"] == "/dev/vdb"
    assert nova.attachment_get(made["id"])["connection_info"]["instance"] == SERVER
    assert [row["id"] for row in nova.attachment_get_all(volume_id=ident)] == [
        made["id"]
    ]
    assert [row["id"] for row in nova.attachment_get_all(instance_id=SERVER)] == [
        made["id"]
    ]
    nova.begin_detaching(ident)
    assert nova.get(ident)["status"] == "detaching"
    nova.roll_detaching(ident)
    nova.check_attached(nova.get(ident))
    nova.begin_detaching(ident)
    nova.attachment_delete(made["id"])
    nova.check_availability_zone(nova.get(ident))
    assert nova.get(ident)["status"] == "available"
    nova.delete(ident)


def test_the_actions_of_older_computes_work(nova: Library):
    ident = volume(nova)
    nova.reserve_volume(ident)
    nova.unreserve_volume(ident)
    nova.reserve_volume(ident)
    info = nova.initialize_connection(ident, connector("old"))
    assert info["driver_volume_type"] == "iscsi"
    nova.attach(ident, SERVER, "/dev/vdb")
    assert nova.get(ident)["attach_status"] == "attached"
    nova.begin_detaching(ident)
    nova.terminate_connection(ident, connector("old"))
    nova.detach(ident, SERVER)
    assert nova.get(ident)["status"] == "available"
    nova.delete(ident)


def test_a_live_migration_attaches_a_second_host(nova: Library):
    ident = volume(nova)
    rows = [
        nova.attachment_create(ident, SERVER, connector(name), "/dev/vdb")["id"]
        for name in ("from", "to")
    ]
    for row in rows:
        nova.attachment_complete(row)
    assert nova.get(ident)["status"] == "in-use"
    nova.attachment_delete(rows[0])
    assert nova.get(ident)["status"] == "in-use"
    nova.attachment_delete(rows[1])
    nova.delete(ident)


def test_snapshots_are_created_and_deleted(nova: Library):
    ident = volume(nova)
    copy_and_delete(nova, nova.create_snapshot(ident, "s", "d")["id"])
    copy_and_delete(nova, nova.create_snapshot_force(ident, "s", "d")["id"])
    nova.delete(ident)


def copy_and_delete(nova: Library, made: str) -> None:
    """Create a volume of this snapshot; delete both."""

    def listed() -> bool:
        return made in [row["id"] for row in nova.get_all_snapshots()]

    until(lambda: nova.get_snapshot(made)["status"] == "available", "available")
    assert listed()
    nova.delete(volume(nova, snapshot={"id": made}))
    nova.delete_snapshot(made)
    until(lambda: not listed(), "deleted")


def test_unsupported_actions_of_nova_are_refused(nova: Library):
    ident = volume(nova)
    made = nova.create_snapshot(ident, "s", "d")["id"]
    until(lambda: nova.get_snapshot(made)["status"] == "available", "available")
    nova.refused("give one of", "update_snapshot_status", made, "error")
    nova.refused(COMPLETIONS, "migrate_volume_completion", ident, SERVER)
    nova.refused(IMAGES, "reimage_volume", ident, SERVER)


def test_limits_types_and_lists_are_read(nova: Library):
    ident = volume(nova)
    assert ident in [row["id"] for row in nova.get_all()]
    assert nova.get_absolute_limits()["maxTotalVolumes"] == -1
    assert nova.get_all_volume_types() == []
    assert nova.get_volume_encryption_metadata(ident) == {"encryption_key_id": None}
    nova.delete(ident)
