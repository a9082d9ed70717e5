# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of thick volumes: the bytes that hosts overwrite are stored in a reserve.

Such a snapshot needs its volume. Its reserve may be smaller than the volume
(``lvm_snapshot_reserve``). If the reserve is full, the kernel invalidates the snapshot:
reads of it fail, and so does every verb here that needs its bytes.

A revert is LVM's merge: the kernel writes the stored bytes back to the volume, and
continues after a crash. LVM's snapshot does not exist afterwards. So a new one is
created under its name, with the same bytes, before any host opens the volume. A tag on
the volume is set first. It shows a repeated call that the missing snapshot existed.
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
from lunshare.drivers.lvm import command_errors
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import VolumeDetails
from lunshare.drivers.lvm.names import NEW
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.values import Snapshot, Volume

_PAUSE_SECONDS = 10.0

# A merge without progress for so long may have to be started again.
_IDLE_SECONDS = 2.0


class ThickSnapshots:
    """The snapshots of thick volumes in one group."""

    def __init__(self, lvm: Lvm, thick: Thick, percent: int, timeout: float) -> None:
        self._lvm, self._thick = lvm, thick
        self._percent, self._timeout = percent, timeout

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Create it, with its reserve."""
        self._created(snapshot)

    def create_from(self, volume: Volume, snapshot: Snapshot) -> None:
        """Create it by a copy of the snapshot, and wipe what is behind the copy."""
        present = self._lvm.details_of(volume.name, snapshot.name)
        self._thick.require_owned(present, volume)
        if volume.name in present:
            return
        self._require_intact(snapshot, present)
        size = self._snapshot_size(snapshot)
        part = volume.name + NEW
        self._thick.create_part(part, max(size, volume.size), present)
        try:
            self._fill(part, size, snapshot)
        except DriverError:
            # An error of a disk, or the snapshot's reserve became full.
            self._require_intact(
                snapshot, self._lvm.details_of(volume.name, snapshot.name)
            )
            raise
        self._lvm.rename(part, volume.name)

    def revert(self, snapshot: Snapshot) -> None:
        """Merge the snapshot, and create it again."""
        name, due = Volume(snapshot.volume_id, 0).name, f"revert-{snapshot.id}"
        present = self._lvm.details_of(name, snapshot.name)
        if name not in present or not self._thick.owns(present[name]):
            raise UnknownDisk(snapshot.volume_id)
        volume = present[name]
        absent = volume.merging or snapshot.name not in present
        if not (absent and due in volume.tags):
            self._merge(snapshot, volume, present, due)
        self._recreate(snapshot, volume)
        self._lvm.delete_tag(name, due)

    def _merge(
        self,
        snapshot: Snapshot,
        volume: VolumeDetails,
        found: Mapping[str, VolumeDetails],
        due: str,
    ) -> None:
        if volume.merging:
            why = "a revert to another snapshot is not finished; repeat that first"
            raise DiskBusy(snapshot.volume_id, why)
        self._require_intact(snapshot, found)
        self._require_closed(volume)
        self._lvm.add_tag(volume.name, due)
        self._lvm.merge(snapshot.name)

    def _create(self, snapshot: Snapshot) -> None:
        name = Volume(snapshot.volume_id, 0).name
        size = reserve(self._size(name, snapshot.size), self._percent)
        with self._thick.extents_lock:
            self._lvm.snapshot_thick(snapshot.name, name, size)

    def _recreate(self, snapshot: Snapshot, volume: VolumeDetails) -> None:
        """Create it again when the merge is complete.

        Its name may be free a little later: LVM ends the merge and removes the merged
        snapshot in two commits. Until then lvcreate changes nothing.

        :raises Stalled: the merge made no progress for ``progress_timeout`` seconds.
        """
        started = since = time.monotonic()
        progress, restarted = self._lvm.merge_progress(volume.name), False
        while progress is not None or not self._created(snapshot):
            time.sleep(min(_PAUSE_SECONDS, 0.2 + (time.monotonic() - started) / 20))
            now = self._lvm.merge_progress(volume.name)
            if now != progress:
                progress, since = now, time.monotonic()
            elif time.monotonic() > since + self._lvm.progress_timeout:
                raise Stalled(
                    f"the merge of {snapshot.name}", self._lvm.progress_timeout, 0
                )
            elif not restarted and time.monotonic() > since + _IDLE_SECONDS:
                # LVM waits for an activation if the volume was open, or if the call
                # that started the merge was killed.
                self._lvm.deactivate(volume.name)
                self._lvm.activate(volume.name)
                restarted = True

    def _created(self, snapshot: Snapshot) -> bool:
        """Create it; return whether it did not exist."""
        try:
            self._create(snapshot)
        except CommandFailed as error:
            if not command_errors.exists(error):
                raise
            return False
        return True

    def _require_closed(self, volume: VolumeDetails) -> None:
        self._thick.require_closed(volume)
        if volume.open:
            self._lvm.activate(volume.name)

    def _fill(self, part: str, length: int, snapshot: Snapshot) -> None:
        size = devices.block_size(self._lvm.path(part))
        if size > length:
            self._lvm.wipe(part, length)
        self._lvm.copy(snapshot.name, part, length)

    def _size(self, name: str, otherwise: int) -> int:
        """Return the volume's size; ``otherwise`` if it is not active."""
        try:
            return devices.block_size(self._lvm.path(name))
        except FileNotFoundError:
            return otherwise

    def _snapshot_size(self, snapshot: Snapshot) -> int:
        """Return its size in bytes; LVM's report has that of its reserve."""
        path = self._lvm.path(snapshot.name)
        try:
            return devices.block_size(path)
        except FileNotFoundError:
            self._lvm.activate(snapshot.name)
        devices.wait_for_path(path, self._timeout)
        return devices.block_size(path)

    def _require_intact(
        self, snapshot: Snapshot, found: Mapping[str, VolumeDetails]
    ) -> None:
        """Check that the snapshot has its bytes.

        :raises UnknownSnapshot: it does not exist.
        :raises LostSnapshot: its reserve overflowed.
        """
        row = found.get(snapshot.name)
        if row is None or not row.origin or not self._thick.owns(row):
            raise UnknownSnapshot(snapshot.id)
        if row.lost:
            why = "its reserve is full (lvm_snapshot_reserve)"
            raise LostSnapshot(snapshot.id, why)


def reserve(size: int, percent: int) -> int:
    """Return the bytes a snapshot needs so that ``percent`` of ``size`` can change.

    The kernel stores 16 bytes of metadata for each chunk of 4 KiB, and one chunk for
    its header (dm-snap-persistent.c).
    """
    data = size * percent // 100
    return data + data // 256 + 16 * 4096
