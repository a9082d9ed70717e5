# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Records as the API shows them, in each microversion."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from lunshare.agent.api.views import type_views, volume_views
from lunshare.agent.model.records import (
    Attachment,
    Mode,
    Pool,
    ServiceState,
    Snapshot,
    Volume,
    VolumeType,
)
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus

MOMENT = datetime(2026, 11, 20, 23, 49, 42)
ID = "11111111-1111-1111-1111-111111111111"

ATTACHED = Attachment(
    id="a1",
    volume_id=ID,
    status=AttachStatus.ATTACHED,
    mode=Mode.RO,
    instance_uuid="i1",
    attached_host="h1",
    mountpoint="/dev/vdb",
    attach_time=MOMENT,
    connector={"initiator": "iqn"},
    connection_info={"driver_volume_type": "iscsi", "access_mode": "ro"},
)

VOLUME = Volume(
    id=ID,
    size=3,
    own_status=VolumeStatus.AVAILABLE,
    backend="gold",
    project_id="p",
    user_id="u",
    name="n",
    volume_type_id="t1",
    volume_type="shared",
    metadata={"a": "b"},
    created_at=MOMENT,
    attachments=(ATTACHED, replace(ATTACHED, id="a2", status=AttachStatus.RESERVED)),
)

AT_3_0 = {
    "id",
    "status",
    "size",
    "availability_zone",
    "created_at",
    "updated_at",
    "name",
    "description",
    "volume_type",
    "snapshot_id",
    "source_volid",
    "metadata",
    "links",
    "user_id",
    "bootable",
    "encrypted",
    "replication_status",
    "consistencygroup_id",
    "multiattach",
    "attachments",
    "migration_status",
    "os-vol-tenant-attr:tenant_id",
    "os-vol-host-attr:host",
    "os-vol-mig-status-attr:migstat",
    "os-vol-mig-status-attr:name_id",
}
LATER = {
    (3, 13): {"group_id"},
    (3, 21): {"provider_id"},
    (3, 48): {"shared_targets", "service_uuid"},
    (3, 61): {"cluster_name"},
    (3, 63): {"volume_type_id"},
    (3, 65): {"consumes_quota"},
}


def context(version: tuple[int, int]) -> volume_views.ViewContext:
    return volume_views.ViewContext(
        version, "http://n", "/p", lambda name: f"node@{name}#{name}"
    )


def shown(version: tuple[int, int] = (3, 71), **changes: Any) -> dict[str, Any]:
    return volume_views.volume(replace(VOLUME, **changes), context(version))


def test_a_volume_has_the_fields_of_3_0():
    assert set(shown((3, 0))) == AT_3_0


@pytest.mark.parametrize("since", LATER)
def test_a_later_field_exists_from_its_version_on(since: tuple[int, int]):
    before = set(shown((3, since[1] - 1)))
    assert set(shown(since)) - before == LATER[since]


def test_a_volume_shows_the_values_of_its_record():
    view = shown()
    assert view["id"] == ID
    assert view["status"] == "in-use"
    assert view["size"] == 3
    assert view["name"] == "n"
    assert view["volume_type"] == "shared"
    assert view["volume_type_id"] == "t1"
    assert view["metadata"] == {"a": "b"}
    assert view["bootable"] == "false"
    assert view["multiattach"] is False
    assert view["created_at"] == "2026-11-20T23:49:42.000000"
    assert view["updated_at"] is None
    assert view["os-vol-tenant-attr:tenant_id"] == "p"
    assert view["os-vol-host-attr:host"] == "node@gold#gold"
    assert [link["href"] for link in view["links"]] == [
        f"http://n/v3/p/volumes/{ID}",
        f"http://n/p/volumes/{ID}",
    ]


def test_a_volume_lists_only_the_hosts_that_are_attached():
    assert shown()["attachments"] == [
        {
            "id": ID,
            "attachment_id": "a1",
            "volume_id": ID,
            "server_id": "i1",
            "host_name": "h1",
            "device": "/dev/vdb",
            "attached_at": "2026-11-20T23:49:42.000000",
        }
    ]


