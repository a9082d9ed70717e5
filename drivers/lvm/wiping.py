# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Deleted thick volumes are wiped from their end, and shrink by what is wiped.

So what is left to do is their size: nothing else is kept, and whoever is killed
leaves a volume that the next call goes on with. Their first size is in their name.

The room of a thick snapshot is not wiped when it is deleted: nobody can read
there what is not in a snapshot's table, which LVM clears when it makes one, and
every extent is wiped before it is seen under a volume's name.
"""

from __future__ import annotations

from lunshare.drivers import devices
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.lvm import failures, names
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.listing import Drawn, Listed, Listing
from lunshare.drivers.values import Wipe

# What may tell of a file system: lvm2 2.03.17 and later refuse to cut one off.
_HEAD = 1024**2


class Wiping:
    """What is left of deleted volumes."""

    def __init__(self, lvm: Lvm, listing: Listing, timeout: float) -> None:
        self._lvm, self._listing, self._timeout = lvm, listing, timeout
        self._wipes = Drawn(_deleted)
        self._unit = 0

    def wipes(self) -> tuple[Wipe, ...]:
        """All of them."""
        return self._wipes.of(self._listing.now())

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Wipe up to ``limit`` bytes of it, but one extent at least."""
        size = names.deleted_size(name)
        left = self._left(name) if size is not None else None
        if size is None or left is None:
            return None
        start = next_start(left, limit, self._extent()) if limit < left else 0
        if start and left == size:
            self._lvm.wipe(name, 0, min(_HEAD, start))
        self._lvm.wipe(name, start)
        if not start:
            self._lvm.remove(name)
            return None
        self._lvm.reduce(name, start)
        return Wipe(name, size, start)

    def _extent(self) -> int:
        self._unit = self._unit or self._lvm.group().extent
        return self._unit

    def _left(self, name: str) -> int | None:
        """Its size now; None if it is gone."""
        path = self._lvm.path(name)
        try:
            return devices.block_size(path)
        except FileNotFoundError:
            pass
        try:
            self._lvm.activate(name)
        except CommandFailed as error:
            if failures.missing(error):
                return None
            raise
        devices.wait_for(path, self._timeout)
        return devices.block_size(path)


def _deleted(listed: Listed) -> tuple[Wipe, ...]:
    return tuple(
        Wipe(found.name, size, found.size)
        for found in listed.volumes
        if (size := names.deleted_size(found.name)) is not None
    )


def next_start(left: int, limit: int, extent: int) -> int:
    """Where a step of up to ``limit`` of the ``left`` bytes begins.

    LVM gives up whole extents, and a step that gives up none would never end.
    """
    start = -(-max(0, left - limit) // extent) * extent
    return max(0, min(start, left - extent))
