# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Deleted thick volumes: they are wiped from the end, and reduced by what is wiped.

So a volume's size is what is left to wipe. Nothing else is stored, and after a kill the
next call continues with the volume as it is. The full size is in its name.

The reserve of a deleted thick snapshot is not wiped. A host can read there only what
is in a snapshot's table, which LVM clears when it creates a snapshot, and every extent
is wiped before a volume has it.
"""

from __future__ import annotations

from lunshare.drivers import devices
from lunshare.drivers.errors import CommandFailed
from lunshare.drivers.lvm import command_errors, names
from lunshare.drivers.lvm.cached_listing import CachedListing, Derived, Listing
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.values import Wipe

# A file system is recognised here; lvm2 2.03.17 and later refuse to reduce one.
_HEAD = 1024**2


class DeletedVolumes:
    """The deleted volumes of one group."""

    def __init__(self, lvm: Lvm, listing: CachedListing, timeout: float) -> None:
        self._lvm, self._listing, self._timeout = lvm, listing, timeout
        self._wipes = Derived(_deleted)
        self._extent = 0

    def wipes(self) -> tuple[Wipe, ...]:
        """Return all of them, with what is left to wipe."""
        return self._wipes.value_for(self._listing.current())

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Wipe up to ``limit`` bytes of it, but at least one extent."""
        size = names.deleted_size(name)
        remainder = self._size(name) if size is not None else None
        if size is None or remainder is None:
            return None
        start = (
            next_start(remainder, limit, self._extent_size())
            if limit < remainder
            else 0
        )
        if start and remainder == size:
            self._lvm.wipe(name, 0, min(_HEAD, start))
        self._lvm.wipe(name, start)
        if not start:
            self._lvm.remove(name)
            return None
        self._lvm.reduce(name, start)
        return Wipe(name, size, start)

    def _extent_size(self) -> int:
        self._extent = self._extent or self._lvm.volume_group().extent
        return self._extent

    def _size(self, name: str) -> int | None:
        """Return its size now; None if it does not exist."""
        path = self._lvm.path(name)
        try:
            return devices.block_size(path)
        except FileNotFoundError:
            pass
        try:
            self._lvm.activate(name)
        except CommandFailed as error:
            if command_errors.not_found(error):
                return None
            raise
        devices.wait_for_path(path, self._timeout)
        return devices.block_size(path)


def _deleted(listed: Listing) -> tuple[Wipe, ...]:
    return tuple(
        Wipe(volume.name, size, volume.size)
        for volume in listed.volumes
        if (size := names.deleted_size(volume.name)) is not None
    )


def next_start(left: int, limit: int, extent: int) -> int:
    """Return the offset at which a step of up to ``limit`` of ``left`` bytes starts.

    LVM reduces by complete extents. Each step wipes at least one, so wiping ends.
    """
    start = -(-max(0, left - limit) // extent) * extent
    return max(0, min(start, left - extent))
