# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular to thin volumes: one pool, promised more than it holds.

A thin volume reads as zeros from birth and where it grows: the pool clears a
chunk before it hands it out, which ``check`` insists on. So nothing has to be
wiped when one is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from lunshare.drivers.errors import CommandFailed, Misconfigured, NoSpace
from lunshare.drivers.lvm import failures, names
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.listing import Drawn, Listed, Listing
from lunshare.drivers.lvm.report import Levels, LogicalVolume, Looked, Pool
from lunshare.drivers.values import Capacity, Volume, Wipe


class Thin:
    """Thin volumes of one pool."""

    def __init__(self, lvm: Lvm, listing: Listing, options: Mapping[str, Any]) -> None:
        self._lvm, self._listing = lvm, listing
        self._group: str = options["volume_group"]
        self.room: str = options["lvm_pool"] or f"{self._group}-pool"
        # A pool that runs full freezes the writes of every volume in it and then
        # fails them (no_space_timeout, 60 s), so nothing is added on the last
        # stretch. Full metadata is worse: the pool goes read-only and wants an
        # offline repair. LVM itself refuses neither: lvm2 2.03.16 made a volume
        # in a pool with 100.00% data.
        self._data_limit: float = options["lvm_pool_data_limit"]
        self._metadata_limit: float = options["lvm_pool_metadata_limit"]
        self._pool = Drawn(lambda _: self._find())
        self._promised = Drawn(self._sum)

    def check(self, listed: Listed) -> None:
        """:raises Misconfigured: the pool is missing or does not clear chunks."""
        pool = self._pool.of(listed)
        where = f"{self._group}/{self.room}"
        if pool is None:
            raise Misconfigured(
                f"lvm_pool {self.room}: volume group {self._group} has no such"
                " thin pool",
                "make it with: lvcreate --type thin-pool -l 95%FREE"
                f" -n {self.room} {self._group}",
            )
        if not pool.zeroes:
            raise Misconfigured(
                f"lvm_pool {self.room}: it hands out chunks with earlier bytes",
                f"set it with: lvchange --zero y {where}",
            )

    def create(self, volume: Volume) -> None:
        """Make it, or find it made, at least that large."""
        self.need_room()
        try:
            self._lvm.create_thin(volume.name, volume.size, self.room)
        except CommandFailed as error:
            if not failures.exists(error):
                raise
            self.need_mine(self._lvm.around(volume.name), volume)
            self._grow(volume)

    def extend(self, volume: Volume, size: int) -> None:
        """Grow it from ``size``."""
        self.need_room()
        self._grow(volume)

    def delete(self, volume_id: str) -> None:
        """Remove it, and what a killed revert left."""
        name = Volume(volume_id, 0).name
        self._lvm.remove_any(self.room, name, name + names.REVERT)

    def delete_snapshot(self, name: str) -> None:
        """Remove it; none is success."""
        self._lvm.remove_any(self.room, name)

    def owns(self, found: LogicalVolume | Looked) -> bool:
        """Whether it lies in our pool."""
        return found.pool == self.room

    def has(self, pool: str) -> bool:
        """Whether what lies in that thin pool, or in none, is ours."""
        return pool == self.room

    def need_mine(self, found: Mapping[str, Looked], volume: Volume) -> None:
        """:raises Unsupported: something of the volume's name lies elsewhere."""
        if volume.name in found and not self.owns(found[volume.name]):
            raise names.taken(volume, self._group, self.room)

    def why_not(self, found: Looked) -> str:
        """Why one of the pool cannot become a volume of ours; empty if it can."""
        if "extorigin" in found.roles or "extsnapshot" in found.roles:
            return "it shares bytes with a volume outside the pool"
        return ""

    def capacity(self) -> Capacity:
        """The kernel tells the levels; the sizes promised are in the listing.

        No command of LVM's tells their sum; it is one row of a report for each.
        """
        listed = self._listing.now()
        pool = self._pool.of(listed)
        if pool is None:
            self.check(listed)
            raise AssertionError("check() names the missing pool")
        if now := self._lvm.levels(self.room):
            pool = replace(pool, **asdict(now))
        return Capacity(
            pool.size,
            free=int(pool.size * (100 - pool.data_percent) / 100),
            provisioned=self._promised.of(listed),
            thin=True,
            closed=self._closed(pool),
            data_percent=pool.data_percent,
            metadata_percent=pool.metadata_percent,
        )

    def need_room(self) -> None:
        """:raises NoSpace: the pool takes nothing new.

        The kernel is asked: lvs reads the whole group first (0.2 s in the lab, of
        the 0.7 s that lvcreate takes).
        """
        pool = self._lvm.levels(self.room) or self._find()
        # lvcreate says better that there is none.
        if pool and (why := self._closed(pool)):
            raise NoSpace(self.room, why)

    def wipes(self) -> tuple[Wipe, ...]:
        """Nothing has to be wiped."""
        return ()

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Nothing has to be wiped."""
        return None

    def _closed(self, pool: Pool | Levels) -> str:
        """Why the pool takes nothing new, or empty."""
        if pool.health:
            return f"LVM says of it: {pool.health}; see lvs -o+lv_health_status"
        if pool.data_percent >= self._data_limit:
            level = f"its data is {pool.data_percent:g}% full"
            return f"{level}; grow it or delete volumes"
        if pool.metadata_percent >= self._metadata_limit:
            return f"its metadata is {pool.metadata_percent:g}% full; grow its metadata"
        return ""

    def _grow(self, volume: Volume) -> None:
        try:
            self._lvm.extend(volume.name, volume.size)
        except CommandFailed as error:
            if not failures.large_enough(error):
                raise

    def _sum(self, listed: Listed) -> int:
        return sum(found.size for found in listed.volumes if self.owns(found))

    def _find(self) -> Pool | None:
        try:
            return self._lvm.pool(self.room)
        except CommandFailed as error:
            if failures.missing(error):
                return None
            raise
