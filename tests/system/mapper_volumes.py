# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Disks by device-mapper alone, named as LVM names them.

The kit's target half makes and removes some sixty disks. By lvcreate that is
two seconds each in an emulated guest, by dmsetup a tenth of one; to the target
they are the same kind of device. LVM itself has the kit's volume half.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import DiskBusy, UnknownDisk
from lunshare.drivers.values import Capacity, Disk, Volume
from tests.system.lio_node import GROUP, run, unscanned

SECTOR = 512
SPAN = 64 * 1024**2  # of the store for each disk, so that none meets an old byte


class MapperVolumes(VolumeDriver):
    """Linear maps onto one loop device over a sparse file."""

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        store = Path(options["store"])
        with store.open("wb") as file:
            file.truncate(256 * SPAN)
        self._loop = run("losetup", "--find", "--show", str(store)).strip()
        self._starts = itertools.count(0, SPAN // SECTOR)
        self._at: dict[str, int] = {}

    def close(self) -> None:
        """Give the loop device back."""
        run("losetup", "--detach", self._loop)

    def check(self) -> None:
        return None

    def create(self, volume: Volume) -> Disk:
        if volume.id not in self._at:
            self._at[volume.id] = next(self._starts)
            table = self._table(volume)
            name = _mapped(volume.id)
            run("dmsetup", "create", name, "--uuid", unscanned(), "--table", table)
            run("udevadm", "settle")
        return self.disk(volume.id)

    def delete(self, volume_id: str) -> None:
        if volume_id in self._at:
            opened = "dmsetup", "info", "-c", "--noheadings", "-o", "open"
            if run(*opened, _mapped(volume_id)).strip() != "0":
                raise DiskBusy(volume_id, "it is open")
            run("dmsetup", "remove", "--retry", _mapped(volume_id))
            del self._at[volume_id]

    def extend(self, volume: Volume) -> Disk:
        name = _mapped(volume.id)
        run("dmsetup", "reload", name, "--table", self._table(volume))
        run("dmsetup", "resume", name)
        return self.disk(volume.id)

    def disk(self, volume_id: str) -> Disk:
        if volume_id not in self._at:
            raise UnknownDisk(volume_id)
        path = f"/dev/mapper/{_mapped(volume_id)}"
        size = int(run("blockdev", "--getsize64", path))
        return Disk(volume_id, path, size)

    def disks(self) -> tuple[Disk, ...]:
        return tuple(self.disk(volume_id) for volume_id in self._at)

    def capacity(self) -> Capacity:
        return Capacity(256 * SPAN, 256 * SPAN, 0, thin=True)

    def _table(self, volume: Volume) -> str:
        length = volume.size // SECTOR
        return f"0 {length} linear {self._loop} {self._at[volume.id]}"


def _mapped(volume_id: str) -> str:
    doubled = f"volume-{volume_id}".replace("-", "--")
    return f"{GROUP}-{doubled}"
