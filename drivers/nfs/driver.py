# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The volume contract on NFS shares: one raw file a volume, one a snapshot.

A volume's bytes are never asked what they are: a guest may write the header of
an image with a backing file into its disk, and it stays bytes (CVE-2024-32498).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers import migration, share_options
from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import (
    CommandFailed,
    DeadlineExceeded,
    DriverError,
    LostSnapshot,
    Misconfigured,
    UnknownDisk,
    UnknownReference,
    UnknownSnapshot,
)
from lunshare.drivers.nfs.cache import Known
from lunshare.drivers.nfs.files import Entry, Files, Policy
from lunshare.drivers.nfs.mounting import Mounting, silent
from lunshare.drivers.protocol import nfs_names
from lunshare.drivers.retry import retried_once
from lunshare.drivers.values import (
    Capacity,
    Disk,
    DiskKind,
    Manageable,
    Snapshot,
    Volume,
    volume_uuid,
)

_OPTIONS = [
    cfg.BoolOpt(
        "nfs_sparsed_volumes",
        default=True,
        help="Whether a volume takes room as it is written. If not, all its room is"
        " taken at creation; where a server cannot (NFS before 4.2), by writing zeros.",
    ),
    cfg.StrOpt(
        "nfs_volume_format",
        default="raw",
        choices=[("raw", "The file holds the volume's bytes and nothing else")],
        help="What a volume's file is. qcow2 is not offered: its header names other"
        " files, guests write headers too, and it can have no second host.",
    ),
    cfg.StrOpt(
        "nfs_file_mode",
        default="0600",
        choices=["0600", "0660", "0666"],
        help="Mode of the files. They are root's, or of whom the server maps root to."
        " Wider only for hosts that mount the share (target_driver = nfs) and run"
        " guests as another user.",
    ),
    cfg.BoolOpt(
        "nfs_clone",
        default=True,
        help="Whether the server is asked to clone files for snapshots and copies"
        " (NFS 4.2, on XFS or Btrfs with reflinks). One that cannot is noticed; turn"
        " it off for one whose clones are slow or wrong. Copies need a closed disk.",
    ),
    cfg.FloatOpt(
        "nfs_timeout",
        default=10.0,
        min=1.0,
        help="Seconds a share may take to answer before a request fails and the"
        " backend is down. For work on bytes see progress_timeout.",
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
        self._policy = Policy(
            not self._thin,
            options["nfs_clone"],
            options["nfs_file_mode"],
            options["progress_timeout"],
        )
        self._mounting = Mounting(root, self._base, self._timeout)
        self._known = Known()
        self._read: tuple[Files, ...] = ()

    @property
    def abilities(self) -> VolumeAbilities:
        clones: bool = self.options["nfs_clone"]
        return replace(
            self.ABILITIES, reserves_space=not self._thin, snapshots_open=clones
        )

    def check(self) -> None:
        for files in self._shares():
            found = self._look(files)
            if found["trouble"] == "stale":
                self._unmounted(files)
                found = self._look(files)
            if not found["source"]:
                self._mounting.make_point(files.share)
                self._mounting.mount(files.share)
                found = self._look(files)
            self._need_sound(files, found)

    @retried_once
    def create(self, volume: Volume) -> Disk:
        files = self._holder(volume.id)
        if files is None:
            files = self._roomiest()
            for other in set(self._shares()) - {files}:
                other.drop(volume.name)  # what a killed create began there
        return self._disk(volume.id, files, files.make(volume.name, volume.size))

    @retried_once
    def delete(self, volume_id: str) -> None:
        holder = self._holder(volume_id)
        for files in [holder] if holder else self._shares():
            files.drop(Volume(volume_id, 0).name)
        self._known.forget(volume_id)

    @retried_once
    def extend(self, volume: Volume) -> Disk:
        files = self._need(volume.id)
        return self._disk(volume.id, files, files.grow(volume.name, volume.size))

    def disk(self, volume_id: str) -> Disk:
        return self._found(volume_id)[1]

    def disks(self) -> tuple[Disk, ...]:
        changes, places = self._known.changes(), {}
        for files, entry in self._entries():
            if _is_ours(entry, "volume-"):
                places[nfs_names.id_of(entry.name)] = (files, entry.size)
        self._known.learn(places, changes)
        return tuple(_disk(key, *place) for key, place in places.items())

    def capacity(self) -> Capacity:
        rooms = [files.room() for files in self._shares()]
        total, free = (sum(part) for part in zip(*rooms, strict=True))
        promised = self._known.promised()
        if promised is None:
            self.disks()
            promised = self._known.promised() or 0
        return Capacity(total, free, promised, self._thin, _closed(rooms))

    @retried_once
    def create_snapshot(self, snapshot: Snapshot) -> None:
        if self._find_snapshot(snapshot.id) is None:
            files, disk = self._found(snapshot.volume_id)
            volume = Volume(snapshot.volume_id, snapshot.size)
            files.copy(volume.name, snapshot.name, disk.size)

    @retried_once
    def delete_snapshot(self, snapshot_id: str) -> None:
        for files in self._shares():
            files.drop(_snapshot(snapshot_id))

    def snapshots(self) -> tuple[str, ...]:
        return tuple(
            nfs_names.id_of(entry.name)
            for _, entry in self._entries()
            if _is_ours(entry, "_snapshot-")
        )

    @retried_once
    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        files = self._kept(snapshot)
        if there := self._holder(volume.id):
            return self._disk(volume.id, there, there.find(volume.name) or 0)
        size = files.copy(snapshot.name, volume.name, volume.size)
        return self._disk(volume.id, files, size)

    @retried_once
    def revert(self, snapshot: Snapshot) -> Disk:
        name = Volume(snapshot.volume_id, 0).name
        self._need(snapshot.volume_id)
        files = self._kept(snapshot)
        size = files.copy(snapshot.name, name, snapshot.size, replace=True)
        return self._disk(snapshot.volume_id, files, size)

    @retried_once
    def fill(self, volume: Volume, source: Disk) -> None:
        patience = self._policy.patience
        migration.fill(self.root, self.disk(volume.id), source, patience)

    def manageable(self) -> tuple[Manageable, ...]:
        return tuple(
            Manageable(
                entry.name,
                entry.size,
                "" if entry.plain else "it is no regular file with one name",
            )
            for _, entry in self._entries()
            if nfs_names.is_foreign(entry.name)
        )

    @retried_once
    def manage(self, volume: Volume, reference: str) -> Disk:
        if not nfs_names.is_foreign(reference):
            raise UnknownReference(reference, "give the name of a file of the share")
        if there := self._holder(volume.id):
            return self._disk(volume.id, there, there.find(volume.name) or 0)
        for files in self._having(reference):
            size = files.take(reference, volume.name, volume.size)
            return self._disk(volume.id, files, size)
        raise UnknownReference(reference, "no share has such a file")

    @retried_once
    def unmanage(self, volume_id: str) -> None:
        if files := self._holder(volume_id):
            files.give(Volume(volume_id, 0).name)
            self._known.forget(volume_id)

    # the shares

    def _shares(self) -> tuple[Files, ...]:
        """The shares; what names them is read once, at the first use."""
        if not self._read:
            self._read = tuple(
                Files(self.root, share, self._base, self._timeout, self._policy)
                for share in share_options.configured(self.options)
            )
        return self._read

    def _look(self, files: Files) -> Mapping[str, str]:
        try:
            return files.look()
        except DeadlineExceeded as error:
            raise silent(files.share, error.seconds) from error

    def _unmounted(self, files: Files) -> None:
        """Take a stale share away, so that it can be mounted anew."""
        with contextlib.suppress(CommandFailed, DeadlineExceeded):
            # The caller looks again at what is there. It fails while something uses the
            # share, which is then found stale as before. It may wait long for a server
            # that knows its files no more (6.12: umount.nfs4 sleeps in the kernel), but
            # by then nothing is mounted there.
            self._mounting.unmount(files.share)

    def _need_sound(self, files: Files, found: Mapping[str, str]) -> None:
        share, point = files.share, files.point
        if found["source"] != share.source:
            raise Misconfigured(
                f"share {share.source}: {found['source'] or 'nothing'} is mounted at"
                f" {point}",
                f"end what uses it, and umount {point}",
            )
        if found["trouble"]:
            what = f"share {share.source} at {point} is {found['trouble']}"
            raise Misconfigured(what, found["remedy"])

    def _entries(self) -> Iterator[tuple[Files, Entry]]:
        return ((files, each) for files in self._shares() for each in files.entries())

    def _roomiest(self) -> Files:
        return max(self._shares(), key=lambda files: files.room()[1])

    # one volume, one snapshot

    def _found(self, volume_id: str) -> tuple[Files, Disk]:
        name = Volume(volume_id, 0).name
        remembered = self._known.where(volume_id)
        for files, size in self._asked(name, remembered):
            return files, self._disk(volume_id, files, size)
        self._known.forget(volume_id)
        raise UnknownDisk(volume_id)

    def _need(self, volume_id: str) -> Files:
        return self._found(volume_id)[0]

    def _holder(self, volume_id: str) -> Files | None:
        try:
            return self._need(volume_id)
        except UnknownDisk:
            return None

    def _kept(self, snapshot: Snapshot) -> Files:
        """Where its file is, if it is as long as the volume was."""
        found = self._find_snapshot(snapshot.id)
        if found is None:
            raise UnknownSnapshot(snapshot.id)
        files, size = found
        if size < snapshot.size:
            why = f"its file has {size} bytes, and the volume had {snapshot.size}"
            raise LostSnapshot(snapshot.id, why)
        return files

    def _find_snapshot(self, snapshot_id: str) -> tuple[Files, int] | None:
        return next(self._asked(_snapshot(snapshot_id), None), None)

    def _asked(self, name: str, first: Files | None) -> Iterator[tuple[Files, int]]:
        """The shares that have it, one after the other.

        One that does not answer is told of only when no other has it: trouble of
        a share is not felt by the volumes of another.
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

    def _having(self, reference: str) -> list[Files]:
        found = [files for files, each in self._entries() if each.name == reference]
        if len(found) > 1:
            raise UnknownReference(reference, "two shares have a file of that name")
        return found

    def _disk(self, volume_id: str, files: Files, size: int) -> Disk:
        self._known.note(volume_id, files, size)
        return _disk(volume_id, files, size)


def _disk(volume_id: str, files: Files, size: int) -> Disk:
    path = files.path(Volume(volume_id, 0).name)
    return Disk(volume_id, path, size, DiskKind.FILE)


def _snapshot(snapshot_id: str) -> str:
    return f"_snapshot-{volume_uuid(snapshot_id, 'snapshot id')}"


def _is_ours(entry: Entry, kind: str) -> bool:
    return (
        entry.plain and entry.name.startswith(kind) and nfs_names.is_managed(entry.name)
    )


def _closed(rooms: list[tuple[int, int]]) -> str:
    """Why the pool takes nothing new: every share of it is nearly full."""
    if all(nfs_names.nearly_full(*room) for room in rooms):
        return "every share is nearly full: grow them, or delete volumes"
    return ""
