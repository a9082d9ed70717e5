# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular to thin volumes: one pool, promised more than it holds.

A thin volume reads as zeros from birth and where it grows: the pool clears a
chunk before it hands it out, which ``check`` insists on.
"""

from __future__ import annotations

from drivers.errors import CommandFailed, Misconfigured, NoSpace
from drivers.lvm import commands
from drivers.lvm.commands import Lvm
from drivers.lvm.report import LogicalVolume, Pool
from drivers.values import Capacity, Volume

# A pool that runs full freezes the writes of every volume in it and then fails
# them (no_space_timeout, 60 s), so no volume is added on the last stretch. Full
# metadata is worse: the pool goes read-only and wants an offline repair. LVM
# itself refuses neither: lvm2 2.03.16 made a volume in a pool with 100.00% data.
_DATA_LIMIT = 98.0
_METADATA_LIMIT = 95.0


class Thin:
    """Thin volumes of one pool."""

    def __init__(self, lvm: Lvm, group: str, pool: str) -> None:
        self._lvm, self._group, self._pool = lvm, group, pool

    def check(self) -> None:
        """:raises Misconfigured: the pool is missing or does not clear chunks."""
        pool = self._find()
        where = f"{self._group}/{self._pool}"
        if pool is None:
            raise Misconfigured(
                f"lvm_pool {self._pool}: volume group {self._group} has no such"
                " thin pool",
                "make it with: lvcreate --type thin-pool -l 95%FREE"
                f" -n {self._pool} {self._group}",
            )
        if not pool.zeroes:
            raise Misconfigured(
                f"lvm_pool {self._pool}: it hands out chunks with earlier bytes",
                f"set it with: lvchange --zero y {where}",
            )

    def create(self, volume: Volume) -> None:
        """Make it, or find it made, at least that large."""
        self._need_room()
        try:
            self._lvm.create_thin(volume.name, volume.size, self._pool)
        except CommandFailed as error:
            if not commands.exists(error):
                raise
            self._grow(volume)

    def extend(self, volume: Volume, size: int) -> None:
        """Grow it from ``size``."""
        self._need_room()
        self._grow(volume)

    def tidy(self, name: str) -> None:
        """A thin volume is made in one commit: there are no half-made parts."""

    def owns(self, found: LogicalVolume) -> bool:
        """Whether it lies in our pool."""
        return found.pool == self._pool

    def capacity(self) -> Capacity:
        """Two commands: the pool's level, and the sizes promised in it."""
        pool = self._find()
        if pool is None:
            self.check()
            raise AssertionError("check() names the missing pool")
        promised = sum(v.size for v in self._lvm.volumes() if self.owns(v))
        free = int(pool.size * (100 - pool.data_percent) / 100)
        return Capacity(pool.size, free, promised, thin=True)

    def _grow(self, volume: Volume) -> None:
        try:
            self._lvm.extend(volume.name, volume.size)
        except CommandFailed as error:
            if not commands.large_enough(error):
                raise

    def _need_room(self) -> None:
        pool = self._find()
        if pool is None:
            return  # lvcreate says it better
        if pool.data_percent >= _DATA_LIMIT:
            why = f"its data is {pool.data_percent:g}% full; grow it or delete volumes"
            raise NoSpace(self._pool, why)
        if pool.metadata_percent >= _METADATA_LIMIT:
            why = f"its metadata is {pool.metadata_percent:g}% full; grow its metadata"
            raise NoSpace(self._pool, why)

    def _find(self) -> Pool | None:
        try:
            return self._lvm.pool(self._pool)
        except CommandFailed as error:
            if commands.missing(error):
                return None
            raise
