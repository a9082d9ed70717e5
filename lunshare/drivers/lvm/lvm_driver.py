# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``VolumeDriver`` on LVM: names, errors, and an attach that starts no process."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from oslo_config import cfg

from lunshare.drivers import devices, migration
from lunshare.drivers.abilities import VolumeAbilities
from lunshare.drivers.base import Root, VolumeDriver
from lunshare.drivers.errors import CommandFailed, DiskBusy, Misconfigured, UnknownDisk
from lunshare.drivers.lvm import claim, command_errors, disk_events, mapped, names
from lunshare.drivers.lvm.cached_listing import CachedListing, Derived, Listing
from lunshare.drivers.lvm.foreign_volumes import ForeignVolumes
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.managed_snapshots import ForeignSnapshots
from lunshare.drivers.lvm.options import OPTIONS
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.lvm.thick_snapshots import ThickSnapshots
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.lvm.thin_snapshots import ThinSnapshots
from lunshare.drivers.retry import retried_once
from lunshare.drivers.values import (
    Capacity,
    Disk,
    Manageable,
    ManageableSnapshot,
    Snapshot,
    Volume,
    Wipe,
    require_uuid,
    snapshot_name,
)

LOG = logging.getLogger(__name__)

_MTIME_STABLE_NS = 10**9
# Until the events of disks are followed: udev lists its devices in some milliseconds.
_FOLLOW_SECONDS = 5.0


