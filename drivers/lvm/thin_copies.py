# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of thin volumes: made at once, and volumes as good as any other.

A revert makes a copy of the snapshot as ``<name>.revert``, removes the volume,
and gives its name to the copy. Each is one commit of LVM's metadata. Killed
before the volume is removed, it has its old bytes; after that ``<name>.revert``
alone is left and has the snapshot's: ``mend``, which ``check`` calls, or the next
revert gives it the name.
"""

from __future__ import annotations

from collections.abc import Iterable

from lunshare.drivers.errors import CommandFailed, UnknownDisk, UnknownSnapshot
from lunshare.drivers.lvm import failures, names
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.report import LogicalVolume
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.values import Snapshot, Volume


class ThinCopies:
    """What is done with snapshots in one pool."""

    def __init__(self, lvm: Lvm, thin: Thin) -> None:
        self._lvm, self._thin = lvm, thin

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Take it: a thin volume that sleeps, so that nothing can open it."""
        self._thin.need_room()
        name = Volume(snapshot.volume_id, 0).name
        try:
            self._lvm.snapshot_thin(snapshot.name, name, asleep=True)
        except CommandFailed as error:
            if not failures.exists(error):
                raise

    def create_from(self, volume: Volume, snapshot: Snapshot) -> None:
        """Make it of the snapshot's size, or find it made; the caller grows it."""
        self._thin.need_room()
        try:
            self._lvm.snapshot_thin(volume.name, snapshot.name, asleep=False)
        except CommandFailed as error:
            self._why(error, volume, snapshot)

    def revert(self, snapshot: Snapshot) -> None:
        """Let the volume's name stand for a copy of the snapshot."""
        name = Volume(snapshot.volume_id, 0).name
        found = self._lvm.around(name, snapshot.name)
        found = {lv: row for lv, row in found.items() if self._thin.owns(row)}
        if name not in found and name + names.REVERT not in found:
            raise UnknownDisk(snapshot.volume_id)
        if snapshot.name not in found:
            raise UnknownSnapshot(snapshot.id)
        if name not in found:
            self._take_name(name)
        elif name + names.REVERT in found:
            self._lvm.remove(name + names.REVERT)
        self._lvm.snapshot_thin(name + names.REVERT, snapshot.name, asleep=False)
        try:
            self._lvm.remove(name)
        except CommandFailed as error:
            # What is gone already is not to go a second time, with its successor.
            if not failures.missing(error):
                self._lvm.remove(name + names.REVERT)
                raise
        self._take_name(name)

    def mend(self, found: Iterable[LogicalVolume]) -> bool:
        """Finish reverts that were killed; whether there were any."""
        here = {lv.name for lv in found if self._thin.owns(lv)}
        left = [
            name
            for part in here
            if names.volume_id(name := part.removesuffix(names.REVERT))
            and name not in here
        ]
        for name in left:
            self._take_name(name)
        return bool(left)

    def _take_name(self, name: str) -> None:
        """Give the name to its ``.revert``.

        ``check`` runs beside reverts and may do the same at this moment: one of
        the two finds it done.
        """
        try:
            self._lvm.rename(name + names.REVERT, name)
        except CommandFailed as error:
            if not (failures.exists(error) or failures.missing(error)):
                raise

    def _why(self, error: CommandFailed, volume: Volume, snapshot: Snapshot) -> None:
        """What it means that a copy was not made; nothing if it was there."""
        found = self._lvm.around(volume.name, snapshot.name)
        self._thin.need_mine(found, volume)
        if volume.name in found:
            return
        kept = found.get(snapshot.name)
        if kept is None or not self._thin.owns(kept):
            raise UnknownSnapshot(snapshot.id) from error
        raise error
