# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a backend is, in its stats: so another backend of its node is recognized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.lvm import claim


def location_info(section: str) -> str:
    """Return the stats' text that says where a backend is: its node and section."""
    return f"lunshare:{_node()}:{section}"


def section_of(here: str, target: Mapping[str, Any]) -> str | None:
    """Return the target's section if it is a backend of lunshare on this node.

    ``here`` is the host@backend#pool of a volume of this node. ``target`` is what
    Cinder gives to migrate_volume: ``host``, and the stats as ``capabilities``. Nodes
    that were cloned from one image have one machine id, so the host must match too.
    """
    stats = target.get("capabilities") or {}
    kind, _, rest = str(stats.get("location_info", "")).partition(":")
    node, _, section = rest.partition(":")
    same = node_of(here) == node_of(target["host"]) and node == _node()
    return section if kind == "lunshare" and node and same else None


def node_of(host: str) -> str:
    """Return the node in host@backend#pool."""
    return host.partition("@")[0]


def _node() -> str:
    """Return a digest of the machine's id; empty if this node has none."""
    try:
        return claim.node_tag().split(":")[1]
    except Misconfigured:
        return ""
