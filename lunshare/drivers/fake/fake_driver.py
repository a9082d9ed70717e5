# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A complete volume driver in memory, for tests and benchmarks.

It passes the same conformance kit as real drivers. Its disks are in
lunshare.drivers.fake.fake_storage.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root
from lunshare.drivers.errors import (
    CommandFailed,
    LostSnapshot,
    Misconfigured,
    NoSpace,
    UnknownDisk,
    UnknownSnapshot,
)
from lunshare.drivers.fake.fake_foreign import FakeForeign
from lunshare.drivers.fake.fake_storage import (
    BLOCK,
    Failures,
    FakeDisk,
    disk_at,
    storage,
)
from lunshare.drivers.values import (
    GIB,
    Capacity,
    Disk,
    Snapshot,
    Volume,
    Wipe,
    require_uuid,
)

_OPTIONS = [
    cfg.IntOpt(
        "fake_capacity_gb", default=1000, help="Size of the pool in memory, in GiB."
    ),
    cfg.BoolOpt(
        "fake_thin",
        default=True,
        help="Whether space is used as it is written, or all at creation.",
    ),
    cfg.BoolOpt(
        "fake_clones_at_once",
        default=False,
        help="Whether a clone is one step, without a temporary snapshot.",
    ),
    cfg.BoolOpt(
        "fake_wipe",
        default=False,
        help="Whether a deleted disk uses space until it is wiped, step by step.",
    ),
]