class LvmVolumes(VolumeDriver):
    """Logical volumes of one volume group: in a thin pool, or thick."""

    CONTRACT: ClassVar[int] = 2
    OPTIONS: ClassVar[list[cfg.Opt]] = [*OPTIONS, *migration.OPTIONS]
    #: Of thin volumes; ``abilities`` has the differences of thick ones.
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities(
        multiattach=True,
        supports_snapshots=True,
        snapshots_open=True,
        extends_open=True,
        extends_under_snapshots=True,
        manages=True,
        manages_snapshots=True,
        fills_from_blocks=True,
        fills_from_files=True,
        discards=True,
    )

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        super().__init__(name, options, root)
        self._group: str = options["volume_group"]
        self._timeout: float = options["command_timeout"]
        self._progress_timeout: float = options["progress_timeout"]
        self._lvm = Lvm(root, self._group, self._timeout, self._progress_timeout)
        self._listing = CachedListing(self._lvm)
        self._kind: Thin | Thick
        self._snapshots: ThinSnapshots | ThickSnapshots
        if options["lvm_type"] == "thin":
            self._kind = thin = Thin(self._lvm, self._listing, options)
            self._snapshots = ThinSnapshots(self._lvm, thin)
        else:
            self._kind = thick = Thick(self._lvm, self._listing, self._timeout)
            reserve = options["lvm_snapshot_reserve"]
            self._snapshots = ThickSnapshots(self._lvm, thick, reserve, self._timeout)
        self._foreign = ForeignVolumes(self._lvm, self._kind)
        self._foreign_snapshots = ForeignSnapshots(self._lvm, self._kind)
        self._reverts_finished = Derived(self._finish_reverts)
        self._disks = Derived(self._disks_in)
        self._paths = Derived(
            lambda listed: {d.path for d in self._disks.value_for(listed)}
        )
        self._snapshot_ids = Derived(self._snapshots_in)
        self._all_active_at: tuple[Listing, int] | None = None
        #: Why the pool is closed: some volumes could not be activated, or need a disk
        #: that is lost. Else empty.
        self._inactive = ""
        self._activated = frozenset[str]()  # the paths of the others

    @property
    def abilities(self) -> VolumeAbilities:
        if self.options["lvm_type"] == "thin":
            return replace(self.ABILITIES, clones_at_once=True)
        return replace(
            self.ABILITIES,
            reserves_space=True,
            wipes_deleted=True,
            extends_under_snapshots=False,
            loses_snapshots=True,
        )

    def claim(self) -> None:
        with contextlib.suppress(Misconfigured):
            claim.lock_on_node(self._group)

    @retried_once
    def check(self) -> None:
        with self._group_errors():
            listed = self._listing.current()
            if listed.group.missing:  # its disks may be back, which is no commit
                self._listing.disks_changed()
                listed = self._listing.current()
            self._claim(listed.group.tags)
            self._resume_suspended()
            self._kind.check(listed)
            finished = self._reverts_finished.value_for(listed)
            if finished or not self._all_active(listed):
                self._activate_all(listed)
            else:
                self._inactive = ""
            if listed.group.missing and not self._inactive:
                self._note_missing(listed)

    def follow_storage(self, changed: Callable[[], object]) -> None:
        def disks_changed() -> None:
            self._listing.disks_changed()
            changed()

        started = threading.Event()
        threading.Thread(
            target=disk_events.follow,
            args=(lambda: self._listing.disks, disks_changed, started),
            name=f"disks-{self.name}",
            daemon=True,
        ).start()
        started.wait(_FOLLOW_SECONDS)

    def lost(self, volume_id: str) -> str:
        active = self._lvm.path(f"volume-{volume_id}") in self._activated
        return "" if active else self._inactive

    @retried_once
    def create(self, volume: Volume) -> Disk:
        with self._volume_errors(volume.id):
            self._kind.create(volume)
        return self.disk(volume.id)

    def require_empty(self, volume_id: str) -> None:
        if isinstance(self._kind, Thin):
            self._kind.require_empty(volume_id)

    @retried_once
    def delete(self, volume_id: str) -> None:
        require_uuid(volume_id)
        try:
            with self._volume_errors(volume_id):
                self._kind.delete(volume_id)
        except UnknownDisk:
            pass

    @retried_once
    def extend(self, volume: Volume) -> Disk:
        disk = self.disk(volume.id)
        if disk.size >= volume.size:
            return disk
        with self._volume_errors(volume.id):
            self._kind.extend(volume, disk.size)
        return self.disk(volume.id)

    @retried_once
    def disk(self, volume_id: str) -> Disk:
        path = self._lvm.path(Volume(volume_id, 0).name)
        try:
            size = devices.block_size(path)
        except FileNotFoundError:
            size = self._activate(volume_id, path)
        if not self._kind.owns_pool(mapped.thin_pool_of(path, self._group)):
            raise UnknownDisk(volume_id)
        return Disk(volume_id, path, size)

    def disks(self) -> tuple[Disk, ...]:
        with self._group_errors():
            return self._disks.value_for(self._listing.current())

    def capacity(self) -> Capacity:
        with self._group_errors():
            capacity = self._kind.capacity()
        closed, sector = capacity.closed or self._inactive, self._sector()
        return replace(capacity, closed=closed, sector=sector)

    @retried_once
    def create_snapshot(self, snapshot: Snapshot) -> None:
        with self._volume_errors(snapshot.volume_id):
            self._require_owned(Volume(snapshot.volume_id, 0))
            self._snapshots.create_snapshot(snapshot)

    @retried_once
    def delete_snapshot(self, snapshot_id: str) -> None:
        try:
            with self._volume_errors(snapshot_id):
                self._kind.delete_snapshot(snapshot_name(snapshot_id))
        except UnknownDisk:
            pass
        except DiskBusy as error:
            why = "this snapshot is open; wait until the copy of it is complete"
            raise DiskBusy(snapshot_id, why) from error

    def snapshots(self) -> tuple[str, ...]:
        with self._group_errors():
            return self._snapshot_ids.value_for(self._listing.current())

    @retried_once
    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        with self._volume_errors(volume.id):
            self._snapshots.create_from(volume, snapshot)
        return self.extend(volume)

    @retried_once
    def clone(self, volume: Volume, source: Volume) -> Disk:
        kind = self._snapshots
        if not isinstance(kind, ThinSnapshots):
            return super().clone(volume, source)
        with self._volume_errors(source.id):
            self._require_owned(source)
            kind.clone(volume, source)
        return self.extend(volume)

    @retried_once
    def revert(self, snapshot: Snapshot) -> Disk:
        with self._volume_errors(snapshot.volume_id):
            self._snapshots.revert(snapshot)
        return self.disk(snapshot.volume_id)

    def fill(self, volume: Volume, source: Disk) -> None:
        migration.fill(self.root, self.disk(volume.id), source, self._progress_timeout)

    def manageable(self) -> tuple[Manageable, ...]:
        with self._group_errors():
            return self._foreign.manageable()

    @retried_once
    def manage(self, volume: Volume, reference: str) -> Disk:
        with self._volume_errors(volume.id):
            self._foreign.manage(volume, reference)
        return self.disk(volume.id)

    @retried_once
    def unmanage(self, volume_id: str) -> None:
        require_uuid(volume_id)
        with self._volume_errors(volume_id):
            self._foreign.unmanage(volume_id)

    def manageable_snapshots(self) -> tuple[ManageableSnapshot, ...]:
        with self._group_errors():
            return self._foreign_snapshots.manageable()

    @retried_once
    def manage_snapshot(self, snapshot: Snapshot, reference: str) -> None:
        with self._volume_errors(snapshot.volume_id):
            self._foreign_snapshots.manage(snapshot, reference)

    @retried_once
    def unmanage_snapshot(self, snapshot: Snapshot) -> None:
        with self._volume_errors(snapshot.volume_id):
            self._foreign_snapshots.unmanage(snapshot)

    def wipes(self) -> tuple[Wipe, ...]:
        with self._group_errors():
            return self._kind.wipes()

    @retried_once
    def wipe(self, name: str, limit: int) -> Wipe | None:
        with self._group_errors():
            return self._kind.wipe(name, limit)

    def _finish_reverts(self, listed: Listing) -> bool:
        kind = self._snapshots
        return isinstance(kind, ThinSnapshots) and kind.finish_reverts(listed.volumes)

    def _resume_suspended(self) -> None:
        """Resume the devices that a killed command left suspended.

        :raises Misconfigured: the thin pool below all volumes is still suspended.
        """
        if not self._lvm.may_be_suspended:
            return
        for volume in mapped.suspended(self._group):
            if not volume.layer and names.created_by_lunshare(volume.name):
                # LVM's lock makes it wait for a command in progress; it then does
                # nothing.
                LOG.warning("%s/%s is suspended: resumed", self._group, volume.name)
                self._lvm.refresh(volume.name)
        pool = self._kind.pool_name
        for volume in mapped.suspended(self._group):
            if (volume.name, volume.layer) == (pool, mapped.POOL_LAYER):
                raise Misconfigured(
                    f"thin pool {self._group}/{pool} is suspended",
                    f"dmsetup resume {volume.device}",
                )
        self._lvm.may_be_suspended = False

    def _claim(self, tags: tuple[str, ...]) -> None:
        claim.lock_on_node(self._group)
        if claim.is_tagged_by_this_node(self._group, tags):
            return
        self._lvm.tag_group(claim.node_tag())
        # Another node may have added its tag meanwhile. Then both nodes read both
        # tags, and both refuse.
        claim.is_tagged_by_this_node(self._group, self._lvm.volume_group().tags)

    def _all_active(self, listed: Listing) -> bool:
        """Whether each volume has its device node.

        The directory of the nodes is read only when its mtime changes.
        """
        changed = devices.directory_changed(self._lvm.path(""))
        last = self._all_active_at
        if last and last[0] is listed and last[1] == changed:
            return True
        active = self._paths.value_for(listed) <= self._device_nodes()
        # An mtime has a granularity of some ms: more changes may have the same one.
        stable = time.time_ns() - changed > _MTIME_STABLE_NS
        self._all_active_at = (listed, changed) if active and stable else None
        return active

    def _activate_all(self, listed: Listing) -> None:
        """Activate every volume. Hosts of those that can be must have their access.

        With a disk of the group lost, LVM activates the volumes that are not on it, and
        fails then ("Refusing activation of partial LV", lvm2 2.03.16).

        :raises CommandFailed: none is active.
        """
        self._inactive = ""
        try:
            self._lvm.activate_all()
        except CommandFailed as error:
            if not self._paths.value_for(listed) & self._device_nodes():
                raise
            self._activated = frozenset(self._device_nodes())
            why = error.stderr.strip().partition("\n")[0]
            self._inactive = f"LVM cannot activate every volume: {why}"

    def _note_missing(self, listed: Listing) -> None:
        """Close the pool. Hosts continue to use the volumes that have their disks."""
        partial = self._lvm.partial_volumes()
        whole = (lv.name for lv in listed.volumes if lv.name not in partial)
        self._activated = frozenset(map(self._lvm.path, whole))
        self._inactive = (
            f"volume_group {self._group}: {listed.group.missing} of its disks are lost"
        )

    def _sector(self) -> int:
        """Return the logical sector size of volumes: the largest of the disks."""
        sizes = [512]
        for disk in self._listing.disks:
            with contextlib.suppress(FileNotFoundError):  # it is lost
                sizes.append(devices.sector_size(disk))
        return max(sizes)

    def _device_nodes(self) -> set[str]:
        """The paths that udev created for the group: one read of the directory."""
        directory = self._lvm.path("")
        try:
            return {directory + name for name in os.listdir(directory)}
        except FileNotFoundError:  # no volume of the group is active
            return set()

    def _disks_in(self, listed: Listing) -> tuple[Disk, ...]:
        return tuple(
            Disk(volume_id, self._lvm.path(lv.name), lv.size)
            for lv in listed.volumes
            if (volume_id := names.volume_id(lv.name)) and self._kind.owns(lv)
        )

    def _snapshots_in(self, listed: Listing) -> tuple[str, ...]:
        return tuple(
            snapshot_id
            for lv in listed.volumes
            if (snapshot_id := names.snapshot_id(lv.name)) and self._kind.owns(lv)
        )

    def _activate(self, volume_id: str, path: str) -> int:
        with self._volume_errors(volume_id):
            self._lvm.activate(f"volume-{require_uuid(volume_id)}")
        devices.wait_for_path(path, self._timeout)
        return devices.block_size(path)

    def _require_owned(self, volume: Volume) -> None:
        """:raises UnknownDisk: the volume is not in this backend's pool."""
        try:
            pool = mapped.thin_pool_of(self._lvm.path(volume.name), self._group)
        except FileNotFoundError:  # not active
            details = self._lvm.details_of(volume.name).get(volume.name)
            owned = details is not None and self._kind.owns(details)
        else:
            owned = self._kind.owns_pool(pool)
        if not owned:
            raise UnknownDisk(volume.id)

    def _group_errors(self) -> AbstractContextManager[None]:
        return command_errors.translate_group_errors(self._group)

    def _volume_errors(self, volume_id: str) -> AbstractContextManager[None]:
        return command_errors.translate_errors(
            self._group, self._kind.pool_name, volume_id
        )
