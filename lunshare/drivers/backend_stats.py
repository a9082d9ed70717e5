# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The part of the pool stats that comes from a backend alone, with Cinder's keys.

The daemon and the driver for Cinder report them, each with its own counts. Nothing
here reads storage.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lunshare.drivers.backend import Backend
from lunshare.drivers.values import GIB, Capacity, Wipe

#: Of every backend: who made the driver.
OF_VENDOR = {"vendor_name": "lunshare", "driver_version": "1.0"}


def of_pool(
    backend: Backend, found: Capacity, wipes: Collection[Wipe]
) -> dict[str, Any]:
    """Return what the drivers can do, and the capacity of their pool in GiB.

    Extra specs may ask for any of them, such as ``capabilities:fences``.
    """
    volumes, target = backend.volumes.abilities, backend.target.abilities
    return {
        "storage_protocol": backend.target.PROTOCOL,
        "total_capacity_gb": gib(found.total),
        "free_capacity_gb": gib(found.free),
        "provisioned_capacity_gb": gib(found.provisioned),
        "thin_provisioning_support": found.thin,
        "thick_provisioning_support": not found.thin,
        "multiattach": volumes.multiattach,
        "online_extend_support": backend.extends_open,
        "fences": target.fences,
        "enforces_read_only": target.enforces_read_only,
        "QoS_support": False,
        "replication_enabled": False,
        "shared_targets": False,
        "sparse_copy_volume": found.thin,
        "data_percent": found.data_percent,
        "metadata_percent": found.metadata_percent,
        "wipes": len(wipes),
        "wipes_left_gb": gib(sum(wipe.left for wipe in wipes)),
    }


def gib(size: int) -> float:
    """Return a size in GiB, with two decimals."""
    return round(size / GIB, 2)
