# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""More broken volume drivers as in ``blind``, of other kinds."""

from __future__ import annotations

from lunshare.drivers.fake.fake_storage import BLOCK
from tests.conformance.mutants.blind import CopyFrom, Plain
from tests.conformance.mutants.caught import caught_by


@caught_by("revert_restores_the_size")
class ExtendReachesSnapshots(Plain):
    """The last MiB of the old part becomes that of the volume in its snapshots."""

    def extend(self, volume):
        live = self.storage.disks.get(volume.id)
        old = live.size if live else 0
        disk = super().extend(volume)
        at = old - (1 << 20)
        for key in self.snapshots_of(volume.id) if disk.size > old else ():
            last = self.storage.read(volume.id, at, 1 << 20)
            self.storage.snapshots[key].write(at, last)
        return disk


class WithParents(CopyFrom):
    """Knows from which snapshot each volume was created."""

    def change(self, made, stored, snapshot):
        (key,) = [k for k, disk in self.storage.disks.items() if disk is made]
        self.known("parents", {})[key] = snapshot.id


@caught_by("delete_of_an_incomplete_copy_frees_its_space")
class DeleteOfCopyDropsSnapshot(WithParents):
    """That of the last copy, as if the snapshot were temporary."""

    def delete(self, volume_id):
        super().delete(volume_id)
        parents = self.known("parents", {})
        parent = parents.pop(volume_id, None)
        if parent and parent not in parents.values():
            self.storage.remove(self.storage.snapshots, parent)


@caught_by("delete_and_revert_preserve_other_snapshots")
class RevertTakesCopies(WithParents):
    def revert(self, snapshot):
        disk = super().revert(snapshot)
        for key, parent in self.known("parents", {}).items():
            if parent == snapshot.id and key in self.storage.disks:
                stored = self.storage.snapshots[parent].copy()
                self.storage.disks[key].blocks = stored.blocks
        return disk


@caught_by("a_retried_extend_changes_nothing")
class SizesCachedByInstance(Plain):
    """Another process may have extended the disk."""

    def __init__(self, *given):
        super().__init__(*given)
        self.seen = {}

    def disk(self, volume_id):
        disk = super().disk(volume_id)
        return self.seen.setdefault(volume_id, disk)

    def extend(self, volume):
        self.seen.pop(volume.id, None)
        return super().extend(volume)


@caught_by("manageable_lists_a_disk_with_its_size")
class ManageTruncates(Plain):
    def _rename_foreign(self, volume, reference):
        disk = super()._rename_foreign(volume, reference)
        disk.size = min(disk.size, volume.size)
        return disk


@caught_by("snapshots_survive_a_restart")
class CheckCleansUp(Plain):
    """It takes a snapshot with the id of a volume for what a clone has left."""

    def check(self):
        super().check()
        for key in self.storage.snapshots.keys() & self.storage.disks.keys():
            self.storage.remove(self.storage.snapshots, key)


@caught_by("copies_and_reverts_have_far_bytes")
class SnapshotHasOldSize(Plain):
    """It has the size with which the volume was created."""

    def create(self, volume):
        disk = super().create(volume)
        self.known("sizes", {}).setdefault(volume.id, disk.size)
        return disk

    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        made = self.storage.snapshots[snapshot.id]
        size = self.known("sizes", {}).get(snapshot.volume_id, made.size)
        blocks = (made.blocks or {}).items()
        made.blocks = {n: block for n, block in blocks if n * BLOCK < size}
