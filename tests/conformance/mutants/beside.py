# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that take what is a neighbour's in their pool for their own."""

from __future__ import annotations

from lunshare.drivers.errors import UnknownDisk, UnknownReference, UnknownSnapshot
from lunshare.drivers.fake import FakeVolumes
from lunshare.drivers.fake_storage import storage
from lunshare.drivers.values import Disk
from tests.conformance.mutants.handing import Wiping


class _Beside(FakeVolumes):
    @property
    def beside(self):
        return storage(f"{self.name}-beside")


class ListsTheNeighbours(_Beside):
    def disks(self):
        theirs = self.beside.disks.items()
        return (*super().disks(), *(self._as_disk(key, disk) for key, disk in theirs))


class DeletesTheNeighbours(_Beside):
    def delete(self, volume_id):
        super().delete(volume_id)
        self.beside.drop(volume_id)


class FindsTheNeighbours(_Beside):
    def disk(self, volume_id):
        try:
            return super().disk(volume_id)
        except UnknownDisk:
            if volume_id not in self.beside.disks:
                raise
            return Disk(volume_id, f"/dev/fake/volume-{volume_id}", 0)


class AdoptsTheNeighbours(_Beside):
    def manage(self, volume, reference):
        try:
            return super().manage(volume, reference)
        except UnknownReference:
            disk = self.beside.disks.pop(reference.removeprefix("volume-"), None)
            if disk is None:
                raise
            self.storage.put(self.storage.disks, volume.id, disk)
            return self._as_disk(volume.id, disk)


class CopiesTheNeighboursSnapshot(_Beside):
    def _intact_snapshot(self, snapshot):
        try:
            return super()._intact_snapshot(snapshot)
        except UnknownSnapshot:
            if snapshot.id not in self.beside.snapshots:
                raise
            return self.beside.snapshots[snapshot.id]


class WipesTheNeighbours(Wiping, _Beside):
    def wipe(self, name, most):
        self.beside.deleted.pop(name, None)
        return super().wipe(name, most)


BESIDE = [
    (ListsTheNeighbours, "a_neighbours_volume_is_not_listed"),
    (DeletesTheNeighbours, "a_neighbours_volume_is_not_changed"),
    (FindsTheNeighbours, "a_neighbours_volume_is_not_changed"),
    (AdoptsTheNeighbours, "a_neighbours_volume_is_neither_taken_nor_given_away"),
    (
        CopiesTheNeighboursSnapshot,
        "a_neighbours_snapshot_is_no_source_and_is_not_deleted",
    ),
    (WipesTheNeighbours, "a_neighbours_disk_that_is_wiped_is_not_ours_to_wipe"),
]
