# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks of a pool, as Cinder lists them, and their references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.errors import UnknownReference
from lunshare.drivers.values import GIB, Manageable

_KEY = "source-name"


def find(volumes: VolumeDriver, sent: Mapping[str, Any]) -> Manageable:
    """Return the disk of a reference ``{"source-name": NAME}``.

    :raises UnknownReference: it has no such key, no such disk exists, or it cannot be
        managed now.
    """
    name = str(sent.get(_KEY) or "")
    if not name:
        raise UnknownReference(str(sent), f"give the name of a disk as {_KEY}")
    for disk in volumes.manageable():
        if disk.reference == name:
            if disk.reason_not_safe:
                raise UnknownReference(name, disk.reason_not_safe)
            return disk
    raise UnknownReference(name, "the pool has no such disk")


def entries(volumes: VolumeDriver, managed: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the list that Cinder's API shows: foreign disks, and its own volumes."""
    foreign = [
        {
            "reference": {_KEY: disk.reference},
            "size": gib(disk.size),
            "safe_to_manage": not disk.reason_not_safe,
            "reason_not_safe": disk.reason_not_safe or None,
            "cinder_id": None,
            "extra_info": None,
        }
        for disk in volumes.manageable()
    ]
    sizes = {disk.volume_id: disk.size for disk in volumes.disks()}
    own = [
        {
            "reference": {_KEY: f"volume-{volume.name_id}"},
            "size": gib(sizes[volume.name_id]),
            "safe_to_manage": False,
            "reason_not_safe": "already managed",
            "cinder_id": volume.id,
            "extra_info": None,
        }
        for volume in managed
        if volume.name_id in sizes
    ]
    return foreign + own


def gib(size: int) -> int:
    """Return a size in GiB, rounded up."""
    return -(-size // GIB)
