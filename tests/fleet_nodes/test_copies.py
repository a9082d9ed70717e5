# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What Cinder itself copies: images of Glance, and cinder-backup's files.

The bytes are compared over iSCSI, by a host that has the volume attached.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.glance import IMAGE_BYTES
from tests.fleet_nodes.hosts import Host
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until

GIB_BLOCKS = (1 << 30) // 512
AT_ONCE = 1024
DATA = os.urandom(512 * AT_ONCE)
#: The last blocks of a volume of 1 GiB.
END = GIB_BLOCKS - AT_ONCE
_COPY = 300.0


@pytest.mark.parametrize("format_", ["raw", "qcow2"])
def test_image_becomes_a_volume_and_an_image_again(
    format_: str, fleet: Fleet, client: Client
) -> None:
    glance, token = fleet.controller.glance, fleet.controller.keystone.token
    image = glance.image(token)
    expected = glance.data(image, token)
    assert len(expected) == IMAGE_BYTES
    began = time.monotonic()
    first = api.create(client, "node1-thin", imageRef=image)
    with attached(fleet, client, first, "node1") as host:
        assert everything(host, IMAGE_BYTES // 512) == expected
        assert not any(host.read(END, AT_ONCE))
        host.write(END, DATA)

    uploaded = upload(client, first, format_)
    until(lambda: glance.status(uploaded, token) == "active", "it is uploaded", _COPY)
    api.reaches(client, first, "available")
    # Of the other node, and thick: old bytes of its extents must not be seen.
    second = api.create(client, "node2-thick", imageRef=uploaded)
    with attached(fleet, client, second, "node2") as host:
        assert everything(host, IMAGE_BYTES // 512) == expected
        assert not any(host.read(GIB_BLOCKS // 2, AT_ONCE))
        assert host.read(END, AT_ONCE) == DATA
    say(f"an image is a volume, its upload ({format_}) a volume of the other node:")
    say(f"  {IMAGE_BYTES >> 20} MiB compared, {time.monotonic() - began:.0f} s")
    for volume in (first, second):
        api.delete(client, volume)
    glance.delete(uploaded, token)


def test_backup_of_a_volume_in_use_is_restored_on_the_other_node(
    fleet: Fleet, client: Client
) -> None:
    volume = api.create(client, "node1-thin")
    _, info = api.attach(client, volume, "alpha", "rw")
    writer = Host(fleet.nodes["node1"], "alpha")
    assert writer.login(info)
    writer.write(END, DATA)
    writer.begin("rw")
    snapshot = api.snapshot(client, volume)
    began = time.monotonic()
    backups = [backup(client, volume), backup(client, volume, snapshot_id=snapshot)]
    assert writer.stop() > 0
    writer.write(END, bytes(len(DATA)))  # is in no backup

    for each in backups:
        restored = api.create(client, "node2-thick")
        where = {"restore": {"volume_id": restored}}
        client("POST", f"/backups/{each}/restore", where)
        available(client, each)
        api.reaches(client, restored, "available", seconds=_COPY)
        with attached(fleet, client, restored, "node2") as host:
            assert host.read(END, AT_ONCE) == DATA
        api.delete(client, restored)
        client("DELETE", f"/backups/{each}")
        api.gone(client, f"/backups/{each}")
    say("a backup of a volume in use, and one of its snapshot, are restored on the")
    say(f"  other node: {time.monotonic() - began:.0f} s for both")
    client("DELETE", f"/snapshots/{snapshot}")
    api.gone(client, f"/snapshots/{snapshot}")
    for each in client("GET", f"/attachments?volume_id={volume}")["attachments"]:
        api.detach(client, each["id"])
    api.reaches(client, volume, "available")
    api.delete(client, volume)
    assert not list(fleet.differences())


@contextmanager
def attached(fleet: Fleet, client: Client, volume: str, node: str) -> Iterator[Host]:
    """A host of a node with the volume rw, until the block ends."""
    host = Host(fleet.nodes[node], "beta")
    attachment, info = api.attach(client, volume, host.name, "rw")
    assert host.login(info)
    yield host
    api.detach(client, attachment)
    api.reaches(client, volume, "available")


def everything(host: Host, blocks: int) -> bytes:
    """The first blocks of a volume."""
    return b"".join(host.read(at, AT_ONCE) for at in range(0, blocks, AT_ONCE))


def upload(client: Client, volume: str, format_: str) -> str:
    """Begin to copy a volume to a new image; its id."""
    asked = {"image_name": "uploaded", "disk_format": format_}
    made = api.act(
        client, volume, "os-volume_upload_image", {**asked, "container_format": "bare"}
    )
    return str(made["os-volume_upload_image"]["image_id"])


def backup(client: Client, volume: str, **more: str) -> str:
    """Create a backup, also while hosts use the volume; its id."""
    body = {"volume_id": volume, "force": True, **more}
    made = client("POST", "/backups", {"backup": body})["backup"]["id"]
    available(client, made)
    return str(made)


def available(client: Client, backup_id: str) -> None:
    """Wait until cinder-backup is done with a backup."""

    def done() -> bool:
        found = client("GET", f"/backups/{backup_id}")["backup"]
        assert found["status"] != "error", found["fail_reason"]
        return bool(found["status"] == "available")

    until(done, f"backup {backup_id} is available", _COPY)
