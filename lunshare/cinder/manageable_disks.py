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
_Shown = TypeVar("_Shown", Manageable, ManageableSnapshot)


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
    for snapshot in volumes.manageable_snapshots():
        if (snapshot.reference, snapshot.volume_id) == (name, volume_id):
            return _safe(snapshot)
    raise UnknownReference(name, f"volume {volume_id} has no such snapshot")


def entries(volumes: VolumeDriver, managed: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the list that Cinder's API shows: foreign disks, and its own volumes."""
    sizes = {disk.volume_id: disk.size for disk in volumes.disks()}
    own = [
        _entry(Manageable(f"volume-{id_}", sizes[id_], _MANAGED), volume.id)
        for volume in managed
        if (id_ := volume.name_id) in sizes
    ]
    return [_entry(disk) for disk in volumes.manageable()] + own


def snapshot_entries(
    volumes: VolumeDriver, managed: Iterable[Any]
) -> list[dict[str, Any]]:
    """Return the same list of snapshots; each names its volume's disk."""
    foreign = [_entry(snapshot) for snapshot in volumes.manageable_snapshots()]
    own = []
    for snapshot in managed:
        name, size = f"_snapshot-{snapshot.id}", snapshot.volume_size * GIB
        shown = ManageableSnapshot(name, size, snapshot.volume.name_id, _MANAGED)
        own.append(_entry(shown, snapshot.id))
    return foreign + own


def _name(sent: Mapping[str, Any]) -> str:
    name = str(sent.get(_KEY) or "")
    if not name:
        raise UnknownReference(str(sent), f"give its name as {_KEY}")
    return name


def _safe(shown: _Shown) -> _Shown:
    if shown.problem:
        raise UnknownReference(shown.reference, shown.problem)
    return shown


def _entry(
    shown: Manageable | ManageableSnapshot, cinder_id: str | None = None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "reference": {_KEY: shown.reference},
        "size": shown.gib,
        "safe_to_manage": not shown.problem,
        "reason_not_safe": shown.problem or None,
        "cinder_id": cinder_id,
        "extra_info": None,
    }
    if isinstance(shown, ManageableSnapshot):
        entry["source_reference"] = {_KEY: f"volume-{shown.volume_id}"}
    return entry
