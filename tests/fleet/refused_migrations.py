# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: migrate a volume to disks that must not get its bytes.

Prints the error of each, and how many disks each backend has then. Another disk's bytes
would stay behind the end of the copy, where the pool rounds sizes up. On disks with
other logical sectors hosts would find partitions elsewhere.
"""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from lunshare.cinder.local_migration import LocalMigration
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import DriverError, ForeignBytes
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB, Capacity, Volume


class OnOrphans(FakeVolumes):
    """A pool whose new disks are those of an orphan, as LVM can take them."""

    def require_empty(self, volume_id: str) -> None:
        """Refuse the disk: it has bytes."""
        raise ForeignBytes(volume_id, "group/unmanaged")


class OnLargeSectors(FakeVolumes):
    """A pool on disks with logical sectors of 4,096 bytes."""

    def capacity(self) -> Capacity:
        """Return what the pool has."""
        return replace(super().capacity(), sector=4096)


def created(driver: Any, name: str) -> Any:
    """A fake driver with its default options; it does nothing as root."""
    options = {option.dest: option.default for option in driver.OPTIONS}
    return driver(name, options, None)


def main() -> None:
    """Copy a volume, as a migration by Cinder does while no host has it."""
    pools = {"orphans": OnOrphans, "large-sectors": OnLargeSectors}
    json.dump([outcome(created(*pool[::-1])) for pool in pools.items()], sys.stdout)


def outcome(there: FakeVolumes) -> dict[str, object]:
    """What a copy of a new volume to that pool has left."""
    here = f"beside-{there.name}"
    backend = Backend(created(FakeVolumes, here), created(FakeTarget, here))
    unused: Any = SimpleNamespace()
    migration = LocalMigration(unused, backend, unused, unused, lambda: None)
    volume = Volume(str(uuid.uuid4()), GIB)
    backend.create(volume)
    error = ""
    try:
        migration._copy(volume, there)
    except DriverError as refused:
        error = refused.code
    numbers = [len(pool.disks()) for pool in (backend.volumes, there)]
    return {"error": error, "disks": numbers}


if __name__ == "__main__":
    main()
