# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Broken volume drivers by an author who had not seen the kit."""

from __future__ import annotations

from typing import Any

from lunshare.drivers.errors import DriverError
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import BLOCK, FakeDisk
from lunshare.drivers.values import Disk
from tests.conformance.mutants.caught import caught_by


class Plain(FakeVolumes):
    """Snapshots know their volume, as in most storages."""

    bound = {"options": {"fake_thin": True, "fake_capacity_gb": 1}}

    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        self.storage.snapshots[snapshot.id].origin = snapshot.volume_id

    def snapshots_of(self, volume_id):
        snapshots = self.storage.snapshots.items()
        return [key for key, disk in snapshots if disk.origin == volume_id]

    def known(self, name, empty):
        """What the storage remembers under that name."""
        return vars(self.storage).setdefault(name, empty)


class CopyFrom(Plain):
    """Does something to each new volume that is created from a snapshot."""

    def create_from(self, volume, snapshot):
        new = volume.id not in self.storage.disks
        disk = super().create_from(volume, snapshot)
        stored = self.storage.snapshots.get(snapshot.id)
        if new and stored is not None:
            self.change(self.storage.disks[volume.id], stored, snapshot)
        return disk

    def change(self, made, stored, snapshot):
        raise NotImplementedError


class Revert(Plain):
    """Does something to each volume that is reverted."""

    def revert(self, snapshot):
        old = dict(self.storage.disks[snapshot.volume_id].blocks or {})
        disk = super().revert(snapshot)
        stored = self.storage.snapshots[snapshot.id]
        self.change(self.storage.disks[snapshot.volume_id], stored, old)
        return disk

    def change(self, made, stored, old):
        raise NotImplementedError


@caught_by("delete_and_revert_preserve_other_snapshots")
class OlderTakesFromNewer(Plain):
    """Deleting a snapshot frees blocks that a newer one shares with it."""

    def delete_snapshot(self, snapshot_id):
        gone = self.storage.snapshots.get(snapshot_id)
        super().delete_snapshot(snapshot_id)
        if gone is None:
            return
        for key in self.snapshots_of(gone.origin):
            mine = self.storage.snapshots[key].blocks or {}
            live = self.storage.disks[gone.origin].blocks or {}
            for number, block in (gone.blocks or {}).items():
                if mine.get(number) == block != live.get(number):
                    del mine[number]


class Through(FakeDisk):
    """A snapshot whose blocks exist as long as its volume has some there."""

    __slots__ = ("live", "own")
    live: FakeDisk
    own: Any

    @property
    def blocks(self):
        live = self.live.blocks or {}
        return {n: block for n, block in (self.own or {}).items() if n in live}

    @blocks.setter
    def blocks(self, value):
        self.own = value


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class DiscardReachesSnapshot(Plain):
    def create_snapshot(self, snapshot):
        new = snapshot.id not in self.storage.snapshots
        super().create_snapshot(snapshot)
        if new:
            old = self.storage.snapshots[snapshot.id]
            through = Through(old.size)
            through.own, through.origin = old.blocks, old.origin
            through.live = self.storage.disks[snapshot.volume_id]
            self.storage.snapshots[snapshot.id] = through


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertForgetsDiscarded(Revert):
    """It restores blocks that were overwritten, not those that were discarded."""

    def change(self, made, stored, old):
        made.blocks = {n: b for n, b in (made.blocks or {}).items() if n in old}


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertKeepsNewBlocks(Revert):
    """It copies the snapshot's data and skips its holes."""

    def change(self, made, stored, old):
        inside = {n: b for n, b in old.items() if (n + 1) * BLOCK <= made.size}
        made.blocks = inside | (made.blocks or {})


@caught_by("revert_restores_the_size")
class RevertHidesTail(Revert):
    """The next extension shows it again."""

    def change(self, made, stored, old):
        tail = {n: b for n, b in old.items() if n * BLOCK >= made.size}
        made.blocks = tail | (made.blocks or {})


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertSharesWithSnapshot(Revert):
    def change(self, made, stored, old):
        made.blocks = dict(stored.blocks or {})


@caught_by("copied_and_reverted_disks_survive_a_power_cut")
class RevertUnflushed(Revert):
    def change(self, made, stored, old):
        made.unflushed = set(made.blocks or ())


@caught_by("a_volume_from_a_snapshot_is_independent")
class CopySharesBlocks(CopyFrom):
    """Small writes to the volume change the snapshot."""

    def change(self, made, stored, snapshot):
        made.blocks = dict(stored.blocks or {})


@caught_by("a_volume_from_a_snapshot_is_independent")
class CopiesShareOverlay(CopyFrom):
    """All volumes of one snapshot share one overlay."""

    def change(self, made, stored, snapshot):
        overlays = self.known("overlays", {})
        made.blocks = overlays.setdefault(snapshot.id, made.blocks or {})


@caught_by("copies_and_reverts_have_far_bytes")
class CopyWrapsAt4GiB(CopyFrom):
    """An offset has 32 bits."""

    def change(self, made, stored, snapshot):
        made.blocks = {n % (1 << 20): b for n, b in (made.blocks or {}).items()}


