# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``VolumeDriver`` on NFS shares: one raw file for each volume and each snapshot.

The format of a file is never detected from its bytes. A guest may write the header of
an image with a backing file to its disk; these stay plain bytes (CVE-2024-32498).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers import migration, share_options
from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import (
    DriverError,
    LostSnapshot,
    UnknownDisk,
    UnknownReference,
    UnknownSnapshot,
)
from lunshare.drivers.nfs.mount_commands import MountCommands
from lunshare.drivers.nfs.share_checks import ShareChecks
from lunshare.drivers.nfs.share_files import Entry, FilePolicy, ShareFiles
from lunshare.drivers.nfs.volume_cache import Place, VolumeCache
from lunshare.drivers.protocol import nfs_names
from lunshare.drivers.retry import retried_once
from lunshare.drivers.values import (
    Capacity,
    Disk,
    DiskKind,
    Manageable,
    Snapshot,
    Volume,
    snapshot_name,
)

_OPTIONS = [
    cfg.BoolOpt(
        "nfs_sparsed_volumes",
        default=True,
        help="Whether a volume uses space as it is written. If not, all its space is"
        " allocated at creation; by writing zeros if the server has no allocation (NFS"
        " before 4.2).",
    ),
    cfg.StrOpt(
        "nfs_volume_format",
        default="raw",
        choices=[("raw", "The file has the volume's bytes and nothing else")],
        help="The format of a volume's file. qcow2 is not supported: its header can"
        " name other files, guests can write headers too, and only one host could"
        " open it.",
    ),
    cfg.StrOpt(
        "nfs_file_mode",
        default="0600",
        choices=["0600", "0660", "0666"],
        help="Mode of the files. Their owner is root, or the user that the server maps"
        " root to. Use a wider mode only for hosts that mount the share (target_driver"
        " = nfs) and run guests as another user.",
    ),
    cfg.BoolOpt(
        "nfs_clone",
        default=True,
        help="Whether the server is asked to clone files for snapshots and copies"
        " (NFS 4.2, on XFS or Btrfs with reflinks). If the server cannot, the bytes are"
        " copied, which needs a closed disk. Turn it off for a server whose clones are"
        " slow or wrong.",
    ),
    cfg.FloatOpt(
        "nfs_timeout",
        default=10.0,
        min=1.0,
        help="Seconds that a share may take to answer. After that the request fails,"
        " and the share is lost until it answers again; without another share the"
        " backend is down. Below 25: a check of 30 s means that the backend is down."
        " For copies and allocation see progress_timeout.",
    ),
]


