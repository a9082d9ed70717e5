# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Thin volumes: they share one pool, and their sizes may add up to more than it has.

A new thin volume, and a part that was added to it, read as zeros, because the pool
zeroes a chunk when it allocates it (``check`` requires that). So a deleted thin volume
is not wiped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lunshare.drivers.errors import CommandFailed, ForeignBytes, Misconfigured, NoSpace
from lunshare.drivers.lvm import command_errors, names
from lunshare.drivers.lvm.cached_listing import CachedListing, Derived, Listing
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import (
    LogicalVolume,
    PoolUsage,
    ThinPool,
    VolumeDetails,
)
from lunshare.drivers.values import Capacity, Volume, Wipe

LOG = logging.getLogger(__name__)


class Thin:
    """The thin volumes of one pool."""

    def __init__(
        self, lvm: Lvm, listing: CachedListing, options: Mapping[str, Any]
    ) -> None:
        self._lvm, self._listing = lvm, listing
        self._group: str = options["volume_group"]
        self.pool_name: str = options["lvm_pool"] or f"{self._group}-pool"
        # A full pool blocks the writes of all its volumes and then fails them
        # (no_space_timeout, 60 s), so a nearly full one gets no new volumes. Full
        # metadata is worse: the pool becomes read-only and needs an offline repair.
        # LVM refuses neither: lvm2 2.03.16 creates a volume in a pool 100.00% full.
        self._data_limit: float = options["lvm_pool_data_limit"]
        self._metadata_limit: float = options["lvm_pool_metadata_limit"]
        self._pool = Derived(lambda _: self._find_pool())
        self._provisioned = Derived(self._provisioned_size)

    def check(self, listed: Listing) -> None:
        """:raises Misconfigured: the pool is missing or does not clear chunks."""
        pool = self._pool.value_for(listed)
        where = f"{self._group}/{self.pool_name}"
        if pool is None:
            raise Misconfigured(
                f"lvm_pool {self.pool_name}: volume group {self._group} has no such"
                " thin pool",
                "create it with: lvcreate --type thin-pool -l 95%FREE"
                f" -n {self.pool_name} {self._group}",
            )
        if not pool.zeroes:
            raise Misconfigured(
                f"lvm_pool {self.pool_name}: it does not zero new chunks",
                f"set it with: lvchange --zero y {where}",
            )

    def create(self, volume: Volume) -> None:
        """Create it. If it exists, extend it to that size."""
        self.require_space(volume.name)
        try:
            self._lvm.create_thin(volume.name, volume.size, self.pool_name)
        except CommandFailed as error:
            if not command_errors.exists(error):
                raise
            self.require_owned(self._lvm.details_of(volume.name), volume)
            self._extend(volume)

    def require_empty(self, volume_id: str) -> None:
        """Rename a new volume that has mapped blocks, so that no host reads them.

        The kernel's metadata may have a thin device that LVM's does not, after a crash
        or vgcfgrestore. LVM then gives its number to the next volume.

        :raises ForeignBytes: it had some.
        """
        name = Volume(volume_id, 0).name
        if mapped := self._lvm.mapped(name):
            orphan = f"unmanaged-{volume_id}"
            LOG.error("%s: new, and has %d bytes: now %s", name, mapped, orphan)
            self._lvm.rename(name, orphan)
            raise ForeignBytes(volume_id, f"{self._group}/{orphan}")

    def extend(self, volume: Volume, size: int) -> None:
        """Extend it; ``size`` is its size now."""
        self.require_space()
        self._extend(volume)

    def delete(self, volume_id: str) -> None:
        """Remove it, and the copy of a revert that was killed."""
        name = Volume(volume_id, 0).name
        self._lvm.remove_matching(self.pool_name, name, name + names.REVERT)

    def delete_snapshot(self, name: str) -> None:
        """Remove it. A snapshot that does not exist is success."""
        self._lvm.remove_matching(self.pool_name, name)

    def owns(self, found: LogicalVolume | VolumeDetails) -> bool:
        """Whether it lies in this pool."""
        return found.pool == self.pool_name

    def owns_pool(self, pool: str) -> bool:
        """Whether ``pool``, "" for a thick volume, is this pool."""
        return pool == self.pool_name

    def require_owned(self, found: Mapping[str, VolumeDetails], volume: Volume) -> None:
        """:raises Unsupported: a volume of that name exists outside of the pool."""
        if volume.name in found and not self.owns(found[volume.name]):
            raise names.name_conflict(volume, self._group, self.pool_name)

    def manage_problem(self, details: VolumeDetails) -> str:
        """Return why a volume of the pool cannot be managed, or ""."""
        if "extorigin" in details.roles or "extsnapshot" in details.roles:
            return "it shares bytes with a volume outside the pool"
        return ""

    def capacity(self) -> Capacity:
        """Return the usage from the kernel, and the sum of sizes from the listing.

        No command of LVM reports that sum; a report has one row for each volume.
        """
        listed = self._listing.current()
        pool = self._pool.value_for(listed)
        if pool is None:
            self.check(listed)
            raise AssertionError("check() names the missing pool")
        usage = self._usage()
        if usage is None:
            raise Misconfigured(
                f"lvm_pool {self.pool_name}: LVM does not activate it",
                f"see why with: lvchange -ay {self._group}/{self.pool_name}",
            )
        return Capacity(
            pool.size,
            free=int(pool.size * (100 - usage.data_percent) / 100),
            provisioned=self._provisioned.value_for(listed),
            thin=True,
            closed=self._usage_problem(usage) or self._transaction_problem(pool, usage),
            data_percent=usage.data_percent,
            metadata_percent=usage.metadata_percent,
        )

    def require_space(self, volume: str = "", *snapshot: str) -> None:
        """:raises NoSpace: the pool is too full for new volumes.

        The ``volume``, or its ``snapshot``, that is created is not new if it exists
        already: a call that was killed after its effect is repeated, and the pool may
        be full by then.

        Asks the kernel: lvs reads the complete group (0.2 s in the lab, where
        lvcreate takes 0.7 s).
        """
        usage = self._usage()
        # If there is no pool, the error of lvcreate names that better.
        problem = self._usage_problem(usage) if usage else ""
        if problem and not (volume and self._exists(volume, *snapshot)):
            raise NoSpace(self.pool_name, problem)

    def wipes(self) -> tuple[Wipe, ...]:
        """A thin volume is not wiped."""
        return ()

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """A thin volume is not wiped."""
        return None

    def _exists(self, *names: str) -> bool:
        """Whether the last one of a volume and its snapshots is in this pool."""
        details = self._lvm.details_of(*names).get(names[-1])
        return details is not None and self.owns(details)

    def _usage(self) -> PoolUsage | None:
        """Return how full the pool is; None if it does not exist.

        Activates it first if no volume of it is active: then no one knows how full it
        is, and lvs reports nothing (lvm2 2.03.16).
        """
        usage = self._lvm.pool_usage(self.pool_name)
        if usage is None:
            self._lvm.activate_pool(self.pool_name)
            usage = self._lvm.pool_usage(self.pool_name)
        return usage

    def _usage_problem(self, pool: PoolUsage) -> str:
        """Return why the pool is closed to new volumes, or ""."""
        if pool.health:
            return (
                f"LVM reports its health as {pool.health}: see lvs -o+lv_health_status"
            )
        if pool.data_percent >= self._data_limit:
            usage = f"its data is {pool.data_percent:g}% full"
            return f"{usage}; extend it or delete volumes"
        if pool.metadata_percent >= self._metadata_limit:
            return (
                f"its metadata is {pool.metadata_percent:g}% full; extend its metadata"
            )
        return ""

    def _transaction_problem(self, pool: ThinPool, usage: PoolUsage) -> str:
        """Return why the kernel may have thin devices LVM does not know, or "".

        Both numbers grow with each change of the pool, LVM's first, and LVM may be
        changing it now. So LVM is asked again, and the kernel after it.
        """
        if usage.transaction <= pool.transaction:
            return ""
        again = self._find_pool()
        if again is None or usage.transaction <= again.transaction:
            return ""
        now = self._lvm.pool_usage(self.pool_name)
        if now is None or now.transaction != usage.transaction:
            return ""
        return (
            f"the kernel counts {now.transaction} changes of its thin devices and LVM"
            f" {again.transaction}, so a new volume could have another's bytes: see"
            " 'Thin devices that LVM does not know' in docs/operations.md"
        )

    def _extend(self, volume: Volume) -> None:
        try:
            self._lvm.extend(volume.name, volume.size)
        except CommandFailed as error:
            if not command_errors.large_enough(error):
                raise

    def _provisioned_size(self, listed: Listing) -> int:
        return sum(volume.size for volume in listed.volumes if self.owns(volume))

    def _find_pool(self) -> ThinPool | None:
        try:
            return self._lvm.thin_pool(self.pool_name)
        except CommandFailed as error:
            if command_errors.not_found(error):
                return None
            raise
