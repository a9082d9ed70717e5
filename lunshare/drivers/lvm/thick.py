# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thick volumes: a free extent may still have the bytes of an earlier volume.

Every extent is wiped before a volume has it, whatever the group was used for and even
if the wipe of a deleted volume was killed:

- A new volume is created as ``<name>.new``, wiped or overwritten by a copy, and then
  renamed.
- To extend a volume, ``<name>.tail`` is created, wiped and removed, and exactly its
  extents are appended to the volume.

A part that exists at the next call was left by a killed call, and is removed.
A deleted volume is wiped too, in the background: see deleted_volumes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from lunshare.drivers import devices
from lunshare.drivers.errors import CommandFailed, DiskBusy, UnknownDisk, Unsupported
from lunshare.drivers.lvm import command_errors, names
from lunshare.drivers.lvm.cached_listing import CachedListing, Listing
from lunshare.drivers.lvm.deleted_volumes import DeletedVolumes
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import LogicalVolume, VolumeDetails
from lunshare.drivers.lvm.names import NEW, TAIL
from lunshare.drivers.values import Capacity, Volume, Wipe

_PAUSE_SECONDS = 1.0


class Thick:
    """The linear volumes of one group."""

    def __init__(self, lvm: Lvm, listing: CachedListing, timeout: float) -> None:
        self._lvm, self._listing, self._timeout = lvm, listing, timeout
        self.pool_name = lvm.name
        self._deleted = DeletedVolumes(lvm, listing, timeout)
        # Held when extents are freed and allocated, so that no other volume gets the
        # extents of a tail between its removal and the extension of its volume.
        self.extents_lock = threading.Lock()

    def check(self, listed: Listing) -> None:
        """Thick volumes need only the group."""

    def create(self, volume: Volume) -> None:
        """Create it. If it exists, extend it to that size."""
        parts = self._lvm.details_of(volume.name)
        self.require_owned(parts, volume)
        if volume.name in parts:
            self._extend(volume, parts[volume.name].size, parts)
            return
        self._lvm.wipe(self.create_part(volume.name + NEW, volume.size, parts))
        self._lvm.rename(volume.name + NEW, volume.name)

    def extend(self, volume: Volume, size: int) -> None:
        """Extend it; ``size`` is its size now. The new part reads as zeros."""
        self._extend(volume, size, self._lvm.details_of(volume.name))

    def delete(self, volume_id: str) -> None:
        """Rename it, which takes the same time for any size; ``wipe`` does the rest."""
        name = Volume(volume_id, 0).name
        parts = self._lvm.details_of(name)
        for part in {name + NEW, name + TAIL} & parts.keys():
            if self.owns(parts[part]):
                self._lvm.remove(part)
        if name not in parts or not self.owns(parts[name]):
            raise UnknownDisk(volume_id)
        if needed_by := _snapshots(name, parts):
            why = f"{len(needed_by)} snapshots need its bytes; delete them first"
            raise DiskBusy(volume_id, why)
        if parts[name].merging:
            raise DiskBusy(
                volume_id, "it is being reverted; wait until that is complete"
            )
        self.require_closed(parts[name])
        self._lvm.rename(name, names.deleted_name(parts[name].size))

    def delete_snapshot(self, name: str) -> None:
        """Remove it. A snapshot that does not exist is success."""
        self._lvm.remove_matching("", name)

    def owns(self, found: LogicalVolume | VolumeDetails) -> bool:
        """Whether it is a thick volume."""
        return not found.pool

    def owns_pool(self, pool: str) -> bool:
        """Whether ``pool`` is empty, which it is for a thick volume."""
        return not pool

    def require_owned(self, found: Mapping[str, VolumeDetails], volume: Volume) -> None:
        """:raises Unsupported: a thin volume of that name exists."""
        if volume.name in found and not self.owns(found[volume.name]):
            raise names.name_conflict(volume, self.pool_name, "")

    def manage_problem(self, details: VolumeDetails) -> str:
        """Return why a volume of the group cannot be managed, or ""."""
        if details.layout != ("linear",):
            return f"its layout is {' '.join(details.layout)}, and not linear"
        if details.origin or any("origin" in role for role in details.roles):
            return "it is a snapshot, or has snapshots"
        return ""

    def capacity(self) -> Capacity:
        """Return the group's capacity. Foreign volumes count as provisioned."""
        group = self._listing.current().group
        closed = "" if group.free else "all its extents are allocated; delete volumes"
        used = group.size - group.free
        return Capacity(group.size, group.free, used, thin=False, closed=closed)

    def wipes(self) -> tuple[Wipe, ...]:
        """Return the deleted volumes that are not wiped yet."""
        return self._deleted.wipes()

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Wipe up to ``limit`` bytes of a deleted volume."""
        return self._deleted.wipe(name, limit)

    def create_part(
        self, name: str, size: int, parts: Mapping[str, VolumeDetails]
    ) -> str:
        """Create a part. It has the earlier bytes of its extents."""
        if name in parts:
            self._remove_part(name)
        with self.extents_lock:
            self._lvm.create_thick(name, size)
        devices.wait_for_path(self._lvm.path(name), self._timeout)
        return name

    def require_closed(self, volume: VolumeDetails) -> None:
        """Return if the volume is closed; raise LVM's error if it is open."""
        # udev opens it briefly at times. LVM waits for that, and then decides.
        if volume.open:
            self._lvm.deactivate(volume.name)

    def _extend(
        self, volume: Volume, size: int, parts: Mapping[str, VolumeDetails]
    ) -> None:
        if volume.size <= size:
            return
        if _snapshots(volume.name, parts):
            raise Unsupported(
                f"extending thick volume {volume.id} while it has snapshots",
                "delete them first: LVM cannot extend an active volume under them",
            )
        tail, more = volume.name + TAIL, volume.size - size
        self._lvm.wipe(self.create_part(tail, more, parts))
        with self.extents_lock:
            segments = self._lvm.segments(tail)
            self._lvm.remove(tail)
            for segment in segments:
                size += segment.size
                self._lvm.extend(volume.name, size, segment.extents)

    def _remove_part(self, part: str) -> None:
        """Remove a part. The wipe of a killed daemon may have it open for a while."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._lvm.remove(part)
            except CommandFailed as error:
                if not command_errors.in_use(error) or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_SECONDS)


def _snapshots(name: str, parts: Mapping[str, VolumeDetails]) -> list[str]:
    return [lv.name for lv in parts.values() if lv.origin == name]
