# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume and hosts in both guests: each has the mode of its attachment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.hosts import Host
from tests.fleet_nodes.transcript import say

#: One block at the start, and the exit code of sg3-utils for "data protect".
WRITE_10, SENSE_DATA_PROTECT = "2a 00 00 00 00 00 00 00 01 00", 7
#: What one READ or WRITE of the hosts has, in blocks of 512 bytes.
BLOCKS = 128
#: 8 blocks, and what compute_host reads of them.
TEXT, SEEN = b"from the writer".ljust(4096, b"."), "from the writer"


@pytest.fixture(params=["node2-thin", "node1-thick"])
def volume(
    request: pytest.FixtureRequest, fleet: Fleet, client: Client
) -> Iterator[str]:
    made = api.create(client, request.param)
    say(f"volume {made} on {request.param}")
    yield made
    path = f"/attachments?volume_id={made}"
    for each in client("GET", path)["attachments"]:
        api.detach(client, each["id"])
    api.reaches(client, made, "available")
    api.delete(client, made)
    assert not [node for node in fleet.nodes.values() if made in node.exports()]


def test_three_hosts_of_two_nodes_have_the_mode_of_their_attachment(
    fleet: Fleet, client: Client, volume: str
) -> None:
    one, two = fleet.nodes.values()
    at = api.show(client, volume)["os-vol-host-attr:host"].partition("@")[0]
    writer, near, far = Host(one, "alpha"), Host(two, "beta"), Host(one, "gamma")
    first, info = api.attach(client, volume, writer.name, "rw")
    _, near_info = api.attach(client, volume, near.name, "ro")
    _, far_info = api.attach_at_once(client, volume, far.name, "ro")
    expected = {writer.iqn: "rw", near.iqn: "ro", far.iqn: "ro"}
    assert info["target_portal"] == f"{fleet.nodes[at].address}:3260"
    assert fleet.nodes[at].exports()[volume] == expected
    for host, given in ((writer, info), (near, near_info), (far, far_info)):
        assert host.login(given)
        say(f"{host.name}, in the guest of {host.node.name}, logs in to {at}")
    assert not Host(two, "delta").login(near_info)

    data = os.urandom(512 * BLOCKS)
    writer.write(0, data)
    digest = hashlib.sha256(data).hexdigest()
    for reader in (near, far):
        assert reader.is_read_only
        found = hashlib.sha256(reader.read(0, BLOCKS)).hexdigest()
        assert found == digest
        say(f"{reader.name} reads sha256 {found[:16]}; its WRITE: refused, 07h/27h/00h")
    assert not list(fleet.differences())

    api.detach(client, first)
    assert not writer.is_alive
    assert near.is_alive
    assert far.is_alive
    assert not writer.login(info)
    say(f"{writer.name} is detached: its session has ended, the others go on")


def test_kernel_initiator_across_the_network_may_only_read(
    fleet: Fleet, client: Client, volume: str
) -> None:
    """os-brick and the kernel of the other guest, as a compute host with Nova."""
    at = api.show(client, volume)["os-vol-host-attr:host"].partition("@")[0]
    (other,) = (node for name, node in fleet.nodes.items() if name != at)
    writer = Host(other, "alpha")
    _, info = api.attach(client, volume, writer.name, "rw")
    assert writer.login(info)
    writer.write(0, TEXT)
    # LIO ends the session of an initiator that does not answer its NOP-In for 30 s, and
    # libiscsi answers during I/O only. What follows has taken 50 s on a busy machine.
    writer.begin("rw")

    connector: dict[str, Any] = other.ask("compute", "properties", None)
    attachment = api.reserve(client, volume, "ro")
    body = {"attachment": {"connector": connector}}
    client("PUT", f"/attachments/{attachment}", body)
    client("POST", f"/attachments/{attachment}/action", {"os-complete": None})
    given = api.info_of(client, attachment)
    path = other.ask("compute", "connect", given)
    try:
        assert other.ask("compute", "read", path) == SEEN
        write = ["sg_raw", "-R", "-s", "512", "-i", "/dev/zero", path]
        code, text = other.ask("run", [*write, *WRITE_10.split()])
        assert "Write protected" in text, text
        assert code == SENSE_DATA_PROTECT
    finally:
        other.ask("compute", "disconnect", given)
    say(f"{other.name}'s own initiator sends a WRITE past its kernel: Write protected")
    api.detach(client, attachment)
    assert writer.stop() > 0
    assert writer.read(0, 8) == TEXT
    assert fleet.nodes[at].exports()[volume] == {writer.iqn: "rw"}
    writer.leave()
