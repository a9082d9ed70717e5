# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that use volumes of another backend in the same pool."""

from __future__ import annotations

from lunshare.drivers.errors import UnknownDisk, UnknownReference, UnknownSnapshot
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import storage
from lunshare.drivers.values import Disk
from tests.conformance.mutants.caught import caught_by
from tests.conformance.mutants.manage import Wiping


class _WithOtherBackend(FakeVolumes):
    @property
    def beside(self):
        return storage(f"{self.name}-beside")


@caught_by("a_volume_of_another_backend_is_not_listed")
class ListsVolumesOfOtherBackends(_WithOtherBackend):
    def disks(self):
        theirs = self.beside.disks.items()
        return (*super().disks(), *(self._as_disk(key, disk) for key, disk in theirs))


@caught_by("a_volume_of_another_backend_is_not_changed")
class DeletesVolumesOfOtherBackends(_WithOtherBackend):
    def delete(self, volume_id):
        super().delete(volume_id)
        self.beside.drop(volume_id)


@caught_by("a_volume_of_another_backend_is_not_changed")
class FindsVolumesOfOtherBackends(_WithOtherBackend):
    def disk(self, volume_id):
        try:
            return super().disk(volume_id)
        except UnknownDisk:
            if volume_id not in self.beside.disks:
                raise
            return Disk(volume_id, f"/dev/fake/volume-{volume_id}", 0)


@caught_by("a_volume_of_another_backend_is_not_managed_or_unmanaged")
class ManagesVolumesOfOtherBackends(_WithOtherBackend):
    def manage(self, volume, reference):
        try:
            return super().manage(volume, reference)
        except UnknownReference:
            disk = self.beside.disks.pop(reference.removeprefix("volume-"), None)
            if disk is None:
                raise
            self.storage.put(self.storage.disks, volume.id, disk)
            return self._as_disk(volume.id, disk)


@caught_by("a_snapshot_of_another_backend_is_not_used_or_deleted")
class CopiesSnapshotsOfOtherBackends(_WithOtherBackend):
    def _intact_snapshot(self, snapshot):
        try:
            return super()._intact_snapshot(snapshot)
        except UnknownSnapshot:
            if snapshot.id not in self.beside.snapshots:
                raise
            return self.beside.snapshots[snapshot.id]


@caught_by("a_deleted_disk_of_another_backend_is_not_wiped")
class WipesDisksOfOtherBackends(Wiping, _WithOtherBackend):
    def wipe(self, name, most):
        self.beside.deleted.pop(name, None)
        return super().wipe(name, most)
