# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Compare what is on the backends with the rows: orphans, and missing disks.

Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lunshare.agent.backends import Backends, NodeBackend, is_part_lost, translated
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.operator_records import Orphan
from lunshare.agent.service.driver_values import size_bytes
from lunshare.drivers.values import Disk, LiveExport


@dataclass(frozen=True, slots=True)
class _Rows:
    """Ids in the database, and the (backend, id, GiB) of volumes that have a disk.

    ``volumes`` has the backends that may have a disk of each, its own first.
    """

    volumes: Mapping[str, tuple[str, ...]]
    snapshots: set[str]
    placed: set[tuple[str, str, int]]


@dataclass(slots=True)
class Inventory:
    """What was found. ``missing`` and ``failed`` are sentences.

    ``exported`` are ids of volumes with a live export. ``failed`` names the backends
    that could not be read. ``remains`` are sentences about what the kernel does not let
    go.
    """

    exported: set[str] = field(default_factory=set)
    orphans: list[Orphan] = field(default_factory=list)
    remains: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def read(db: Database, backends: Backends) -> Inventory:
    """Read every backend that is up, and compare it with the rows.

    Rows are read before and after the storage: what is created or deleted meanwhile
    is not an orphan and not missing.
    """
    inventory, before = Inventory(), _read_rows(db)
    orphans: dict[tuple[str, str, str], Orphan] = {}
    disks: dict[str, tuple[Disk, ...]] = {}
    listed_exports: dict[object, tuple[LiveExport, ...]] = {}
    for backend in (backend for backend in backends.values() if backend.up):
        for orphan in _list_backend(backend, inventory, disks, listed_exports):
            # Two backends of one target see the same exports. But two disks of one
            # id are two: an interrupted migration has left one.
            which = orphan.where if orphan.kind == "disk" else ""
            orphans.setdefault((orphan.kind, orphan.id, which), orphan)
    after = _read_rows(db)
    ids = {
        "export": before.volumes.keys() | after.volumes.keys(),
        "disk": before.volumes.keys() | after.volumes.keys(),
        "snapshot": before.snapshots | after.snapshots,
    }
    for key in sorted(orphans):
        if key[1] not in ids[key[0]]:
            inventory.orphans.append(orphans[key])
    inventory.orphans += _second_disks(disks, before.volumes, after.volumes)
    placed = before.placed & after.placed
    for name, listed in disks.items():
        inventory.missing += _missing_disks(name, placed, listed)
    return inventory


def _read_rows(db: Database) -> _Rows:
    with db.reading() as connection:
        return _Rows(
            volumes.disk_backends(connection),
            snapshots.ids(connection) | volumes.temporary_snapshot_ids(connection),
            volumes.existing_disks(connection),
        )


def _list_backend(
    backend: NodeBackend,
    found: Inventory,
    disks: dict[str, tuple[Disk, ...]],
    listed_exports: dict[object, tuple[LiveExport, ...]],
) -> Iterator[Orphan]:
    """Return everything that lunshare created on a backend, as if it had no row.

    The exports of a target are read once for all of its backends.
    """
    name, drivers = backend.name, backend.drivers

    def exports() -> Iterator[Orphan]:
        target = drivers.target
        if target.listing not in listed_exports:
            listed_exports[target.listing] = target.observe()
        exports = listed_exports[target.listing]
        found.remains.update(what for export in exports for what in export.leftovers)
        found.exported.update(export.volume_id for export in exports)
        for export in (export for export in exports if not export.ended):
            where = f"export of volume {export.volume_id}"
            yield Orphan("export", export.volume_id, name, where)

    def disks_and_snapshots() -> Iterator[Orphan]:
        listed, its_snapshots = drivers.volumes.disks(), drivers.volumes.snapshots()
        disks[name] = listed
        for disk in listed:
            yield Orphan("disk", disk.volume_id, name, f"disk {disk.path}")
        for snapshot_id in its_snapshots:
            where = f"snapshot {snapshot_id} on backend {name}"
            yield Orphan("snapshot", snapshot_id, name, where)

    yield from _read_part(name, exports, found)
    yield from _read_part(name, disks_and_snapshots, found)


def _read_part(
    name: str, part: Callable[[], Iterator[Orphan]], found: Inventory
) -> list[Orphan]:
    """Return one part of a backend; note the error where it cannot be read.

    With a part of its storage lost, its disks are unknown, as when it is down. That its
    pool is closed says why.
    """
    try:
        with translated():
            return list(part())
    except AgentError as error:
        if not is_part_lost(error):
            found.failed.append(f"backend {name}: {error}")
        return []


def _second_disks(
    disks: Mapping[str, tuple[Disk, ...]],
    before: Mapping[str, tuple[str, ...]],
    after: Mapping[str, tuple[str, ...]],
) -> Iterator[Orphan]:
    """Return the disks of volumes whose rows say that they are on another backend.

    A disk that two backends list is one disk.
    """
    paths = {
        (name, disk.volume_id): disk.path for name in disks for disk in disks[name]
    }
    for (name, volume_id), path in sorted(paths.items()):
        if volume_id not in before or volume_id not in after:
            continue
        own = after[volume_id][0]
        is_own = name in before[volume_id] or name in after[volume_id]
        if not is_own and path != paths.get((own, volume_id)):
            where = f"disk {path} (volume {volume_id} is on backend {own})"
            yield Orphan("disk", volume_id, name, where)


def _missing_disks(
    name: str, placed: Iterable[tuple[str, str, int]], disks: Iterable[Disk]
) -> Iterator[str]:
    """Return a sentence for each volume whose disk is missing or too small."""
    sizes = {disk.volume_id: disk.size for disk in disks}
    for backend, volume_id, size in sorted(placed):
        if backend != name:
            continue
        if volume_id not in sizes:
            yield (
                f"volume {volume_id} has no disk on backend {name}: bring the disk"
                " back, or delete the volume"
            )
        elif sizes[volume_id] < size_bytes(size):
            yield (
                f"volume {volume_id} has {size} GiB, and its disk on backend {name}"
                f" {sizes[volume_id]} bytes: extend the volume to repair it"
            )
