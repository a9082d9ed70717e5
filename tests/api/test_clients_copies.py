# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, copies and moves by python-cinderclient and python-openstackclient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cinderclient import exceptions

from tests.api import clients
from tests.stands.node import connector
from tests.stands.waiting import until

pytestmark = pytest.mark.daemon

SERVER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with two backends."""
    path = tmp_path_factory.mktemp("daemon")
    with clients.daemon(path, ["here", "there"]) as url:
        yield url


@pytest.fixture(scope="module")
def cinder(endpoint: str) -> Any:
    """cinderclient as a library."""
    made = clients.library(endpoint)
    for name in ("here", "there"):
        made.volume_types.create(name).set_keys({"volume_backend_name": name})
    return made


def host(cinder: Any, backend: str) -> str:
    (found,) = [p.name for p in cinder.pools.list() if p.name.endswith(f"#{backend}")]
    return str(found)


@pytest.fixture(scope="module")
def osc(endpoint: str, cinder: Any) -> dict[str, Any]:
    """One round of commands of openstackclient."""
    commands = {
        "source": "volume create --size 1 --type here o-source",
        "snapshot": "volume snapshot create --volume o-source --property a=b o-snap",
        "snapshots": "volume snapshot list --long --volume o-source",
        "show snapshot": "volume snapshot show o-snap",
        "rename snapshot": "volume snapshot set --name o-snap-2 o-snap",
        "copy": "volume create --snapshot o-snap-2 o-copy",
        "clone": "volume create --source o-source --size 2 o-clone",
        "revert": "volume revert o-snap-2",
        "end snapshot": "volume snapshot delete o-snap-2",
        "no snapshots": "volume snapshot list",
        "extend": "volume set --size 3 o-source",
        "retype": "volume set --type there --migration-policy on-demand o-source",
        "moved": "volume show o-source",
        "migrate": f"volume migrate --host {host(cinder, 'here')} o-free",
        "migrated": "volume show o-free",
    }
    free = cinder.volumes.create(1, name="o-free", volume_type="there")
    cinder.volumes.retype(free, cinder.volume_types.create("any").id, "never")
    silent = {
        "rename snapshot",
        "revert",
        "end snapshot",
        "extend",
        "retype",
        "migrate",
    }
    return clients.asked(endpoint, commands, silent)


def test_openstackclient_creates_and_shows_a_snapshot(osc: dict[str, Any]):
    made = osc["snapshot"]
    assert made["volume_id"] == osc["source"]["id"]
    assert osc["show snapshot"]["id"] == made["id"]
    assert osc["show snapshot"]["properties"] == {"a": "b"}
    (row,) = osc["snapshots"]
    assert (row["ID"], row["Status"], row["Size"]) == (made["id"], "available", 1)
    assert osc["no snapshots"] == []


def test_openstackclient_creates_volumes_from_snapshot_and_volume(osc: dict[str, Any]):
    assert osc["copy"]["snapshot_id"] == osc["snapshot"]["id"]
    assert osc["copy"]["size"] == 1
    assert osc["clone"]["source_volid"] == osc["source"]["id"]
    assert osc["clone"]["size"] == 2


def test_openstackclient_extends_retypes_and_migrates(osc: dict[str, Any]):
    moved = osc["moved"]
    assert (moved["size"], moved["type"]) == (3, "there")
    assert moved["os-vol-host-attr:host"].endswith("@there#there")
    assert osc["migrated"]["os-vol-host-attr:host"].endswith("@here#here")
    assert osc["migrated"]["os-vol-mig-status-attr:migstat"] == "success"


def test_cinderclient_creates_updates_and_deletes_a_snapshot(cinder: Any):
    source = cinder.volumes.create(1, name="c-source", metadata={"a": "b"})
    row = cinder.attachments.create(source.id, connector("c"), SERVER, "rw")
    cinder.attachments.complete(row["id"])
    snapshot = cinder.volume_snapshots.create(
        source.id, name="c-snap", metadata={"k": "v"}
    )
    assert cinder.volume_snapshots.get(snapshot.id).status == "available"
    assert snapshot.metadata == {"k": "v"}
    cinder.volume_snapshots.update(snapshot, name="c-snap-2")
    opts = {"volume_id": source.id}
    (found,) = cinder.volume_snapshots.list(search_opts=opts, sort="name:asc")
    assert found.name == "c-snap-2"
    _, count = cinder.volume_snapshots.list(search_opts={**opts, "with_count": True})
    assert count == 1
    copy = cinder.volumes.create(None, snapshot_id=snapshot.id)
    assert (copy.size, copy.snapshot_id) == (1, snapshot.id)
    with pytest.raises(exceptions.BadRequest, match="size"):
        cinder.volumes.create(1, source_volid=cinder.volumes.create(2).id)
    cinder.volumes.extend(source, 2)
    grown = cinder.volumes.get(source.id)
    assert (grown.size, grown.status) == (2, "in-use")
    cinder.attachments.delete(row["id"])
    with pytest.raises(exceptions.BadRequest, match="1 snapshots"):
        cinder.volumes.delete(source)
    cinder.volumes.delete(source, cascade=True)
    until(lambda: source.id not in {v.id for v in cinder.volumes.list()})
    with pytest.raises(exceptions.NotFound):
        cinder.volume_snapshots.get(snapshot.id)


def test_cinderclient_reverts_to_a_snapshot(cinder: Any):
    source = cinder.volumes.create(1)
    snapshot = cinder.volume_snapshots.create(source.id)
    cinder.volumes.revert_to_snapshot(source, snapshot)
    assert cinder.volumes.get(source.id).status == "available"
    cinder.volume_snapshots.delete(snapshot)


def test_cinderclient_unmanages_and_manages_a_volume(cinder: Any):
    source = cinder.volumes.create(1, volume_type="here", name="c-unmanaged")
    cinder.volumes.unmanage(source)
    place = host(cinder, "here")
    (there,) = cinder.volumes.list_manageable(place, detailed=True)
    assert (there.size, there.safe_to_manage) == (1, True)
    again = cinder.volumes.manage(place, there.reference, name="c-managed")
    assert (again.status, again.size) == ("available", 1)
    assert cinder.volumes.list_manageable(place, detailed=False) == []
    cinder.volumes.retype(again, "there", "on-demand")
    moved = cinder.volumes.get(again.id)
    assert moved.volume_type == "there"
