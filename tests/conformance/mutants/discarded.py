# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers that break a promise about bytes that a host discards."""

from __future__ import annotations

from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.fake.fake_storage import BLOCK
from tests.conformance.mutants.caught import caught_by


class Discarding(FakeVolumes):
    """Sees the discards of hosts."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        whole = type(self.storage).discard

        def discard(volume_id, offset, length):
            self.before_discard(volume_id, offset, length)
            whole(self.storage, volume_id, offset, length)

        vars(self.storage)["discard"] = discard

    def before_discard(self, volume_id, offset, length):
        """What the driver does wrong."""


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class DiscardsReachSnapshots(Discarding):
    def create_snapshot(self, snapshot):
        super().create_snapshot(snapshot)
        origins = vars(self.storage).setdefault("origins", {})
        origins[snapshot.id] = snapshot.volume_id

    def before_discard(self, volume_id, offset, length):
        for key, origin in vars(self.storage).get("origins", {}).items():
            if origin == volume_id and key in self.storage.snapshots:
                self.storage.snapshots[key].discard(offset, length)


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class DiscardsReachCopies(Discarding):
    """A copy and its source share bytes until one of them is written."""

    def create_from(self, volume, snapshot):
        copies = vars(self.storage).setdefault("copies", {})
        copies[volume.id] = snapshot.volume_id
        return super().create_from(volume, snapshot)

    def before_discard(self, volume_id, offset, length):
        for key, origin in vars(self.storage).get("copies", {}).items():
            if origin == volume_id and key in self.storage.disks:
                self.storage.disks[key].discard(offset, length)


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertForgetsDiscards(Discarding):
    """It writes back what was written since the snapshot, not what was discarded."""

    def before_discard(self, volume_id, offset, length):
        gone = vars(self.storage).setdefault("gone", {})
        gone.setdefault(volume_id, []).append((offset, length))

    def revert(self, snapshot):
        disk = super().revert(snapshot)
        gone = vars(self.storage).get("gone", {})
        for offset, length in gone.get(disk.volume_id, ()):
            if offset + length <= disk.size:
                self.storage.disks[disk.volume_id].discard(offset, length)
        return disk


@caught_by("revert_restores_the_bytes_and_preserves_the_snapshot")
class RevertKeepsWhatTheSnapshotDoesNotHave(FakeVolumes):
    """It copies the snapshot's blocks back, and leaves its holes as they are."""

    def revert(self, snapshot):
        old = self.storage.disks[snapshot.volume_id].blocks or {}
        disk = super().revert(snapshot)
        stored = self.storage.disks[snapshot.volume_id]
        for number in old.keys() - (stored.blocks or {}).keys():
            if (number + 1) * BLOCK <= stored.size:
                stored.write(number * BLOCK, bytes(old[number]))
        return disk


@caught_by("a_snapshot_does_not_change_when_its_volume_is_written")
class DiscardedBytesComeBackAfterASnapshot(Discarding):
    """The snapshot is of what was written, without the holes that were discarded."""

    def before_discard(self, volume_id, offset, length):
        disk = self.storage.disks[volume_id]
        data = disk.read(offset, length)
        gone = vars(self.storage).setdefault("gone", {})
        gone.setdefault(volume_id, []).append((offset, data))

    def create_snapshot(self, snapshot):
        present = snapshot.id in self.storage.snapshots
        super().create_snapshot(snapshot)
        gone = vars(self.storage).get("gone", {}).get(snapshot.volume_id, ())
        stored = self.storage.snapshots[snapshot.id]
        for offset, data in gone:
            if not present and not any(stored.read(offset, len(data))):
                stored.write(offset, data)
