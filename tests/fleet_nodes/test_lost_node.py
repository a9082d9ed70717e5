# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The guest of a node ends: the other node goes on, and the API says what is down."""

from __future__ import annotations

import time

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet.api import SHARED
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.hosts import Host
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until

DOWN = {"node1@thin": "down", "node1@thick": "down"}
UP = {"node2@thin": "up", "node2@thick": "up"}


def test_other_node_continues_when_one_is_lost(fleet: Fleet, client: Client) -> None:
    lost, left = fleet.nodes.values()
    volumes = [api.create(client, f"{node.name}-thin") for node in (lost, left)]
    hosts = [Host(left, "alpha"), Host(left, "beta")]
    for host, volume in zip(hosts, volumes, strict=True):
        _, info = api.attach(client, volume, host.name, "rw")
        assert host.login(info)
    of_lost, of_left = hosts
    of_left.begin("rw")

    lost.kill()
    began = time.monotonic()
    del fleet.nodes[lost.name]
    assert not of_lost.is_alive
    until(lambda: fleet.controller.services() == DOWN | UP, "the API says it", 120)
    say(f"node1 is lost; {time.monotonic() - began:.0f} s later: {DOWN | UP}")
    of_left.wait_for_progress()

    shared = api.volume_type(client, "shared", SHARED)
    for _ in range(4):
        made = api.create(client, "node2-thin", volume_type=shared)
        assert api.show(client, made)["os-vol-host-attr:host"].startswith("node2@")
    attachment, info = api.attach(client, made, "gamma", "ro")
    third = Host(left, "gamma")
    assert third.login(info)
    assert third.is_read_only
    api.detach(client, attachment)
    assert not third.is_alive
    say("four volumes more, one attached and detached: all on node2")

    reserved = api.reserve(client, volumes[0], "ro")
    with pytest.raises(RuntimeError, match=r": 50[034] "):
        api.connect(client, reserved, "delta")
    only_lost = {**SHARED, "volume_backend_name": "node1-thin"}
    asked = {"size": 1, "volume_type": api.volume_type(client, "lost", only_lost)}
    nowhere = client("POST", "/volumes", {"volume": asked})["volume"]["id"]
    api.reaches(client, nowhere, "error")
    say(
        "an attach of a volume of node1 and a create there fail; node2 is not concerned"
    )
    assert of_left.stop() > 0
    assert not list(fleet.differences())
