# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the node does not have: the clients show the sentence that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.agent.api import missing_features
from tests.clients.command import Command
from tests.clients.library import Library
from tests.clients.node import HOST
from tests.stands.waiting import until

IDENT = "22222222-3333-4444-5555-666666666666"
SERVICE = f"{HOST}@first"
BACKUPS = missing_features.PATHS["/v3/backups"].sentence
GROUPS = missing_features.PATHS["/v3/groups"].sentence
CONSISTENCY = missing_features.PATHS["/v3/consistencygroups"].sentence
IMAGES = missing_features.ACTIONS["os-reimage"].sentence
COMPLETIONS = missing_features.ACTIONS["os-migrate_volume_completion"].sentence
CLUSTERS = f"cluster {IDENT} could not be found"
CREATING = "give one of"
FAILOVER = "is not replicated, so it cannot fail over"

#: Each line is a command of cinder; VOLUME, TYPE and SNAPSHOT exist, ID does not.
CINDER = {
    BACKUPS: """
        backup-create VOLUME
        backup-delete ID
        backup-export ID
        backup-import service url
        backup-list
        backup-reset-state ID
        backup-restore ID
        backup-show ID
        backup-update --name n ID
    """,
    GROUPS: """
        group-create ID TYPE
        group-create-from-src --source-group ID
        group-delete ID
        group-disable-replication ID
        group-enable-replication ID
        group-failover-replication ID
        group-list
        group-list-replication-targets ID
        group-show ID
        group-snapshot-create ID
        group-snapshot-delete ID
        group-snapshot-list
        group-snapshot-show ID
        group-specs-list
        group-type-create n
        group-type-default
        group-type-delete ID
        group-type-key ID set a=b
        group-type-list
        group-type-show ID
        group-type-update --name n ID
        group-update --name n ID
    """,
    CONSISTENCY: """
        cgsnapshot-create ID
        cgsnapshot-delete ID
        cgsnapshot-list
        cgsnapshot-show ID
        consisgroup-create TYPE
        consisgroup-create-from-src --source-cg ID
        consisgroup-delete ID
        consisgroup-list
        consisgroup-show ID
        consisgroup-update --name n ID
    """,
    IMAGES: """
        reimage VOLUME ID
        upload-to-image VOLUME n
    """,
    CLUSTERS: """
        cluster-disable ID
        cluster-enable ID
        cluster-show ID
    """,
    FAILOVER: "failover-host SERVICE",
}


#: What cinder says itself of an id that the node does not know.
UNKNOWN = f"with a name or ID of '{IDENT}' exists"


def test_cinder_shows_the_missing_feature(cinder: Command):
    ident = cinder.row("create", "1")["id"]
    until(lambda: cinder.row("show", ident)["status"] == "available", "available")
    names = {
        "VOLUME": ident,
        "TYPE": cinder.rows("type-create", "kind")[0]["ID"],
        "ID": IDENT,
        "SERVICE": SERVICE,
    }
    for sentence, lines in CINDER.items():
        for line in lines.strip().splitlines():
            command, *words = (names.get(word, word) for word in line.split())
            cinder.refused((sentence, UNKNOWN), command, *words)
    create = {BACKUPS: "--backup-id", IMAGES: "--image-id"}
    create |= {CONSISTENCY: "--consisgroup-id", GROUPS: "--group-id"}
    for sentence, option in create.items():
        cinder.refused((sentence,), f"create {option}", IDENT, "1")


#: Each line is a command of openstack, and its words after two spaces.
OPENSTACK = {
    BACKUPS: """
        volume backup create  VOLUME
        volume backup list
        volume backup record import  service url
    """,
    GROUPS: """
        volume group create  --volume-group-type ID --volume-type ID
        volume group list
        volume group snapshot list
        volume group type create  n
        volume group type list
    """,
    CONSISTENCY: """
        consistency group list
        consistency group snapshot list
    """,
    CLUSTERS: """
        block storage cluster set --enable  ID
        block storage cluster show  ID
    """,
    FAILOVER: "volume host failover  --volume-backend b SERVICE",
}


def test_openstack_shows_the_missing_feature(openstack: Command):
    made = openstack.json("volume create", "--size", "1", "volume")
    names = {"VOLUME": made["id"], "ID": IDENT, "SERVICE": SERVICE}
    for sentence, lines in OPENSTACK.items():
        for line in lines.strip().splitlines():
            command, _, words = line.strip().partition("  ")
            given = (names.get(word, word) for word in words.split())
            openstack.refused((sentence,), command, *given)


#: Methods of the SDK, and their arguments.
SDK: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    BACKUPS: {
        "backups": {},
        "create_backup": {"volume_id": IDENT},
        "get_backup": {"backup": IDENT},
        "find_backup": {"name_or_id": "n"},
        "restore_backup": {"backup": IDENT, "volume": IDENT},
    },
    GROUPS: {
        "groups": {},
        "create_group": {"name": "n"},
        "get_group": {"group": IDENT},
        "group_types": {},
        "create_group_type": {"name": "n"},
        "group_snapshots": {},
        "create_group_snapshot": {"group_id": IDENT},
    },
    CONSISTENCY: {
        "consistency_groups": {},
        "create_consistency_group": {"name": "n"},
        "consistency_group_snapshots": {},
    },
    IMAGES: {"upload_volume_to_image": {"volume": "VOLUME", "image_name": "n"}},
    CLUSTERS: {"get_cluster": {"cluster": IDENT}},
    COMPLETIONS: {
        "complete_volume_extend": {"volume": "VOLUME"},
        "complete_volume_migration": {"volume": "VOLUME", "new_volume": IDENT},
    },
    CREATING: {"set_snapshot_status": {"snapshot": "SNAPSHOT", "status": "error"}},
}


def test_the_sdk_shows_the_missing_feature(sdk: Library):
    ident = sdk.create_volume(size=1)["id"]
    until(lambda: sdk.get_volume(ident)["status"] == "available", "available")
    taken = sdk.create_snapshot(volume_id=ident)["id"]
    until(lambda: sdk.get_snapshot(taken)["status"] == "available", "available")
    names = {
        "VOLUME": ident,
        "SNAPSHOT": taken,
        "TYPE": sdk.create_type(name="kind-of-sdk")["id"],
    }
    for sentence, methods in SDK.items():
        for method, asked in methods.items():
            given = {
                key: names.get(value, value) if isinstance(value, str) else value
                for key, value in asked.items()
            }
            sdk.refused(sentence, method, **given)
    service = {"found": ("find_service", ("cinder-volume",), {"host": SERVICE})}
    sdk.refused(FAILOVER, "failover_service", service, backend_id="b")
