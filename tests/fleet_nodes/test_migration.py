# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume moves to the other node: cinder-volume copies it over iSCSI, as root."""

from __future__ import annotations

import os
import time

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.api import SHARED
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.hosts import Host
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until

BLOCKS = 128
#: The last blocks of a volume of 1 GiB.
AT = (1 << 30) // 512 - BLOCKS


def test_volume_has_its_bytes_after_a_migration_to_the_other_node(
    fleet: Fleet, client: Client
) -> None:
    anywhere = api.volume_type(client, "shared", SHARED)
    volume = api.create(client, "node1-thin", volume_type=anywhere)
    data = os.urandom(512 * BLOCKS)
    origin = _host(client, volume).partition("@")[0]
    (target,) = fleet.nodes.keys() - {origin}
    writer, reader = (Host(fleet.nodes[origin], name) for name in ("alpha", "beta"))
    attachment, info = api.attach(client, volume, writer.name, "rw")
    assert writer.login(info)
    writer.write(AT, data)
    api.detach(client, attachment)
    api.reaches(client, volume, "available")

    began, to = time.monotonic(), f"{target}@thick#{target}-thick"
    api.act(client, volume, "os-migrate_volume", {"host": to})
    until(
        lambda: _migration(client, volume) in {"success", "error"}, "it has moved", 300
    )
    assert _migration(client, volume) == "success"
    say(f"a volume moves from {origin} to {to}: {time.monotonic() - began:.0f} s")
    assert _host(client, volume) == to
    until(lambda: not fleet.nodes[origin].disks(), "Cinder deletes the source", 60)

    attachment, info = api.attach(client, volume, reader.name, "ro")
    assert info["target_portal"] == f"{fleet.nodes[target].address}:3260"
    assert reader.login(info)
    assert reader.read(AT, BLOCKS) == data
    assert reader.is_read_only
    assert not list(fleet.differences())
    say(f"a host has its bytes there, and may only read: {len(data)} bytes compared")
    api.detach(client, attachment)
    api.reaches(client, volume, "available")
    api.delete(client, volume)
    assert not fleet.nodes[target].disks()


def _host(client: Client, volume: str) -> str:
    return str(api.show(client, volume)["os-vol-host-attr:host"])


def _migration(client: Client, volume: str) -> str:
    return str(api.show(client, volume)["migration_status"])
