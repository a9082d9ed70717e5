# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that lose, keep or show bytes far from the start, or in a tail."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import BLOCK
from lunshare.drivers.values import GIB, Volume
from tests.conformance.mutants.caught import caught_by

MIB = 1 << 20


class Thin(FakeVolumes):
    bound = {"options": {"fake_thin": True, "fake_capacity_gb": 1}}


def cut(disk, size):
    """Lose the blocks from ``size`` on."""
    for number in [n for n in disk.blocks or {} if n * BLOCK >= size]:
        del disk.blocks[number]


@caught_by("copies_and_reverts_have_far_bytes")
class SnapshotKeepsOneGib(Thin):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        cut(self.storage.snapshots[snapshot.id], GIB)


@caught_by("copies_and_reverts_have_far_bytes")
class CreateFromCopiesOneGib(Thin):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        cut(self.storage.disks[volume.id], GIB)
        return disk


@caught_by("a_new_volume_shows_no_far_bytes_of_a_deleted_one")
class FillCopiesOneGib(Thin):
    """And verifies that."""

    def _verify_copy(self, volume_id, source):
        cut(self.storage.disks[volume_id], GIB)
        cut(source, GIB)
        super()._verify_copy(volume_id, source)


@caught_by("copies_and_reverts_have_far_bytes")
class RevertRestoresOneGib(Thin):
    def revert(self, snapshot):
        old = self.storage.disks[snapshot.volume_id].blocks or {}
        disk = super().revert(snapshot)
        stored = self.storage.disks[snapshot.volume_id]
        cut(stored, GIB)
        far = {number: old[number] for number in old if number * BLOCK >= GIB}
        stored.blocks = (stored.blocks or {}) | far
        return disk


@caught_by("revert_restores_the_size")
class ExtensionAfterARevertShowsOldBytes(Thin):
    """The disk grows over what it held before the revert."""

    def revert(self, snapshot):
        old = self.storage.disks[snapshot.volume_id].blocks or {}
        disk = super().revert(snapshot)
        tails = vars(self.storage).setdefault("tails", {})
        tail = [number for number in old if number * BLOCK >= disk.size]
        tails[disk.volume_id] = {number: old[number] for number in tail}
        return disk

    def extend(self, volume):
        disk = super().extend(volume)
        tail = vars(self.storage).setdefault("tails", {}).pop(volume.id, {})
        stored = self.storage.disks[volume.id]
        for number, block in tail.items():
            if (number + 1) * BLOCK <= stored.size:
                stored.write(number * BLOCK, bytes(block))
        return disk


class Stale(Thin):
    """Remembers the bytes of the volume that was deleted last."""

    def delete(self, volume_id):
        old = self.storage.disks.get(volume_id)
        super().delete(volume_id)
        if old is not None and old.blocks:
            vars(self.storage)["old"] = old.copy().blocks

    def show_old(self, volume_id, first):
        """Show them from byte ``first`` on."""
        stored = self.storage.disks[volume_id]
        for number, block in vars(self.storage).get("old", {}).items():
            if first <= number * BLOCK <= stored.size - BLOCK:
                stored.write(number * BLOCK, bytes(block))


@caught_by("a_new_volume_shows_no_far_bytes_of_a_deleted_one")
class CreateShowsADeletedVolumesBytesBeyondOneGib(Stale):
    """Only the first GiB of a reused disk is zeroed."""

    def create(self, volume):
        present = volume.id in self.storage.disks
        disk = super().create(volume)
        if not present:
            self.show_old(volume.id, GIB)
        return disk


@caught_by("extend_into_freed_space_shows_no_old_bytes")
class ExtensionShowsADeletedVolumesBytes(Stale):
    """Only the first MiB of what was added is zeroed."""

    def extend(self, volume):
        size = super().disk(volume.id).size
        disk = super().extend(volume)
        self.show_old(volume.id, size + MIB)
        return disk


@caught_by("copies_and_reverts_have_far_bytes")
class CreateFromDropsAnIncompleteMib(Thin):
    """It copies in steps of 1 MiB, and not the part of a step at the end."""

    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        if stored := self.storage.snapshots.get(snapshot.id):
            cut(self.storage.disks[volume.id], stored.size // MIB * MIB)
        return disk


@caught_by("a_new_volume_shows_no_far_bytes_of_a_deleted_one")
class FillDropsAnIncompleteMib(Thin):
    def _verify_copy(self, volume_id, source):
        for disk in (self.storage.disks[volume_id], source):
            cut(disk, source.size // MIB * MIB)
        super()._verify_copy(volume_id, source)


@caught_by("a_new_volume_shows_no_far_bytes_of_a_deleted_one")
class FillSkipsBlocksThatStartWithZeros(Thin):
    """It takes a block for a hole if its first sector is empty."""

    def _write(self, volume_id, blocks):
        super()._write(volume_id, [item for item in blocks if any(item[1][:512])])

    def _verify_copy(self, volume_id, source):
        return None


@caught_by("copies_and_reverts_have_far_bytes")
class CreateFromSkipsBlocksThatStartWithZeros(Thin):
    def create_from(self, volume, snapshot):
        disk = super().create_from(volume, snapshot)
        blocks = self.storage.disks[volume.id].blocks or {}
        for number in [n for n, block in blocks.items() if not any(block[:512])]:
            del blocks[number]
        return disk


@caught_by("a_new_volume_shows_no_far_bytes_of_a_deleted_one")
class ManageKeepsOneGib(Thin):
    def manage(self, volume: Volume, reference):
        disk = super().manage(volume, reference)
        cut(self.storage.disks[volume.id], GIB)
        return disk
