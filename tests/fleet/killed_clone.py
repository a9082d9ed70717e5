# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Run by Cinder's Python: delete a clone that was killed before it was complete.

Prints the snapshots that are left. Cinder's own clones, for its image cache and for a
backup, have no source_volid.
"""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from types import SimpleNamespace
from typing import Any

from cinder import objects

from lunshare.cinder.volume_driver import LunshareDriver
from lunshare.drivers.backend import Backend
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from lunshare.drivers.values import GIB, Snapshot, Volume


def created(driver: Any) -> Any:
    """A fake driver with its default options; it does nothing as root."""
    options = {option.dest: option.default for option in driver.OPTIONS}
    return driver("killed", options, None)


def main() -> None:
    """Delete a clone in three steps that was killed after its first."""
    objects.register_all()
    backend: Any = Backend(created(FakeVolumes), created(FakeTarget))
    driver: Any = LunshareDriver.__new__(LunshareDriver)
    driver._made = SimpleNamespace(
        backend=backend,
        connections=SimpleNamespace(locked=lambda _: contextlib.nullcontext()),
        wiper=SimpleNamespace(wake=lambda: None),
    )
    source, clone = Volume(str(uuid.uuid4()), GIB), str(uuid.uuid4())
    backend.create(source)
    backend.volumes.create_snapshot(Snapshot(clone, source.id, GIB))
    driver.delete_volume(SimpleNamespace(name_id=clone, source_volid=None))
    json.dump(backend.volumes.snapshots(), sys.stdout)


if __name__ == "__main__":
    main()
