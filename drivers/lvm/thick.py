# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular to thick volumes: their extents held somebody's bytes before.

Every extent is wiped before it can be seen under a volume's name, so nothing
depends on what the group was used for, or on a wipe that was cut short:

- a new volume is made as ``<name>.new``, wiped or copied onto, then renamed;
- a volume grows by a ``<name>.tail`` that is wiped, then given up, and its
  extents, named one by one, are appended to the volume.

A part found at the next call is the rest of a killed one, and is removed.
A deleted volume is wiped as well, in the background: see wiping.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from lunshare.drivers import devices
from lunshare.drivers.errors import CommandFailed, DiskBusy, UnknownDisk, Unsupported
from lunshare.drivers.lvm import failures, names
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.listing import Listed, Listing
from lunshare.drivers.lvm.names import NEW, TAIL
from lunshare.drivers.lvm.report import LogicalVolume, Looked
from lunshare.drivers.lvm.wiping import Wiping
from lunshare.drivers.values import Capacity, Volume, Wipe

_PAUSE_SECONDS = 1.0


class Thick:
    """Linear volumes in one group."""

    def __init__(self, lvm: Lvm, listing: Listing, timeout: float) -> None:
        self._lvm, self._listing, self._timeout = lvm, listing, timeout
        self.room = lvm.name
        self._wiping = Wiping(lvm, listing, timeout)
        # Held where extents change hands, so that no other volume of ours
        # takes a tail's extents between its removal and the growth onto them.
        self.extents = threading.Lock()

    def check(self, listed: Listed) -> None:
        """There is nothing beyond the group."""

    def create(self, volume: Volume) -> None:
        """Make it, or find it made, at least that large."""
        parts = self._lvm.around(volume.name)
        self.need_mine(parts, volume)
        if volume.name in parts:
            self._grow(volume, parts[volume.name].size, parts)
            return
        self._lvm.wipe(self.fresh(volume.name + NEW, volume.size, parts))
        self._lvm.rename(volume.name + NEW, volume.name)

    def extend(self, volume: Volume, size: int) -> None:
        """Grow it from ``size``; what is attached sees zeros in the new part."""
        self._grow(volume, size, self._lvm.around(volume.name))

    def delete(self, volume_id: str) -> None:
        """Take its name from it, however large it is; ``wipe`` does the rest."""
        name = Volume(volume_id, 0).name
        parts = self._lvm.around(name)
        for part in {name + NEW, name + TAIL} & parts.keys():
            if self.owns(parts[part]):
                self._lvm.remove(part)
        if name not in parts or not self.owns(parts[name]):
            raise UnknownDisk(volume_id)
        if kept := _snapshots(name, parts):
            why = f"{len(kept)} snapshots of it need its bytes; delete them first"
            raise DiskBusy(volume_id, why)
        if parts[name].merging:
            raise DiskBusy(volume_id, "it is being reverted; that ends by itself")
        self.shut(parts[name])
        self._lvm.rename(name, names.deleted(parts[name].size))

    def delete_snapshot(self, name: str) -> None:
        """Remove it; none is success."""
        self._lvm.remove_any("", name)

    def owns(self, found: LogicalVolume | Looked) -> bool:
        """Whether it is a thick volume."""
        return not found.pool

    def has(self, pool: str) -> bool:
        """Whether what lies in that thin pool, or in none, is ours."""
        return not pool

    def need_mine(self, found: Mapping[str, Looked], volume: Volume) -> None:
        """:raises Unsupported: something of the volume's name lies in a pool."""
        if volume.name in found and not self.owns(found[volume.name]):
            raise names.taken(volume, self.room, "")

    def why_not(self, found: Looked) -> str:
        """Why one of the group cannot become a volume of ours; empty if it can."""
        if found.layout != ("linear",):
            return f"its layout is {' '.join(found.layout)}, and not linear"
        if found.origin or any("origin" in role for role in found.roles):
            return "it is a snapshot, or has snapshots"
        return ""

    def capacity(self) -> Capacity:
        """What others keep in the group counts as provisioned."""
        group = self._listing.now().group
        closed = "" if group.free else "all its extents are taken; delete volumes"
        taken = group.size - group.free
        return Capacity(group.size, group.free, taken, thin=False, closed=closed)

    def wipes(self) -> tuple[Wipe, ...]:
        """What was deleted and is not wiped."""
        return self._wiping.wipes()

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Wipe a piece of one."""
        return self._wiping.wipe(name, limit)

    def fresh(self, name: str, size: int, parts: Mapping[str, Looked]) -> str:
        """Make a part anew; its bytes are anybody's."""
        if name in parts:
            self._discard(name)
        with self.extents:
            self._lvm.create_thick(name, size)
        devices.wait_for(self._lvm.path(name), self._timeout)
        return name

    def shut(self, volume: Looked) -> None:
        """Make sure that nobody has it open, or fail as LVM does where it is."""
        # udev opens it for a moment now and then: LVM waits for that, and judges.
        if volume.open:
            self._lvm.deactivate(volume.name)

    def _grow(self, volume: Volume, size: int, parts: Mapping[str, Looked]) -> None:
        if volume.size <= size:
            return
        if _snapshots(volume.name, parts):
            raise Unsupported(
                f"growing thick volume {volume.id} while it has snapshots",
                "delete them first: LVM cannot grow it under them while it is active",
            )
        tail, more = volume.name + TAIL, volume.size - size
        self._lvm.wipe(self.fresh(tail, more, parts))
        with self.extents:
            segments = self._lvm.segments(tail)
            self._lvm.remove(tail)
            for segment in segments:
                size += segment.size
                self._lvm.extend(volume.name, size, segment.extents)

    def _discard(self, part: str) -> None:
        """Remove a part; a wipe whose daemon was killed has it open for a step more."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._lvm.remove(part)
            except CommandFailed as error:
                if not failures.in_use(error) or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_SECONDS)


def _snapshots(name: str, parts: Mapping[str, Looked]) -> list[str]:
    return [lv.name for lv in parts.values() if lv.origin == name]
