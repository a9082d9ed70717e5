# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as drivers know them: the one place where GiB become bytes."""

from __future__ import annotations

from lunshare.agent.model.records import Snapshot, Volume
from lunshare.drivers.values import GIB
from lunshare.drivers.values import Snapshot as DriverSnapshot
from lunshare.drivers.values import Volume as DriverVolume


def size_bytes(gibibytes: int) -> int:
    """Return a size of the API, in GiB, in bytes."""
    return gibibytes * GIB


def driver_volume(volume: Volume, reservations: bool = False) -> DriverVolume:
    """Return the volume as drivers know it; its size is in bytes.

    ``reservations`` is what its type says; only an export needs it.
    """
    return DriverVolume(volume.id, size_bytes(volume.size), reservations)


def driver_snapshot(snapshot: Snapshot) -> DriverSnapshot:
    """Return the snapshot as drivers know it; its size is in bytes."""
    size = size_bytes(snapshot.size)
    return DriverSnapshot(snapshot.id, snapshot.volume_id, size)