class NfsVolumes(VolumeDriver):
    """Files named volume-UUID on one or more shares, which form one pool."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = [
        *share_options.OPTIONS,
        *_OPTIONS,
        *migration.OPTIONS,
    ]
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities(
        multiattach=True,
        supports_snapshots=True,
        extends_open=True,
        extends_under_snapshots=True,
        manages=True,
        fills_from_blocks=True,
        fills_from_files=True,
        discards=True,
    )

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._base: str = options["nfs_mount_point_base"]
        self._timeout: float = options["nfs_timeout"]
        self._thin: bool = options["nfs_sparsed_volumes"]
        self._policy = FilePolicy(
            not self._thin,
            options["nfs_clone"],
            options["nfs_file_mode"],
            options["progress_timeout"],
        )
        mounting = MountCommands(root, self._base, self._timeout)
        self._checks = ShareChecks(mounting)
        self._cache = VolumeCache()
        self._configured: tuple[ShareFiles, ...] = ()

    @property
    def abilities(self) -> VolumeAbilities:
        clones: bool = self.options["nfs_clone"]
        return replace(
            self.ABILITIES, reserves_space=not self._thin, snapshots_open=clones
        )

    def check(self) -> None:
        """Mount what is not mounted. Some shares may be lost: see ShareChecks."""
        self._checks.run(self._shares())

    def lost(self, volume_id: str) -> str:
        lost = [files.lost for files in self._configured if files.lost]
        share = self._cache.share_of(volume_id)
        if share is not None:
            return str(share.lost or "")
        return str(lost[0]) if lost else ""

    @retried_once
    def create(self, volume: Volume) -> Disk:
        files = self._share_of(volume.id)
        if files is None:
            files = self._share_with_most_space()
            for other in set(self._shares()) - {files}:
                other.delete(volume.name)  # the incomplete file of a killed create
        return self._disk(volume.id, files, files.create(volume.name, volume.size))

    @retried_once
    def delete(self, volume_id: str) -> None:
        holder = self._share_of(volume_id)
        for files in [holder] if holder else self._shares():
            files.delete(Volume(volume_id, 0).name)
        self._cache.forget(volume_id)

    @retried_once
    def extend(self, volume: Volume) -> Disk:
        files = self._find(volume.id)[0]
        return self._disk(volume.id, files, files.extend(volume.name, volume.size))

    def disk(self, volume_id: str) -> Disk:
        return self._find(volume_id)[1]

    def disks(self) -> tuple[Disk, ...]:
        places = self._list(self._shares())
        return tuple(_disk(key, *place) for key, place in places.items())

    def capacity(self) -> Capacity:
        """Return that of the shares that are not lost. With one lost it is closed."""
        working = [files for files in self._shares() if not files.lost]
        shares = [files.capacity() for files in working]
        total, free = (sum(part) for part in zip(*shares, strict=True))
        provisioned = self._cache.provisioned()
        if provisioned is None:
            provisioned = sum(size for _, size in self._list(working).values())
        closed = self._lost_problem() or _space_problem(shares)
        return Capacity(total, free, provisioned, self._thin, closed)

    @retried_once
    def create_snapshot(self, snapshot: Snapshot) -> None:
        # On the volume's share, where the copy does nothing if it exists.
        files, disk = self._find(snapshot.volume_id)
        volume = Volume(snapshot.volume_id, snapshot.size)
        files.copy(volume.name, snapshot.name, disk.size)

    @retried_once
    def delete_snapshot(self, snapshot_id: str) -> None:
        place = self._find_snapshot(snapshot_id)
        for files in [place[0]] if place else self._shares():
            files.delete(snapshot_name(snapshot_id))

    def snapshots(self) -> tuple[str, ...]:
        return tuple(
            nfs_names.id_of(entry.name)
            for _, entry in self._entries()
            if _is_managed(entry, "_snapshot-")
        )

    @retried_once
    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        if existing := self._existing(volume):
            return existing
        files = self._share_of_snapshot(snapshot)
        size = files.copy(snapshot.name, volume.name, volume.size)
        return self._disk(volume.id, files, size)

    @retried_once
    def revert(self, snapshot: Snapshot) -> Disk:
        name = Volume(snapshot.volume_id, 0).name
        self._find(snapshot.volume_id)
        files = self._share_of_snapshot(snapshot)
        size = files.copy(snapshot.name, name, snapshot.size, replace=True)
        return self._disk(snapshot.volume_id, files, size)

    @retried_once
    def fill(self, volume: Volume, source: Disk) -> None:
        timeout = self._policy.progress_timeout
        migration.fill(self.root, self.disk(volume.id), source, timeout)

    def manageable(self) -> tuple[Manageable, ...]:
        return tuple(
            Manageable(
                entry.name,
                entry.size,
                "" if entry.plain else "it is not a regular file with one name",
            )
            for _, entry in self._entries()
            if nfs_names.is_foreign(entry.name)
        )

    @retried_once
    def manage(self, volume: Volume, reference: str) -> Disk:
        if not nfs_names.is_foreign(reference):
            raise UnknownReference(reference, "give the name of a file of the share")
        if existing := self._existing(volume):
            return existing
        for files in self._shares_with_file(reference):
            size = files.manage(reference, volume.name, volume.size)
            return self._disk(volume.id, files, size)
        raise UnknownReference(reference, "no share has such a file")

    @retried_once
    def unmanage(self, volume_id: str) -> None:
        if files := self._share_of(volume_id):
            files.unmanage(Volume(volume_id, 0).name)
            self._cache.forget(volume_id)

    # Shares

    def _shares(self) -> tuple[ShareFiles, ...]:
        """Return the shares; their options are read once, at the first use."""
        if not self._configured:
            self._configured = tuple(
                ShareFiles(self.root, share, self._base, self._timeout, self._policy)
                for share in share_options.configured(self.options)
            )
        return self._configured

    def _lost_problem(self) -> str:
        """Return why the pool is closed, if a share is lost, or ""."""
        lost = "; ".join(str(files.lost) for files in self._shares() if files.lost)
        return f"not every volume can be used: {lost}" if lost else ""

    def _list(self, shares: Sequence[ShareFiles]) -> dict[str, Place]:
        """Return the volumes on these shares, and remember where they are."""
        version, places = self._cache.version(), dict[str, Place]()
        for files in shares:
            for entry in files.entries():
                if _is_managed(entry, "volume-"):
                    places[nfs_names.id_of(entry.name)] = (files, entry.size)
        complete = len(shares) == len(self._shares())
        self._cache.replace(places, version, complete)
        return places

    def _entries(self) -> Iterator[tuple[ShareFiles, Entry]]:
        return ((files, entry) for files in self._shares() for entry in files.entries())

    def _share_with_most_space(self) -> ShareFiles:
        return max(self._shares(), key=lambda files: files.capacity()[1])

    # One volume, one snapshot

    def _find(self, volume_id: str) -> tuple[ShareFiles, Disk]:
        """:raises UnknownDisk: no share has the volume's file."""
        name = Volume(volume_id, 0).name
        for files, size in self._search(name, self._cache.share_of(volume_id)):
            return files, self._disk(volume_id, files, size)
        self._cache.forget(volume_id)
        raise UnknownDisk(volume_id)

    def _share_of(self, volume_id: str) -> ShareFiles | None:
        try:
            return self._find(volume_id)[0]
        except UnknownDisk:
            return None

    def _existing(self, volume: Volume) -> Disk | None:
        files = self._share_of(volume.id)
        if files is None:
            return None
        return self._disk(volume.id, files, files.find(volume.name) or 0)

    def _share_of_snapshot(self, snapshot: Snapshot) -> ShareFiles:
        """Return the share of its file.

        :raises UnknownSnapshot: no share has its file.
        :raises LostSnapshot: the file is shorter than the volume was.
        """
        place = self._find_snapshot(snapshot.id)
        if place is None:
            raise UnknownSnapshot(snapshot.id)
        files, size = place
        if size < snapshot.size:
            why = f"its file has {size} bytes, and the volume had {snapshot.size}"
            raise LostSnapshot(snapshot.id, why)
        return files

    def _find_snapshot(self, snapshot_id: str) -> tuple[ShareFiles, int] | None:
        return next(self._search(snapshot_name(snapshot_id), None), None)

    def _search(
        self, name: str, first: ShareFiles | None
    ) -> Iterator[tuple[ShareFiles, int]]:
        """Yield the share that has the file and its size; search ``first`` first.

        The error of a share is raised only if no other share has the file. So a
        share that fails does not affect the volumes of another.
        """
        trouble: DriverError | None = None
        for files in sorted(self._shares(), key=lambda each: each is not first):
            try:
                size = files.find(name)
            except DriverError as error:
                trouble = error
                continue
            if size is not None:
                yield files, size
                return
        if trouble:
            raise trouble

    def _shares_with_file(self, reference: str) -> list[ShareFiles]:
        shares = [files for files, entry in self._entries() if entry.name == reference]
        if len(shares) > 1:
            raise UnknownReference(reference, "two shares have a file of that name")
        return shares

    def _disk(self, volume_id: str, files: ShareFiles, size: int) -> Disk:
        self._cache.remember(volume_id, files, size)
        return _disk(volume_id, files, size)


def _disk(volume_id: str, files: ShareFiles, size: int) -> Disk:
    path = files.path(Volume(volume_id, 0).name)
    return Disk(volume_id, path, size, DiskKind.FILE)


def _is_managed(entry: Entry, kind: str) -> bool:
    return (
        entry.plain and entry.name.startswith(kind) and nfs_names.is_managed(entry.name)
    )


def _space_problem(shares: list[tuple[int, int]]) -> str:
    """Return why the pool is closed, if every share is nearly full, or ""."""
    if all(nfs_names.nearly_full(total, free) for total, free in shares):
        return "every share is nearly full: extend them, or delete volumes"
    return ""
