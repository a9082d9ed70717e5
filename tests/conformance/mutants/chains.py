# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about several snapshots of one volume."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from tests.conformance.mutants.caught import caught_by


class Chained(FakeVolumes):
    """Remembers the snapshots of each volume, oldest first."""

    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        chain = self._chain(snapshot.volume_id)
        if snapshot.id not in chain:
            chain.append(snapshot.id)

    def _chain(self, volume_id):
        chains = vars(self.storage).setdefault("chains", {})
        return chains.setdefault(volume_id, [])

    def _neighbours(self, snapshot_id):
        """The older and the newer snapshots of the same volume that exist."""
        for chain in vars(self.storage).get("chains", {}).values():
            if snapshot_id in chain:
                number = chain.index(snapshot_id)
                return self._stored(chain[:number]), self._stored(chain[number + 1 :])
        return [], []

    def _stored(self, keys):
        snapshots = self.storage.snapshots
        return [snapshots[key] for key in keys if key in snapshots]


def lose_shared(disks, deleted):
    """Lose the blocks that only ``deleted`` stored for all of them."""
    for disk in disks:
        for number, block in (deleted.blocks or {}).items():
            if (disk.blocks or {}).get(number) == block:
                del disk.blocks[number]


@caught_by("delete_and_revert_preserve_other_snapshots")
class DeleteTakesTheOlderSnapshotsBlocks(Chained):
    def delete_snapshot(self, snapshot_id):
        if deleted := self.storage.snapshots.get(snapshot_id):
            lose_shared(self._neighbours(snapshot_id)[0], deleted)
        super().delete_snapshot(snapshot_id)


@caught_by("delete_and_revert_preserve_other_snapshots")
class DeleteTakesTheNewerSnapshotsBlocks(Chained):
    def delete_snapshot(self, snapshot_id):
        if deleted := self.storage.snapshots.get(snapshot_id):
            lose_shared(self._neighbours(snapshot_id)[1], deleted)
        super().delete_snapshot(snapshot_id)


@caught_by("delete_and_revert_preserve_other_snapshots")
class DeleteMergesIntoTheOlderSnapshot(Chained):
    """As a chain of overlay files that is committed downwards."""

    def delete_snapshot(self, snapshot_id):
        deleted = self.storage.snapshots.get(snapshot_id)
        older, _ = self._neighbours(snapshot_id)
        if deleted and older:
            older[-1].blocks = deleted.copy().blocks
        super().delete_snapshot(snapshot_id)


@caught_by("delete_and_revert_preserve_other_snapshots")
class DeleteTakesAllOlderSnapshots(Chained):
    def delete_snapshot(self, snapshot_id):
        older, _ = self._neighbours(snapshot_id)
        for key in [k for k, v in self.storage.snapshots.items() if v in older]:
            super().delete_snapshot(key)
        super().delete_snapshot(snapshot_id)


@caught_by("delete_and_revert_preserve_other_snapshots")
class RevertDeletesNewerSnapshots(Chained):
    """As ``zfs rollback -r``."""

    def revert(self, snapshot):
        disk = super().revert(snapshot)
        _, newer = self._neighbours(snapshot.id)
        for key in [k for k, v in self.storage.snapshots.items() if v in newer]:
            self.storage.remove(self.storage.snapshots, key)
        return disk
