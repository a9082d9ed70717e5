# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses of the controller and of each node, in a network of this run."""

from __future__ import annotations

from tests.stands import quick_guest

#: The address of the controller, and of each node.
CONTROLLER = "10.231.7.1"
NODES = {"node1": "10.231.7.11", "node2": "10.231.7.12"}
#: Where cinder-backup runs, with its files.
BACKUPS = "node2"


def build() -> None:
    """Make it (``quick_guest.build_network``)."""
    quick_guest.build_network("fleet", CONTROLLER, NODES)
