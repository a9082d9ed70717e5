# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of thick volumes: what hosts overwrite is kept in a room of its own.

Such a snapshot needs its volume. Its room may be smaller than the volume
(``lvm_snapshot_reserve``); when it is full the kernel gives the snapshot up, reads
of it fail, and so does everything here that would need its bytes.

A revert is LVM's merge, by which the kernel writes back what the snapshot holds,
and which goes on by itself after a crash. LVM's snapshot is then no more, so a new
one is taken under its name, of the same bytes, before anybody has the volume
open. A tag on the volume says from the beginning that this is due, so a repeated
call knows that the snapshot it misses was there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from lunshare.drivers import devices
from lunshare.drivers.errors import (
    CommandFailed,
    DiskBusy,
    DriverError,
    LostSnapshot,
    Stalled,
    UnknownDisk,
    UnknownSnapshot,
)
from lunshare.drivers.lvm import failures
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.names import NEW
from lunshare.drivers.lvm.report import Looked
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.values import Snapshot, Volume

_PAUSE_SECONDS = 10.0

# A merge that comes no further for so long may have to be begun again.
_IDLE_SECONDS = 2.0


class ThickCopies:
    """What is done with snapshots in one group."""

    def __init__(self, lvm: Lvm, thick: Thick, percent: int, timeout: float) -> None:
        self._lvm, self._thick = lvm, thick
        self._percent, self._timeout = percent, timeout

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Take it, with its room."""
        try:
            self._take(snapshot)
        except CommandFailed as error:
            if not failures.exists(error):
                raise

    def create_from(self, volume: Volume, snapshot: Snapshot) -> None:
        """Copy the bytes, and wipe what is behind them."""
        found = self._lvm.around(volume.name, snapshot.name)
        self._thick.need_mine(found, volume)
        if volume.name in found:
            return
        self._whole(snapshot, found)
        kept = self._bytes(snapshot)
        part = volume.name + NEW
        self._thick.fresh(part, max(kept, volume.size), found)
        try:
            self._fill(part, kept, snapshot)
        except DriverError:
            # An answer from the medium, or the room of the snapshot is full now.
            self._whole(snapshot, self._lvm.around(volume.name, snapshot.name))
            raise
        self._lvm.rename(part, volume.name)

    def revert(self, snapshot: Snapshot) -> None:
        """Merge it, and take it anew."""
        name, due = Volume(snapshot.volume_id, 0).name, f"revert-{snapshot.id}"
        found = self._lvm.around(name, snapshot.name)
        if name not in found or not self._thick.owns(found[name]):
            raise UnknownDisk(snapshot.volume_id)
        volume = found[name]
        gone = volume.merging or snapshot.name not in found
        if not (gone and due in volume.tags):
            self._merge(snapshot, volume, found, due)
        self._take_anew(snapshot, volume)
        self._lvm.untag(name, due)

    def _merge(
        self,
        snapshot: Snapshot,
        volume: Looked,
        found: Mapping[str, Looked],
        due: str,
    ) -> None:
        if volume.merging:
            why = "it is being reverted to another snapshot; repeat that first"
            raise DiskBusy(snapshot.volume_id, why)
        self._whole(snapshot, found)
        self._shut(volume)
        self._lvm.tag(volume.name, due)
        self._lvm.merge(snapshot.name)

    def _take(self, snapshot: Snapshot) -> None:
        name = Volume(snapshot.volume_id, 0).name
        room = reserve(self._size(name, snapshot.size), self._percent)
        with self._thick.extents:
            self._lvm.snapshot_thick(snapshot.name, name, room)

    def _take_anew(self, snapshot: Snapshot, volume: Looked) -> None:
        """Take it under the name that is free when the merge has ended.

        :raises Stalled: the merge came no further for so long.
        """
        began = since = time.monotonic()
        seen, woken = self._lvm.merged(volume.name), False
        while not self._taken(snapshot):
            time.sleep(min(_PAUSE_SECONDS, 0.2 + (time.monotonic() - began) / 20))
            now = self._lvm.merged(volume.name)
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() > since + self._lvm.patience:
                raise Stalled(f"the merge of {snapshot.name}", self._lvm.patience, 0)
            elif not woken and time.monotonic() > since + _IDLE_SECONDS:
                # It was put off because something had the volume open, or the
                # call that began it was killed: activation goes on with it.
                self._lvm.deactivate(volume.name)
                self._lvm.activate(volume.name)
                woken = True

    def _taken(self, snapshot: Snapshot) -> bool:
        try:
            self._take(snapshot)
        except CommandFailed as error:
            if not failures.exists(error):
                raise
            return False
        return True

    def _shut(self, volume: Looked) -> None:
        self._thick.shut(volume)
        if volume.open:
            self._lvm.activate(volume.name)

    def _fill(self, part: str, kept: int, snapshot: Snapshot) -> None:
        size = devices.block_size(self._lvm.path(part))
        if size > kept:
            self._lvm.wipe(part, kept)
        self._lvm.copy(snapshot.name, part, kept)

    def _size(self, name: str, otherwise: int) -> int:
        """How large a volume is; what the caller says while it is not active."""
        try:
            return devices.block_size(self._lvm.path(name))
        except FileNotFoundError:
            return otherwise

    def _bytes(self, snapshot: Snapshot) -> int:
        """Its size; LVM's report tells that of its room."""
        path = self._lvm.path(snapshot.name)
        try:
            return devices.block_size(path)
        except FileNotFoundError:
            self._lvm.activate(snapshot.name)
        devices.wait_for(path, self._timeout)
        return devices.block_size(path)

    def _whole(self, snapshot: Snapshot, found: Mapping[str, Looked]) -> None:
        """See that it holds its bytes.

        :raises UnknownSnapshot: it is not there.
        :raises LostSnapshot: its room ran over.
        """
        kept = found.get(snapshot.name)
        if kept is None or not kept.origin or not self._thick.owns(kept):
            raise UnknownSnapshot(snapshot.id)
        if kept.lost:
            raise LostSnapshot(snapshot.id, "its room is full (lvm_snapshot_reserve)")


def reserve(size: int, percent: int) -> int:
    """The room of a snapshot in which so much of ``size`` may be overwritten.

    The kernel keeps 16 bytes for each chunk of 4 KiB, and a chunk for itself
    (dm-snap-persistent.c).
    """
    data = size * percent // 100
    return data + data // 256 + 16 * 4096
