# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""After a reboot of a node every export is again what Cinder's database says.

The guest of a node starts with empty disks, so what a reboot forgets is removed while
its services are stopped: the whole target, the active volumes and what is in /run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.hosts import Host
from tests.fleet_nodes.kills import CINDER, HELPER
from tests.fleet_nodes.node import Node
from tests.fleet_nodes.transcript import say
from tests.stands.waiting import until

NODE = "node2"
EXPORTS = "/opt/cinder/bin/lunshare-helper exports --all --yes"
FORGET = f"""
set -eu
{EXPORTS}
systemctl stop {HELPER} lunshare-helper.socket
rm -rf /run/lunshare
vgchange --quiet --activate n lunshare
systemd-tmpfiles --create
systemctl start lunshare-helper.socket
"""


@pytest.fixture
def volumes(client: Client) -> Iterator[list[str]]:
    made = [api.create(client, f"{NODE}-{pool}") for pool in ("thin", "thick")]
    yield made
    for volume in made:
        for each in client("GET", f"/attachments?volume_id={volume}")["attachments"]:
            api.detach(client, each["id"])
        api.reaches(client, volume, "available")
        api.delete(client, volume)


def test_exports_are_as_before_after_a_reboot(
    fleet: Fleet, client: Client, volumes: list[str]
) -> None:
    node, modes = fleet.nodes[NODE], {"alpha": "rw", "beta": "ro"}
    known = {
        (volume, name): api.attach(client, volume, name, mode)[1]
        for volume in volumes
        for name, mode in modes.items()
    }
    before = node.exports()
    assert before.keys() == set(volumes)
    reboot(fleet, node)

    until(lambda: not [*fleet.differences()], "exports are what rows say", 120)
    assert node.exports() == before
    for (_, name), info in known.items():
        host = Host(fleet.nodes["node1"], name)
        assert host.login(info)  # with the address and the secret that it had
        assert host.is_read_only is (modes[name] == "ro")
        host.leave()
    say(f"after a reboot of {NODE} {len(known)} hosts log in again, with their modes")


def reboot(fleet: Fleet, node: Node) -> None:
    """Stop its services, forget what a reboot forgets, start them."""
    node.must("systemctl", "stop", CINDER)
    node.must("sh", "-c", FORGET)
    assert node.exports() == {}
    assert node.must("lvs", "--noheadings", "-S", "lv_active=active", "lunshare") == ""
    reported = fleet.controller.reports()
    node.must("systemctl", "start", CINDER)
    until(
        lambda: all(
            fleet.controller.reports()[name] > reported[name]
            for name in node.backends()
        ),
        f"{node.name} reports again",
        180,
    )
