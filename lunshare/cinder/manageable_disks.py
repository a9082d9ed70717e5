# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks and snapshots of a pool, as Cinder lists them, and their references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.errors import UnknownReference
from lunshare.drivers.values import GIB, Manageable, ManageableSnapshot

_KEY, _MANAGED = "source-name", "already managed"
_Found = TypeVar("_Found", Manageable, ManageableSnapshot)


def find(volumes: VolumeDriver, sent: Mapping[str, Any]) -> Manageable:
    """Return the disk of a reference ``{"source-name": NAME}``.

    :raises UnknownReference: it has no such key, no such disk exists, or it cannot be
        managed now.
    """
    name = _name(sent)
    for disk in volumes.manageable():
        if disk.reference == name:
            return _safe(disk)
    raise UnknownReference(name, "the pool has no such disk")


def find_snapshot(
    volumes: VolumeDriver, volume_id: str, sent: Mapping[str, Any]
) -> ManageableSnapshot:
    """Return the snapshot of that volume with this reference; raises as ``find``."""
    name = _name(sent)
    for found in volumes.manageable_snapshots():
        if (found.reference, found.volume_id) == (name, volume_id):
            return _safe(found)
    raise UnknownReference(name, f"volume {volume_id} has no such snapshot")


def entries(volumes: VolumeDriver, managed: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the list that Cinder's API shows: foreign disks, and its own volumes."""
    foreign = [
        _entry(disk.reference, disk.size, disk.reason_not_safe)
        for disk in volumes.manageable()
    ]
    sizes = {disk.volume_id: disk.size for disk in volumes.disks()}
    own = [
        _entry(f"volume-{each.name_id}", sizes[each.name_id], _MANAGED, each.id)
        for each in managed
        if each.name_id in sizes
    ]
    return foreign + own


def snapshot_entries(
    volumes: VolumeDriver, managed: Iterable[Any]
) -> list[dict[str, Any]]:
    """Return the same list of snapshots; each names its volume's disk."""
    foreign = [
        _entry(found.reference, found.size, found.reason_not_safe)
        | {"source_reference": {_KEY: f"volume-{found.volume_id}"}}
        for found in volumes.manageable_snapshots()
    ]
    own = [
        _entry(f"_snapshot-{each.id}", each.volume_size * GIB, _MANAGED, each.id)
        | {"source_reference": {_KEY: f"volume-{each.volume.name_id}"}}
        for each in managed
    ]
    return foreign + own


def _name(sent: Mapping[str, Any]) -> str:
    name = str(sent.get(_KEY) or "")
    if not name:
        raise UnknownReference(str(sent), f"give its name as {_KEY}")
    return name


def _safe(found: _Found) -> _Found:
    if found.reason_not_safe:
        raise UnknownReference(found.reference, found.reason_not_safe)
    return found


def _entry(
    reference: str, size: int, why_not: str, cinder_id: str | None = None
) -> dict[str, Any]:
    return {
        "reference": {_KEY: reference},
        "size": gib(size),
        "safe_to_manage": not why_not,
        "reason_not_safe": why_not or None,
        "cinder_id": cinder_id,
        "extra_info": None,
    }


def gib(size: int) -> int:
    """Return a size in GiB, rounded up."""
    return -(-size // GIB)
