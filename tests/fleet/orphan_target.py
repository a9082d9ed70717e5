# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: migrate a volume to a disk that has bytes of another one.

Prints the error, and how many disks each backend has then. Another disk's bytes
would stay behind the end of the copy, where the pool rounds sizes up.
"""

from __future__ import annotations

import json
import sys
import uuid
from types import SimpleNamespace
from typing import Any

from lunshare.cinder.local_migration import LocalMigration
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import ForeignBytes
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB, Volume


class OnOrphans(FakeVolumes):
    """A pool whose new disks are those of an orphan, as LVM can take them."""

    def require_empty(self, volume_id: str) -> None:
        """Refuse the disk: it has bytes."""
        raise ForeignBytes(volume_id, "group/unmanaged")


def created(driver: Any, name: str) -> Any:
    """A fake driver with its default options; it does nothing as root."""
    options = {option.dest: option.default for option in driver.OPTIONS}
    return driver(name, options, None)


def main() -> None:
    """Copy a volume, as a migration by Cinder does while no host has it."""
    backend = Backend(created(FakeVolumes, "here"), created(FakeTarget, "here"))
    there = created(OnOrphans, "there")
    unused: Any = SimpleNamespace()
    migration = LocalMigration(unused, backend, unused, unused, lambda: None)
    volume = Volume(str(uuid.uuid4()), GIB)
    backend.create(volume)
    error = ""
    try:
        migration._copy(volume, there)
    except ForeignBytes as refused:
        error = refused.code
    numbers = [len(pool.disks()) for pool in (backend.volumes, there)]
    json.dump({"error": error, "disks": numbers}, sys.stdout)


if __name__ == "__main__":
    main()
