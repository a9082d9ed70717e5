# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of thin volumes: they are created at once, and are thin volumes too.

A revert creates a copy of the snapshot as ``<name>.revert``, removes the volume, and
renames the copy to the volume's name. Each step is one commit of LVM's metadata. If it
is killed before the volume is removed, the volume has its old bytes. If it is killed
later, only ``<name>.revert`` exists, with the snapshot's bytes: ``finish_reverts``,
which ``check`` calls, or the next revert renames it.
"""

from __future__ import annotations

from collections.abc import Iterable

from lunshare.drivers.errors import CommandFailed, UnknownDisk, UnknownSnapshot
from lunshare.drivers.lvm import command_errors, names
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import LogicalVolume
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.values import Snapshot, Volume


class ThinSnapshots:
    """The snapshots of one thin pool."""

    def __init__(self, lvm: Lvm, thin: Thin) -> None:
        self._lvm, self._thin = lvm, thin

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Create it: an inactive thin volume, so nothing can open it."""
        name = Volume(snapshot.volume_id, 0).name
        self._thin.require_space(name, snapshot.name)
        try:
            self._lvm.snapshot_thin(snapshot.name, name, skip_activation=True)
        except CommandFailed as error:
            if not command_errors.exists(error):
                raise

    def create_from(self, volume: Volume, snapshot: Snapshot) -> None:
        """Create it with the snapshot's size if it does not exist."""
        self._thin.require_space(volume.name)
        try:
            self._lvm.snapshot_thin(volume.name, snapshot.name, skip_activation=False)
        except CommandFailed as error:
            self._explain(error, volume, snapshot)

    def clone(self, volume: Volume, source: Volume) -> None:
        """Create it with the source's size if it does not exist."""
        self._thin.require_space(volume.name)
        try:
            self._lvm.snapshot_thin(volume.name, source.name, skip_activation=False)
        except CommandFailed as error:
            if not command_errors.exists(error):
                raise
            self._thin.require_owned(self._lvm.details_of(volume.name), volume)

    def revert(self, snapshot: Snapshot) -> None:
        """Replace the volume by a copy of the snapshot."""
        name = Volume(snapshot.volume_id, 0).name
        copy, present = name + names.REVERT, self._owned(name, snapshot.name)
        if name not in present and copy not in present:
            raise UnknownDisk(snapshot.volume_id)
        if snapshot.name not in present:
            raise UnknownSnapshot(snapshot.id)
        if name not in present:
            self._rename_copy(name)
        elif copy in present:
            self._lvm.remove(copy)
        self._lvm.snapshot_thin(copy, snapshot.name, skip_activation=False)
        self._remove_volume(name, copy)
        self._rename_copy(name)

    def _owned(self, name: str, snapshot: str) -> set[str]:
        present = self._lvm.details_of(name, snapshot)
        return {lv for lv, row in present.items() if self._thin.owns(row)}

    def _remove_volume(self, name: str, copy: str) -> None:
        """Remove the old volume; if that fails, remove its copy, and raise.

        If the volume is gone nevertheless, its copy is all that is left of it: another
        call has removed it, or lvremove failed after its commit (it sends the pool's
        message after that: lv_remove_single in lib/metadata/lv_manip.c).
        """
        try:
            self._lvm.remove(name)
        except CommandFailed as error:
            if command_errors.not_found(error) or name not in self._lvm.details_of(
                name
            ):
                return
            self._lvm.remove(copy)
            raise

    def finish_reverts(self, found: Iterable[LogicalVolume]) -> bool:
        """Finish reverts that were killed; return whether there were any."""
        existing = {lv.name for lv in found if self._thin.owns(lv)}
        unfinished = [
            name
            for part in existing
            if names.volume_id(name := part.removesuffix(names.REVERT))
            and name not in existing
        ]
        for name in unfinished:
            self._rename_copy(name)
        return bool(unfinished)

    def _rename_copy(self, name: str) -> None:
        """Rename ``<name>.revert`` to ``name``.

        ``check`` runs at the same time as reverts and may do this too. The second of
        the two finds it done.
        """
        try:
            self._lvm.rename(name + names.REVERT, name)
        except CommandFailed as error:
            if not (command_errors.exists(error) or command_errors.not_found(error)):
                raise

    def _explain(
        self, error: CommandFailed, volume: Volume, snapshot: Snapshot
    ) -> None:
        """Raise why a copy was not created; return if the copy exists already."""
        present = self._lvm.details_of(volume.name, snapshot.name)
        self._thin.require_owned(present, volume)
        if volume.name in present:
            return
        source = present.get(snapshot.name)
        if source is None or not self._thin.owns(source):
            raise UnknownSnapshot(snapshot.id) from error
        raise error
