# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular to thick volumes: their extents held somebody's bytes before.

Every extent is wiped before it can be seen under a volume's name, so nothing
depends on what the group was used for, or on a wipe that was cut short:

- a new volume is made as ``<name>.new``, wiped, then renamed;
- a volume grows by a ``<name>.tail`` that is wiped, then given up, and its
  extents, named one by one, are appended to the volume.

A part found at the next call is the rest of a killed one, and is removed.
"""

from __future__ import annotations

import threading
import time

from drivers import devices
from drivers.errors import CommandFailed
from drivers.lvm import commands
from drivers.lvm.commands import Lvm
from drivers.lvm.report import LogicalVolume
from drivers.values import Capacity, Volume

NEW, TAIL = ".new", ".tail"
_PAUSE_SECONDS = 1.0


class Thick:
    """Linear volumes in one group."""

    def __init__(self, lvm: Lvm, timeout: float) -> None:
        self._lvm, self._timeout = lvm, timeout
        # Held where extents change hands, so that no other volume of ours
        # takes a tail's extents between its removal and the growth onto them.
        self._extents = threading.Lock()

    def check(self) -> None:
        """There is nothing beyond the group."""

    def create(self, volume: Volume) -> None:
        """Make it, or find it made, at least that large."""
        parts = self._lvm.parts(volume.name)
        if volume.name in parts:
            self.extend(volume, parts[volume.name])
            return
        new = volume.name + NEW
        self._fresh(new, volume.size, parts)
        self._lvm.rename(new, volume.name)

    def extend(self, volume: Volume, size: int) -> None:
        """Grow it from ``size``; what is attached sees zeros in the new part."""
        if volume.size <= size:
            return
        tail = volume.name + TAIL
        self._fresh(tail, volume.size - size, self._lvm.parts(volume.name))
        with self._extents:
            segments = self._lvm.segments(tail)
            self._lvm.remove(tail)
            for segment in segments:
                size += segment.size
                self._lvm.extend(volume.name, size, segment.extents)

    def tidy(self, name: str) -> None:
        """Remove what a killed create or extend left."""
        for part in {name + NEW, name + TAIL} & self._lvm.parts(name).keys():
            self._lvm.remove(part)

    def owns(self, found: LogicalVolume) -> bool:
        """Whether it is a thick volume."""
        return not found.pool

    def capacity(self) -> Capacity:
        """One command. What others keep in the group counts as provisioned."""
        group = self._lvm.group()
        return Capacity(group.size, group.free, group.size - group.free, thin=False)

    def _discard(self, part: str, size: int) -> None:
        """Remove a part; a wipe that outlived its daemon may have it open still."""
        until = time.monotonic() + self._timeout + commands.wipe_seconds(size)
        while True:
            try:
                return self._lvm.remove(part)
            except CommandFailed as error:
                if not commands.in_use(error) or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _fresh(self, name: str, size: int, parts: dict[str, int]) -> None:
        if name in parts:
            self._discard(name, parts[name])
        with self._extents:
            self._lvm.create_thick(name, size)
        devices.wait_for(self._lvm.path(name), self._timeout)
        self._lvm.wipe(name, size)