@caught_by("copies_and_reverts_have_far_bytes")
class CopyGuessesZeros(CopyFrom):
    """It takes a block for a hole if its first sector is empty."""

    def change(self, made, stored, snapshot):
        blocks = (made.blocks or {}).items()
        made.blocks = {number: block for number, block in blocks if any(block[:512])}


@caught_by("several_volumes_can_be_created_from_snapshots_at_once")
class CopiesShareStaging(Plain):
    """The driver has one staging buffer."""

    def _create_copy(self, verb, volume, origin):
        def staged():
            self.staging = origin()
            return self.staging

        new = volume.id not in self.storage.disks
        disk = super()._create_copy(verb, volume, staged)
        if new:
            self.storage.disks[volume.id].blocks = self.staging.copy().blocks
        return disk


@caught_by("delete_removes_the_disk")
class DeleteByPrefix(Plain):
    """The storage cuts names."""

    def delete(self, volume_id):
        super().delete(volume_id)
        for key in [k for k in self.storage.disks if k[:23] == volume_id[:23]]:
            self.storage.drop(key)


@caught_by("a_volume_from_a_snapshot_is_independent")
class OneNameSpace(Plain):
    """A volume and a snapshot of one id have one name."""

    def delete(self, volume_id):
        super().delete(volume_id)
        self.storage.remove(self.storage.snapshots, volume_id)


@caught_by("extend_into_freed_space_shows_no_old_bytes")
class GrowthShowsDeleted(Plain):
    def delete(self, volume_id):
        gone = self.storage.disks.get(volume_id)
        super().delete(volume_id)
        self.known("freed", []).extend((gone.blocks or {}).values() if gone else ())

    def extend(self, volume):
        before = self.disk(volume.id).size
        disk = super().extend(volume)
        made, freed = self.storage.disks[volume.id], self.known("freed", [])
        for at in range(before, disk.size if freed else 0, BLOCK):
            made.write(at, bytes(freed[at // BLOCK % len(freed)]))
        return disk


@caught_by("manage_preserves_the_bytes_of_a_disk")
class ManagesBySubstring(Plain):
    def _rename_foreign(self, volume, reference):
        found = [n for n in self.storage.foreign_disks if reference in n]
        return super()._rename_foreign(volume, (found or [reference])[0])


@caught_by("an_unmanaged_volume_can_be_managed_again")
class UnmanageDropsSnapshots(Plain):
    def unmanage(self, volume_id):
        super().unmanage(volume_id)
        for key in self.snapshots_of(volume_id):
            self.storage.remove(self.storage.snapshots, key)


@caught_by("an_unmanaged_snapshot_can_be_managed_again")
class ManagedSnapshotIsNew(Plain):
    """It has the volume's bytes of now."""

    def manage_snapshot(self, snapshot, reference):
        new = snapshot.id not in self.storage.snapshots
        super().manage_snapshot(snapshot, reference)
        if new:
            copy = self.storage.disks[snapshot.volume_id].copy()
            self.storage.put(self.storage.snapshots, snapshot.id, copy)


@caught_by("a_retried_create_from_changes_nothing")
class RepeatCopiesAgain(Plain):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if stored := self.storage.snapshots.get(snapshot.id):
            self.storage.disks[volume.id].blocks = stored.copy().blocks
        return disk


@caught_by("fill_copies_all_bytes")
class FillIgnoresVerification(Plain):
    def _verify_copy(self, volume_id, source):
        try:
            super()._verify_copy(volume_id, source)
        except DriverError:
            return


@caught_by("capacity_reports_a_full_pool")
class StaleCapacity(Plain):
    """It is read once."""

    stale = None

    def capacity(self):
        self.stale = self.stale or super().capacity()
        return self.stale


@caught_by("many_threads_can_create_and_delete_volumes")
class FirstPage(Plain):
    """The storage's list has pages of 100."""

    def disks(self):
        return super().disks()[:100]


@caught_by("extend_to_a_smaller_size_changes_nothing")
class ExtendSaysWanted(Plain):
    """It returns the size that was asked for."""

    def extend(self, volume):
        disk = super().extend(volume)
        return Disk(disk.volume_id, disk.path, volume.size, disk.kind)


@caught_by("a_new_volume_shows_no_bytes_of_a_deleted_one")
class DeletesLater(Plain):
    """It deletes once more, by name, in the next delete."""

    def delete(self, volume_id):
        later = self.known("later", set())
        for key in later - {volume_id}:
            self.storage.drop(key)
        super().delete(volume_id)
        later.add(volume_id)


@caught_by("a_deleted_disk_is_wiped_in_steps")
class WipesForgotten(Plain):
    """It lists what this process deleted."""

    bound = {"options": {"fake_capacity_gb": 1, "fake_wipe": True}}

    def __init__(self, *given):
        super().__init__(*given)
        self.earlier = set(self.storage.deleted)

    def wipes(self):
        return tuple(w for w in super().wipes() if w.name not in self.earlier)


@caught_by("a_retried_clone_changes_nothing")
class CloneIsNewestSnapshot(Plain):
    bound = {"options": {"fake_capacity_gb": 1, "fake_clones_at_once": True}}

    def clone(self, volume, source):
        if keys := self.snapshots_of(source.id):
            newest = self.storage.snapshots[keys[-1]]
            return self._create_copy("clone", volume, lambda: newest)
        return super().clone(volume, source)