class FakeVolumes(FakeForeign):
    """Disks in memory. ``failures`` can make each step fail or stop."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = _OPTIONS
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities(
        multiattach=True,
        supports_snapshots=True,
        snapshots_open=True,
        extends_open=True,
        extends_under_snapshots=True,
        manages=True,
        manages_snapshots=True,
        fills_from_blocks=True,
        discards=True,
        loses_snapshots=True,
    )

    #: At "create.half" the disk is incomplete.
    POINTS: ClassVar[tuple[str, ...]] = (
        "check",
        "create.before",
        "create.half",
        "create.after",
        "delete.before",
        "delete.after",
        "extend.before",
        "extend.after",
        "disk",
        "disks",
        "capacity",
        "create_snapshot.before",
        "create_snapshot.after",
        "delete_snapshot.before",
        "delete_snapshot.after",
        "create_from.before",
        "create_from.half",
        "create_from.after",
        "clone.before",
        "clone.half",
        "clone.after",
        "revert.before",
        "revert.after",
        "fill.before",
        "fill.half",
        "fill.after",
        "manage.before",
        "manage.after",
        "unmanage.before",
        "unmanage.after",
        "manage_snapshot.before",
        "manage_snapshot.after",
        "unmanage_snapshot.before",
        "unmanage_snapshot.after",
        "wipe.before",
        "wipe.after",
    )

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self.storage, self.failures = storage(name), Failures(self.POINTS)
        self._thin: bool = options["fake_thin"]
        self._total: int = options["fake_capacity_gb"] * GIB

    @property
    def abilities(self) -> VolumeAbilities:
        return replace(
            self.ABILITIES,
            reserves_space=not self.options["fake_thin"],
            clones_at_once=self.options["fake_clones_at_once"],
            wipes_deleted=self.options["fake_wipe"],
        )

    def check(self) -> None:
        self.failures.at("check")
        if self._total <= 0:
            raise Misconfigured("fake_capacity_gb is not positive", "give 1 or more")
        with self._io(write=False):
            pass

    def create(self, volume: Volume) -> Disk:
        self.failures.at("create.before")
        with self._io(write=True):
            disk = self.storage.disks.get(volume.id)
            self._require_space(volume.size - (disk.size if disk else 0))
            disk = self._create_or_extend(volume)
        self.failures.at("create.half")
        with self._io(write=True):
            disk.complete = True
        self.failures.at("create.after")
        return self._as_disk(volume.id, disk)

    def delete(self, volume_id: str) -> None:
        self.failures.at("delete.before")
        require_uuid(volume_id)
        with self._io(write=True):
            self._require_closed(volume_id)
            disk = self.storage.disks.get(volume_id)
            self.storage.drop(volume_id)
            if disk and self.options["fake_wipe"]:
                name = f"deleted-{uuid.uuid4()}"
                self.storage.put(self.storage.deleted, name, FakeDisk(disk.size))
        self.failures.at("delete.after")

    def extend(self, volume: Volume) -> Disk:
        self.failures.at("extend.before")
        with self._io(write=True):
            disk = self._complete_disk(volume.id)
            self._require_space(volume.size - disk.size)
            self._create_or_extend(volume)
        self.failures.at("extend.after")
        return self._as_disk(volume.id, disk)

    def disk(self, volume_id: str) -> Disk:
        self.failures.at("disk")
        return self._as_disk(volume_id, self._complete_disk(volume_id))

    def disks(self) -> tuple[Disk, ...]:
        self.failures.at("disks")
        with self._io(write=False):
            items = tuple(self.storage.disks.items())
        return tuple(self._as_disk(key, disk) for key, disk in items if disk.complete)

    def capacity(self) -> Capacity:
        self.failures.at("capacity")
        with self._io(write=False):
            free, provisioned = max(0, self._free()), self.storage.provisioned
        closed = "" if free or not self._thin else "the pool has no free space"
        return Capacity(self._total, free, provisioned, self._thin, closed)

    def create_snapshot(self, snapshot: Snapshot) -> None:
        self.failures.at("create_snapshot.before")
        with self._io(write=True):
            snapshots = self.storage.snapshots
            if snapshot.id not in snapshots:
                origin = self._complete_disk(snapshot.volume_id)
                self._require_space(origin.size)
                self.storage.put(snapshots, snapshot.id, origin.copy())
        self.failures.at("create_snapshot.after")

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.failures.at("delete_snapshot.before")
        require_uuid(snapshot_id, "snapshot id")
        with self._io(write=True):
            self.storage.remove(self.storage.snapshots, snapshot_id)
        self.failures.at("delete_snapshot.after")

    def snapshots(self) -> tuple[str, ...]:
        with self._io(write=False):
            return tuple(self.storage.snapshots)

    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        return self._create_copy(
            "create_from", volume, lambda: self._intact_snapshot(snapshot)
        )

    def clone(self, volume: Volume, source: Volume) -> Disk:
        if not self.abilities.clones_at_once:
            return super().clone(volume, source)
        return self._create_copy(
            "clone", volume, lambda: self._complete_disk(source.id)
        )

    def _create_copy(
        self, verb: str, volume: Volume, origin: Callable[[], FakeDisk]
    ) -> Disk:
        self.failures.at(f"{verb}.before")
        with self._io(write=True):
            disk = self.storage.disks.get(volume.id)
            if disk is None or not disk.complete:
                disk = origin().copy()
                self._require_space(max(volume.size, disk.size))
                self.storage.put(self.storage.disks, volume.id, disk)
        self.failures.at(f"{verb}.half")
        with self._io(write=True):
            self._create_or_extend(volume).complete = True
        self.failures.at(f"{verb}.after")
        return self._as_disk(volume.id, disk)

    def revert(self, snapshot: Snapshot) -> Disk:
        with self.storage.disk_lock(snapshot.volume_id):
            return self._revert_locked(snapshot)

    def _revert_locked(self, snapshot: Snapshot) -> Disk:
        self.failures.at("revert.before")
        with self._io(write=True):
            self._complete_disk(snapshot.volume_id)
            self._require_closed(snapshot.volume_id)
            disk = self._intact_snapshot(snapshot).copy()
            disk.complete, disk.allocated = True, 0 if self._thin else disk.size
            self.storage.put(self.storage.disks, snapshot.volume_id, disk)
        self.failures.at("revert.after")
        return self._as_disk(snapshot.volume_id, disk)

    def fill(self, volume: Volume, source: Disk) -> None:
        with self.storage.disk_lock(volume.id):
            self._copy_from(volume, source)

    def _copy_from(self, volume: Volume, source: Disk) -> None:
        self.failures.at("fill.before")
        kinds = self.abilities.fills
        with self._io(write=False):
            disk = disk_at(source.path) if source.kind in kinds else None
        if disk is None:
            raise self._unsupported(f"a copy of {source.path}")
        blocks = sorted((disk.blocks or {}).items())
        half = len(blocks) // 2
        self._write(volume.id, blocks[:half])
        self.failures.at("fill.half")
        self._write(volume.id, blocks[half:])
        self._verify_copy(volume.id, disk)
        self.failures.at("fill.after")

    def wipes(self) -> tuple[Wipe, ...]:
        with self._io(write=False):
            return tuple(
                Wipe(name, disk.size, disk.size - disk.wiped)
                for name, disk in self.storage.deleted.items()
            )

    def wipe(self, name: str, limit: int) -> Wipe | None:
        self.failures.at("wipe.before")
        with self._io(write=True):
            remainder = self._wipe_step(name, limit)
        self.failures.at("wipe.after")
        return remainder

    def _wipe_step(self, name: str, limit: int) -> Wipe | None:
        disk = self.storage.deleted.get(name)
        if disk is None:
            return None
        disk.wiped = min(disk.size, disk.wiped + limit)
        if disk.wiped < disk.size:
            return Wipe(name, disk.size, disk.size - disk.wiped)
        self.storage.remove(self.storage.deleted, name)
        return None

    def _create_or_extend(self, volume: Volume) -> FakeDisk:
        """Create or extend the disk; a thick one gets its space at once."""
        disk = self.storage.create(volume.id, volume.size)
        if not self._thin:
            disk.allocated = disk.size
        return disk

    def _write(self, volume_id: str, blocks: list[tuple[int, bytearray]]) -> None:
        with self._io(write=True):
            size = self._complete_disk(volume_id).size
            for number, block in blocks:
                at = number * BLOCK
                # The last block of a disk may be incomplete.
                self.storage.write(volume_id, at, bytes(block[: max(0, size - at)]))

    def _verify_copy(self, volume_id: str, source: FakeDisk) -> None:
        """Compare every byte with the source, and what was never written."""
        with self._io(write=False):
            disk = self._complete_disk(volume_id)
            same = _nonzero_blocks(disk) == _nonzero_blocks(source)
            if disk.size < source.size or not same:
                raise CommandFailed(
                    ("fill", volume_id),
                    1,
                    "the bytes of the copy differ from its source",
                )

    def _intact_snapshot(self, snapshot: Snapshot) -> FakeDisk:
        disk = self.storage.snapshots.get(snapshot.id)
        if disk is None:
            raise UnknownSnapshot(snapshot.id)
        if disk.lost:
            raise LostSnapshot(snapshot.id, "a test removed them")
        return disk

    def _complete_disk(self, volume_id: str) -> FakeDisk:
        disk = self.storage.disks.get(require_uuid(volume_id))
        if disk is None or not disk.complete:
            raise UnknownDisk(volume_id)
        return disk

    def _require_space(self, size: int) -> None:
        """Refuse ``size`` more bytes: thin when nothing is free, thick sooner."""
        free = self._free()
        if size > 0 and free < (1 if self._thin else size):
            raise NoSpace(self.name, f"{free} bytes are free")

    def _free(self) -> int:
        used = self.storage.written if self._thin else self.storage.provisioned
        return self._total - self.storage.foreign - used


def _nonzero_blocks(disk: FakeDisk) -> dict[int, bytes]:
    """Return the blocks that are not all zero, by number."""
    empty = bytes(BLOCK)
    blocks = {number: bytes(block) for number, block in (disk.blocks or {}).items()}
    return {number: block for number, block in blocks.items() if block != empty}