def test_the_services_uuid_is_the_same_for_a_backend_and_differs_between_two():
    gold, gold_again, silver = (
        shown(backend=name)["service_uuid"] for name in ("gold", "gold", "silver")
    )
    assert gold == gold_again != silver


def test_a_brief_volume_has_id_name_and_links():
    assert set(volume_views.volume_brief(VOLUME, context((3, 71)))) == {
        "id",
        "name",
        "links",
    }


def test_an_attachment_in_full_has_flat_connection_info():
    assert volume_views.attachment(ATTACHED) == {
        "id": "a1",
        "status": "attached",
        "instance": "i1",
        "volume_id": ID,
        "attached_at": "2026-11-20T23:49:42.000000",
        "detached_at": None,
        "attach_mode": "ro",
        "connection_info": {"driver_volume_type": "iscsi", "access_mode": "ro"},
    }


def test_an_attachment_without_a_host_has_empty_connection_info():
    reserved = replace(ATTACHED, connection_info=None)
    assert volume_views.attachment(reserved)["connection_info"] == {}
    assert set(volume_views.attachment_brief(reserved)) == {
        "id",
        "status",
        "instance",
        "volume_id",
    }


def test_a_reason_is_shown_from_3_27_on():
    broken = Snapshot("s", ID, 3, SnapshotStatus.ERROR, "p", "u", status_reason="why")
    for version, reason in (((3, 26), None), ((3, 27), "why")):
        assert shown(version, status_reason="why").get("status_reason") == reason
        assert (
            volume_views.snapshot_shown(broken, version).get("status_reason") == reason
        )


def test_a_type_shows_is_public_under_both_keys():
    kind = VolumeType("t", "gold", is_public=False)
    assert type_views.volume_type(kind, all_specs=True) == {
        "id": "t",
        "name": "gold",
        "is_public": False,
        "description": None,
        "extra_specs": {},
        "qos_specs_id": None,
        "os-volume-type-access:is_public": False,
    }


def test_a_user_sees_only_some_extra_specs_of_a_type():
    specs = {"multiattach": "<is> True", "volume_backend_name": "secret"}
    kind = VolumeType("t", "gold", extra_specs=specs, qos_specs_id="q")
    shown = type_views.volume_type(kind, all_specs=False)
    assert shown["extra_specs"] == {"multiattach": "<is> True"}
    full = type_views.volume_type(kind, all_specs=True)
    assert (full["extra_specs"], full["qos_specs_id"]) == (specs, "q")


SERVICE = ServiceState(
    "cinder-volume", "node@gold", "nova", enabled=False, up=True, updated_at=MOMENT
)


@pytest.mark.parametrize(
    ("version", "more"),
    [((3, 0), set()), ((3, 7), {"cluster"}), ((3, 49), {"cluster", "backend_state"})],
)
def test_a_service_shows_more_in_later_versions(
    version: tuple[int, int], more: set[str]
):
    view = volume_views.service(SERVICE, version)
    assert set(view) == more | {
        "binary",
        "host",
        "zone",
        "status",
        "state",
        "updated_at",
        "disabled_reason",
        "replication_status",
        "active_backend_id",
        "frozen",
    }
    assert (view["status"], view["state"]) == ("disabled", "up")


def test_only_a_volume_service_has_a_backend_state():
    scheduler = replace(SERVICE, binary="cinder-scheduler", up=False)
    view = volume_views.service(scheduler, (3, 71))
    assert "backend_state" not in view
    assert view["state"] == "down"


def test_pools_show_their_capabilities_with_detail():
    pool = Pool("node@gold#gold", "gold", {"multiattach": True})
    assert volume_views.pools([pool], detail=False) == [{"name": "node@gold#gold"}]
    assert volume_views.pools([pool], detail=True) == [
        {"name": "node@gold#gold", "capabilities": {"multiattach": True}}
    ]
