# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a backend is, in its stats: so another backend of its node is recognized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from lunshare.cinder.backend_section import Section
from lunshare.drivers.errors import Misconfigured
from lunshare.drivers.lvm import claim


def location_info(section: str) -> str:
    """Return the stats' text that says where a backend is: its node and section."""
    return f"lunshare:{_node()}:{section}"


def other_section(
    conf: cfg.ConfigOpts, own: str, target: Mapping[str, Any]
) -> Section | None:
    """Return the target's section if it is another backend of this node than ``own``.

    ``target`` is what Cinder gives to migrate_volume: ``host``, and the stats as
    ``capabilities``. A cloned node may have this one's machine id, its sections and its
    ``backend_host``. A copy to a section here would be stored as one there, so the host
    that this node's files give to the section must be the target's.
    """
    name = _section_of(target)
    if name in {None, own} or name not in conf.enabled_backends:
        return None
    section = Section(conf, name)
    return section if section.host == target["host"].partition("#")[0] else None


def _node() -> str:
    """Return a digest of the machine's id; empty if this node has none."""
    try:
        return claim.node_tag().split(":")[1]
    except Misconfigured:
        return ""


def _section_of(target: Mapping[str, Any]) -> str | None:
    """Return the section of a backend of lunshare with this machine's id, or None."""
    stats = target.get("capabilities") or {}
    kind, _, place = str(stats.get("location_info", "")).partition(":")
    node, _, section = place.partition(":")
    return section if kind == "lunshare" and node and node == _node() else None
