# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The volume contract on LVM: names, errors, and the path without a process."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers import devices, migration
from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import DiskBusy, Misconfigured, UnknownDisk
from lunshare.drivers.lvm import claim, failures, names, sysfs
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.listing import Drawn, Listed, Listing
from lunshare.drivers.lvm.manage import Handing
from lunshare.drivers.lvm.options import OPTIONS
from lunshare.drivers.lvm.report import LogicalVolume
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.lvm.thick_copies import ThickCopies
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.lvm.thin_copies import ThinCopies
from lunshare.drivers.retry import retried_once
from lunshare.drivers.values import (
    Capacity,
    Disk,
    Manageable,
    Snapshot,
    Volume,
    Wipe,
    volume_uuid,
)

LOG = logging.getLogger(__name__)

_SETTLED_NS = 10**9


class LvmVolumes(VolumeDriver):
    """Logical volumes of one group, in a thin pool or thick."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = [*OPTIONS, *migration.OPTIONS]
    #: Thin; ``abilities`` has what thick volumes do otherwise.
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities(
        multiattach=True,
        supports_snapshots=True,
        snapshots_open=True,
        extends_open=True,
        extends_under_snapshots=True,
        manages=True,
        fills_from_blocks=True,
        fills_from_files=True,
        discards=True,
    )

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._group: str = options["volume_group"]
        self._timeout: float = options["command_timeout"]
        self._patience: float = options["progress_timeout"]
        self._lvm = Lvm(root, self._group, self._timeout, self._patience)
        self._listing = Listing(self._lvm)
        self._kind: Thin | Thick
        self._copies: ThinCopies | ThickCopies
        if options["lvm_type"] == "thin":
            self._kind = thin = Thin(self._lvm, self._listing, options)
            self._copies = ThinCopies(self._lvm, thin)
        else:
            self._kind = thick = Thick(self._lvm, self._listing, self._timeout)
            reserve = options["lvm_snapshot_reserve"]
            self._copies = ThickCopies(self._lvm, thick, reserve, self._timeout)
        self._handing = Handing(self._lvm, self._kind)
        self._mended = Drawn(self._mend)
        self._paths = Drawn(lambda listed: {d.path for d in self._ours(listed.volumes)})
        self._all_there: tuple[Listed, int] | None = None

    @property
    def abilities(self) -> VolumeAbilities:
        if self.options["lvm_type"] == "thin":
            return self.ABILITIES
        return replace(
            self.ABILITIES,
            reserves_space=True,
            wipes_deleted=True,
            extends_under_snapshots=False,
            loses_snapshots=True,
        )

    @retried_once
    def check(self) -> None:
        with self._there():
            listed = self._listing.now()
            self._claim(listed.group.tags)
            self._resume()
            self._kind.check(listed)
            mended = self._mended.of(listed)
            if mended or not self._awake(listed):
                self._lvm.activate_all()

    @retried_once
    def create(self, volume: Volume) -> Disk:
        with self._told(volume.id):
            self._kind.create(volume)
        return self.disk(volume.id)

    @retried_once
    def delete(self, volume_id: str) -> None:
        volume_uuid(volume_id)
        try:
            with self._told(volume_id):
                self._kind.delete(volume_id)
        except UnknownDisk:
            pass

    @retried_once
    def extend(self, volume: Volume) -> Disk:
        disk = self.disk(volume.id)
        if disk.size >= volume.size:
            return disk
        with self._told(volume.id):
            self._kind.extend(volume, disk.size)
        return self.disk(volume.id)

    @retried_once
    def disk(self, volume_id: str) -> Disk:
        path = self._lvm.path(Volume(volume_id, 0).name)
        try:
            size = devices.block_size(path)
        except FileNotFoundError:
            size = self._activated(volume_id, path)
        if not self._kind.has(sysfs.pool_of(path, self._group)):
            raise UnknownDisk(volume_id)
        return Disk(volume_id, path, size)

    def disks(self) -> tuple[Disk, ...]:
        with self._there():
            return self._ours(self._lvm.volumes())

    def capacity(self) -> Capacity:
        with self._there():
            return self._kind.capacity()

    @retried_once
    def create_snapshot(self, snapshot: Snapshot) -> None:
        with self._told(snapshot.volume_id):
            self._need_mine(Volume(snapshot.volume_id, 0))
            self._copies.create_snapshot(snapshot)

    @retried_once
    def delete_snapshot(self, snapshot_id: str) -> None:
        try:
            with self._told(snapshot_id):
                self._kind.delete_snapshot(names.snapshot(snapshot_id))
        except UnknownDisk:
            pass
        except DiskBusy as error:
            why = "it is a snapshot that is open; let the copying of it end"
            raise DiskBusy(snapshot_id, why) from error

    def snapshots(self) -> tuple[str, ...]:
        with self._there():
            return tuple(
                known
                for found in self._lvm.volumes()
                if (known := names.snapshot_id(found.name)) and self._kind.owns(found)
            )

    @retried_once
    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        with self._told(volume.id):
            self._copies.create_from(volume, snapshot)
        return self.extend(volume)

    @retried_once
    def revert(self, snapshot: Snapshot) -> Disk:
        with self._told(snapshot.volume_id):
            self._copies.revert(snapshot)
        return self.disk(snapshot.volume_id)

    def fill(self, volume: Volume, source: Disk) -> None:
        migration.fill(self.root, self.disk(volume.id), source, self._patience)

    def manageable(self) -> tuple[Manageable, ...]:
        with self._there():
            return self._handing.manageable()

    @retried_once
    def manage(self, volume: Volume, reference: str) -> Disk:
        with self._told(volume.id):
            self._handing.manage(volume, reference)
        return self.disk(volume.id)

    @retried_once
    def unmanage(self, volume_id: str) -> None:
        volume_uuid(volume_id)
        with self._told(volume_id):
            self._handing.unmanage(volume_id)

    def wipes(self) -> tuple[Wipe, ...]:
        with self._there():
            return self._kind.wipes()

    @retried_once
    def wipe(self, name: str, limit: int) -> Wipe | None:
        with self._there():
            return self._kind.wipe(name, limit)

    def _mend(self, listed: Listed) -> bool:
        copies = self._copies
        return isinstance(copies, ThinCopies) and copies.mend(listed.volumes)

    def _resume(self) -> None:
        """Let go on what a command that was killed in its middle has suspended.

        :raises Misconfigured: what all volumes lie on is suspended still.
        """
        if not self._lvm.doubt:
            return
        for name in filter(names.ours, sysfs.suspended(self._group)):
            # It waits for a command that is under way, and then changes nothing.
            LOG.warning("%s/%s is suspended: resumed", self._group, name)
            self._lvm.refresh(name)
        pool = self._kind.room
        if pool + sysfs.POOL in sysfs.suspended(self._group):
            device = sysfs.mapped(self._group, pool) + sysfs.POOL
            raise Misconfigured(
                f"thin pool {self._group}/{pool} is suspended",
                f"dmsetup resume {device}",
            )
        self._lvm.doubt = False

    def _claim(self, tags: tuple[str, ...]) -> None:
        claim.hold_on_node(self._group)
        if claim.is_mine(self._group, tags):
            return
        self._lvm.claim(claim.tag())
        # Another node may have done so meanwhile: then both see both, and refuse.
        claim.is_mine(self._group, self._lvm.group().tags)

    def _awake(self, listed: Listed) -> bool:
        """Whether each volume has its node; their directory is read when it changes."""
        changed = devices.changed(self._lvm.path(""))
        there = self._all_there
        if there and there[0] is listed and there[1] == changed:
            return True
        awake = self._paths.of(listed) <= self._nodes()
        # Times have steps of some ms: a change may not be the last one of its step.
        settled = time.time_ns() - changed > _SETTLED_NS
        self._all_there = (listed, changed) if awake and settled else None
        return awake

    def _nodes(self) -> set[str]:
        """The paths that udev has made for the group, read at once."""
        directory = self._lvm.path("")
        try:
            return {directory + name for name in os.listdir(directory)}
        except FileNotFoundError:  # nothing of the group is active
            return set()

    def _ours(self, found: Iterable[LogicalVolume]) -> tuple[Disk, ...]:
        return tuple(
            Disk(known, self._lvm.path(lv.name), lv.size)
            for lv in found
            if (known := names.volume_id(lv.name)) and self._kind.owns(lv)
        )

    def _activated(self, volume_id: str, path: str) -> int:
        with self._told(volume_id):
            self._lvm.activate(f"volume-{volume_uuid(volume_id)}")
        devices.wait_for(path, self._timeout)
        return devices.block_size(path)

    def _need_mine(self, volume: Volume) -> None:
        """:raises UnknownDisk: it is not in the pool."""
        try:
            pool = sysfs.pool_of(self._lvm.path(volume.name), self._group)
        except FileNotFoundError:  # not active
            found = self._lvm.around(volume.name).get(volume.name)
            mine = found is not None and self._kind.owns(found)
        else:
            mine = self._kind.has(pool)
        if not mine:
            raise UnknownDisk(volume.id)

    def _there(self) -> AbstractContextManager[None]:
        return failures.told_of_group(self._group)

    def _told(self, volume_id: str) -> AbstractContextManager[None]:
        return failures.told(self._group, self._kind.room, volume_id)
