# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``VolumeDriver`` on files in a directory: thick, without snapshots."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import (
    CommandFailed,
    DiskBusy,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from lunshare.drivers.values import GIB, Capacity, Disk, DiskKind, Volume
from lunshare_dirs.commands import Commands, in_use

_SECTOR = 512
_NAME = re.compile("volume-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class DirsVolumes(VolumeDriver):
    """Files named volume-UUID; volume-UUID.new until all its space is allocated."""

    CONTRACT: ClassVar[int] = 2
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities(
        multiattach=True, reserves_space=True, extends_open=True, discards=True
    )

    OPTIONS: ClassVar[list[cfg.Opt]] = [
        cfg.StrOpt(
            "dirs_path",
            default="/var/lib/lunshare-dirs",
            help="The directory of the files. Only root may be able to change it. Name"
            " it in rootwrap.d/dirs.filters too.",
        ),
        cfg.FloatOpt(
            "dirs_capacity_gb",
            default=10,
            min=0,
            help="How much of the file system the files may use, in GiB.",
        ),
    ]

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._directory: str = options["dirs_path"]
        self._total = int(options["dirs_capacity_gb"] * GIB)
        self._commands = Commands(root, self._directory)

    def check(self) -> None:
        try:
            found = os.stat(self._directory)
        except OSError as error:
            raise self._misconfigured(error.strerror or str(error)) from None
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
            raise self._misconfigured("others than root can change it")

    def create(self, volume: Volume) -> Disk:
        try:
            return self.extend(volume)
        except UnknownDisk:
            self._require_space(_round_up(volume.size))
        self._commands.create_empty(volume.name)
        try:
            self._size(f"{volume.name}.new", volume.size)
        except NoSpace:
            self._commands.remove(volume.name)
            raise
        self._commands.rename_new(volume.name)
        return self.disk(volume.id)

    def delete(self, volume_id: str) -> None:
        name = Volume(volume_id, 0).name
        if in_use(self._commands.path(name)):
            raise DiskBusy(volume_id, "its file is open; remove its export first")
        self._commands.remove(name)

    def extend(self, volume: Volume) -> Disk:
        disk = self.disk(volume.id)
        if volume.size > disk.size:
            self._require_space(_round_up(volume.size) - disk.size)
            self._size(volume.name, volume.size)
            self._commands.flush(volume.name)
        return self.disk(volume.id)

    def disk(self, volume_id: str) -> Disk:
        path = self._commands.path(Volume(volume_id, 0).name)
        try:
            return Disk(volume_id, path, os.stat(path).st_size, DiskKind.FILE)
        except FileNotFoundError:
            raise UnknownDisk(volume_id) from None

    def disks(self) -> tuple[Disk, ...]:
        return tuple(
            Disk(name[1], self._commands.path(found), size, DiskKind.FILE)
            for found, size in self._files()
            if (name := _NAME.fullmatch(found))
        )

    def capacity(self) -> Capacity:
        files = list(self._files())
        used = sum(size for _, size in files)
        system = os.statvfs(self._directory)
        free = min(self._total - used, system.f_bavail * system.f_frsize)
        provisioned = sum(size for name, size in files if _NAME.fullmatch(name))
        return Capacity(self._total, max(0, free), provisioned, thin=False)

    def _files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file. Cost: one listing, no command."""
        with os.scandir(self._directory) as found:
            for entry in found:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:  # removed or renamed meanwhile
                    continue

    def _require_space(self, size: int) -> None:
        free = self.capacity().free
        if size > free:
            raise NoSpace(self._directory, f"{size} bytes are needed, {free} are free")

    def _size(self, name: str, size: int) -> None:
        try:
            self._commands.allocate(name, _round_up(size))
        except CommandFailed as error:
            if "No space left" in error.stderr:
                raise NoSpace(self._directory, error.stderr.strip()) from error
            raise

    def _misconfigured(self, why: str) -> Misconfigured:
        create = f"install -d -o root -m 0755 {self._directory}"
        return Misconfigured(
            f"dirs_path {self._directory}: {why}", f"create it: {create}"
        )


def _round_up(size: int) -> int:
    """Return the size in complete sectors."""
    return -(-size // _SECTOR) * _SECTOR
