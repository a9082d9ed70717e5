# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The volume contract on LVM: names, errors, and the path without a process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from oslo_config import cfg

from drivers import devices
from drivers.base import Root, VolumeDriver
from drivers.errors import (
    CommandFailed,
    DiskBusy,
    Misconfigured,
    NoSpace,
    UnknownDisk,
)
from drivers.lvm import commands
from drivers.lvm.commands import Lvm
from drivers.lvm.thick import Thick
from drivers.lvm.thin import Thin
from drivers.values import Capacity, Disk, Volume, volume_uuid

_NAME = re.compile(r"volume-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

_OPTIONS = [
    cfg.StrOpt(
        "volume_group",
        default="lunshare",
        regex=r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]*",
        help="The LVM volume group that holds this backend's volumes. Logical"
        " volumes in it that are not named volume-<uuid> are left alone.",
    ),
    cfg.StrOpt(
        "lvm_type",
        default="thin",
        choices=[
            ("thin", "In a thin pool: made at once, room is taken as it is written"),
            ("default", "Thick: all room is taken, and wiped, at creation"),
        ],
        help="How volumes lie in the group. Changing it strands the volumes"
        " made before: move them away first.",
    ),
    cfg.StrOpt(
        "lvm_pool",
        help="The thin pool in the group; <volume_group>-pool if not set. Read"
        " with lvm_type = thin only.",
    ),
    cfg.FloatOpt(
        "command_timeout",
        default=60.0,
        min=1.0,
        help="Seconds one LVM command may take before the request fails. A wipe"
        " gets one second more for every 10 MiB. Raise it on slow disks.",
    ),
]


class LvmVolumes(VolumeDriver):
    """Logical volumes of one group, in a thin pool or thick."""

    OPTIONS: ClassVar[list[cfg.Opt]] = _OPTIONS

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._group: str = options["volume_group"]
        self._pool: str = options["lvm_pool"] or f"{self._group}-pool"
        self._timeout: float = options["command_timeout"]
        self._lvm = Lvm(root, self._group, self._timeout)
        self._kind: Thin | Thick = (
            Thin(self._lvm, self._group, self._pool)
            if options["lvm_type"] == "thin"
            else Thick(self._lvm, self._timeout)
        )

    def check(self) -> None:
        try:
            self._lvm.group()
        except CommandFailed as error:
            if commands.group_missing(error):
                raise self._no_group() from error
            raise
        self._kind.check()
        if not all(Path(disk.path).exists() for disk in self.disks()):
            self._lvm.activate_all()

    def create(self, volume: Volume) -> Disk:
        with self._told(volume.id):
            self._kind.create(volume)
        return self.disk(volume.id)

    def delete(self, volume_id: str) -> None:
        name = Volume(volume_id, 0).name
        try:
            with self._told(volume_id):
                self._lvm.remove(name)
        except UnknownDisk:
            pass
        self._kind.tidy(name)

    def extend(self, volume: Volume) -> Disk:
        disk = self.disk(volume.id)
        if disk.size >= volume.size:
            return disk
        with self._told(volume.id):
            self._kind.extend(volume, disk.size)
        return self.disk(volume.id)

    def disk(self, volume_id: str) -> Disk:
        path = self._lvm.path(Volume(volume_id, 0).name)
        try:
            size = devices.block_size(path)
        except FileNotFoundError:
            size = self._activated(volume_id, path)
        return Disk(volume_id, path, size)

    def disks(self) -> tuple[Disk, ...]:
        return tuple(
            Disk(name[1], self._lvm.path(found.name), found.size)
            for found in self._lvm.volumes()
            if (name := _NAME.fullmatch(found.name)) and self._kind.owns(found)
        )

    def capacity(self) -> Capacity:
        return self._kind.capacity()

    def _activated(self, volume_id: str, path: str) -> int:
        with self._told(volume_id):
            self._lvm.activate(f"volume-{volume_uuid(volume_id)}")
        devices.wait_for(path, self._timeout)
        return devices.block_size(path)

    @contextmanager
    def _told(self, volume_id: str) -> Iterator[None]:
        """Turn what LVM said into what the contract says."""
        try:
            yield
        except CommandFailed as error:
            if commands.missing(error):
                raise UnknownDisk(volume_id) from error
            if commands.in_use(error):
                why = "its logical volume is open; remove its export first"
                raise DiskBusy(volume_id, why) from error
            if commands.full(error):
                raise NoSpace(self._room(), error.stderr.strip()) from error
            raise

    def _room(self) -> str:
        return self._pool if isinstance(self._kind, Thin) else self._group

    def _no_group(self) -> Misconfigured:
        return Misconfigured(
            f"volume_group {self._group}: there is no such volume group",
            f"make it with: vgcreate {self._group} /dev/DISK",
        )
