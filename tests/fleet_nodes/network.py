# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A bridge and one tap device for each node, in a network namespace of this run.

``run`` starts the tests in a new namespace. The kernel removes it, with all that is in
it, when the last process of the run ends.
"""

from __future__ import annotations

from tests.lab.steps import sh

BRIDGE = "fleet"
PREFIX = 24
#: The address of the controller.
CONTROLLER = "10.231.7.1"
#: The address of each node.
NODES = {"node1": "10.231.7.11", "node2": "10.231.7.12"}
#: Where cinder-backup runs, with its files.
BACKUPS = "node2"


def build() -> None:
    """Make them; only in a namespace that has nothing but its loopback."""
    links = sh(["ip", "-brief", "link"]).splitlines()
    assert [line.split()[0] for line in links] == ["lo"], "start tests/fleet_nodes/run"
    sh(["ip", "link", "set", "lo", "up"])
    sh(["ip", "link", "add", BRIDGE, "type", "bridge"])
    sh(["ip", "address", "add", f"{CONTROLLER}/{PREFIX}", "dev", BRIDGE])
    sh(["ip", "link", "set", BRIDGE, "up"])
    for node in NODES:
        sh(["ip", "tuntap", "add", tap(node), "mode", "tap"])
        sh(["ip", "link", "set", tap(node), "master", BRIDGE, "up"])


def tap(node: str) -> str:
    """The tap device of a node."""
    return f"tap-{node}"


def card(node: str) -> str:
    """What the lab's option --network wants."""
    return f"{tap(node)}={NODES[node]}/{PREFIX}"
