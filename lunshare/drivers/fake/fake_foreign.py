# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign disks and snapshots of the fake driver: managed and unmanaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lunshare.drivers.base import VolumeDriver
from lunshare.drivers.errors import (
    CommandFailed,
    DiskBusy,
    LostSnapshot,
    UnknownReference,
)
from lunshare.drivers.fake.fake_storage import Failures, FakeDisk, FakeStorage
from lunshare.drivers.values import (
    Disk,
    DiskKind,
    Manageable,
    ManageableSnapshot,
    Snapshot,
    Volume,
    require_uuid,
)


class FakeForeign(VolumeDriver):
    """The part of the fake driver that renames; ``FakeVolumes`` has the rest."""

    storage: FakeStorage
    failures: Failures

    def manageable(self) -> tuple[Manageable, ...]:
        with self._io(write=False):
            return tuple(
                Manageable(name, disk.size)
                for name, disk in self.storage.foreign_disks.items()
            )

    def manage(self, volume: Volume, reference: str) -> Disk:
        self.failures.at("manage.before")
        with self._io(write=True):
            disk = self.storage.disks.get(volume.id)
            if disk is None:
                disk = self._rename_foreign(volume, reference)
                self.storage.put(self.storage.disks, volume.id, disk)
        self.failures.at("manage.after")
        return self._as_disk(volume.id, disk)

    def _rename_foreign(self, volume: Volume, reference: str) -> FakeDisk:
        if reference in self.storage.open:
            raise DiskBusy(volume.id, f"{reference} is open; end its use first")
        disk = self.storage.foreign_disks.pop(reference, None)
        if disk is None:
            raise UnknownReference(reference, "no such disk exists")
        self.storage.foreign -= disk.size
        disk.complete = True
        return disk

    def unmanage(self, volume_id: str) -> None:
        self.failures.at("unmanage.before")
        require_uuid(volume_id)
        with self._io(write=True):
            self._require_closed(volume_id)
            disk = self.storage.disks.get(volume_id)
            self.storage.drop(volume_id)
            if disk:
                self.storage.foreign_disks[f"unmanaged-{volume_id}"] = disk
                self.storage.foreign += disk.size
        self.failures.at("unmanage.after")

    def manageable_snapshots(self) -> tuple[ManageableSnapshot, ...]:
        with self._io(write=False):
            return tuple(
                ManageableSnapshot(name, disk.size, disk.origin)
                for name, disk in self.storage.foreign_snapshots.items()
            )

    def manage_snapshot(self, snapshot: Snapshot, reference: str) -> None:
        self.failures.at("manage_snapshot.before")
        with self._io(write=True):
            if snapshot.id not in self.storage.snapshots:
                disk = self._pop_foreign_snapshot(snapshot, reference)
                self.storage.put(self.storage.snapshots, snapshot.id, disk)
        self.failures.at("manage_snapshot.after")

    def _pop_foreign_snapshot(self, snapshot: Snapshot, reference: str) -> FakeDisk:
        if reference in self.storage.open:
            raise DiskBusy(snapshot.volume_id, f"{reference} is open; end its use")
        disk = self.storage.foreign_snapshots.get(reference)
        if disk is None or disk.origin != snapshot.volume_id:
            why = f"volume {snapshot.volume_id} has no such foreign snapshot"
            raise UnknownReference(reference, why)
        self.storage.foreign -= disk.size
        return self.storage.foreign_snapshots.pop(reference)

    def unmanage_snapshot(self, snapshot: Snapshot) -> None:
        self.failures.at("unmanage_snapshot.before")
        with self._io(write=True):
            disk = self.storage.snapshots.get(snapshot.id)
            if disk is not None:
                self._rename_to_foreign(snapshot, disk)
        self.failures.at("unmanage_snapshot.after")

    def _rename_to_foreign(self, snapshot: Snapshot, disk: FakeDisk) -> None:
        if snapshot.id in self.storage.open:
            raise DiskBusy(snapshot.volume_id, f"snapshot {snapshot.id} is open")
        if disk.lost:
            raise LostSnapshot(snapshot.id, "a test removed them")
        self.storage.remove(self.storage.snapshots, snapshot.id)
        disk.origin = snapshot.volume_id
        self.storage.foreign_snapshots[f"unmanaged-{snapshot.id}"] = disk
        self.storage.foreign += disk.size

    @contextmanager
    def _io(self, *, write: bool) -> Iterator[None]:
        """Hold the storage's lock for one access; raise its errors as DriverErrors."""
        try:
            with self.storage.io(write=write):
                yield
        except OSError as error:
            raise CommandFailed(("fake", self.name), 5, str(error)) from error

    def _require_closed(self, volume_id: str) -> None:
        if volume_id in self.storage.exports or volume_id in self.storage.open:
            raise DiskBusy(volume_id, "its disk is open; remove its export first")

    def _as_disk(self, volume_id: str, disk: FakeDisk) -> Disk:
        path = f"/dev/fake-{self.name}/volume-{volume_id}"
        return Disk(volume_id, path, disk.size, DiskKind.BLOCK)
