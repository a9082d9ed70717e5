# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The two contracts that a backend is made of. The conformance kit tests this text.

A ``VolumeDriver`` creates disks. A ``TargetDriver`` exports them to hosts.

Units: sizes, lengths and offsets are bytes (int). Times are seconds (float). Ids of
volumes and snapshots are UUIDs in their canonical, lower-case form.

What the caller does, for both contracts:

- It calls from several threads at once, but never twice at once for one volume:
  it holds that volume's lock during the call.
- It may be killed at any moment. After a restart it calls the same verb again with
  the same arguments. So every verb is repeat-safe: the driver recognises its own
  incomplete work and finishes it, or starts again. What the first call asked of
  root may still run when the second call comes, and must not damage its result.
- It calls ``check`` at start and before each reconcile, and uses a backend only
  after its ``check`` returned.

What the driver does:

- It stores no state except caches that it can lose at any time.
- It touches only disks and exports whose names lunshare gave. All others are
  foreign: they are never changed, and listed only where a verb says so.
- It reports a step that was not finished in time as DeadlineExceeded, never as
  success. The result is then unknown, and the caller repeats the call.
- It reports a storage whose reads or writes fail as an error, never as success, and
  never as UnknownDisk or UnknownSnapshot. While the pool cannot be read, ``check``
  fails, or ``capacity`` fails or is closed.
- It raises only the errors of ``lunshare.drivers.errors``. Besides those that a verb
  lists, each verb may raise what ``Root`` raises. On any error the caller sets the
  resource to an error status, or repeats the call.

How the contract grows: ``CONTRACT`` is its number. Within one number, an older driver
continues to work unchanged: a new method has a default here that refuses or does
nothing, a new ability defaults to no, a new field has a default value, and a new test
of the kit tests a promise that is already written here or belongs to a new ability.
Every other change gets the next number. A driver with another number is refused when
it is loaded, and the error names both numbers.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from lunshare.drivers import drifts
from lunshare.drivers.abilities import TargetAbilities, VolumeAbilities
from lunshare.drivers.drifts import Drift
from lunshare.drivers.driver import Driver, Root, require_abilities
from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import (
    Capacity,
    Connector,
    Disk,
    Export,
    LiveConnector,
    LiveExport,
    Manageable,
    ManageableSnapshot,
    PortalGuard,
    PortalHost,
    Registration,
    Snapshot,
    Volume,
    Wipe,
)

__all__ = ["CONTRACT", "Driver", "Root", "TargetDriver", "VolumeDriver"]

#: The number of the contract in this file. 2 renamed verbs and abilities of 1.
CONTRACT = 2


class VolumeDriver(Driver):
    """Creates, finds and deletes disks. A volume has one disk, named by its id.

    A disk that exists is complete: it has its size and its bytes. Data that is
    confirmed to a host, and a disk that a verb returned, survive a power cut.
    """

    #: What the driver can do. An ability that is not named is a no.
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities()

    def __init_subclass__(cls) -> None:
        require_abilities(cls, VolumeAbilities)

    @property
    def abilities(self) -> VolumeAbilities:
        """``ABILITIES``, changed by this backend's options. Does no I/O."""
        return self.ABILITIES

    @abc.abstractmethod
    def create(self, volume: Volume) -> Disk:
        """Create the disk: at least ``volume.size`` bytes, which read as zeros.

        The disk's size is a multiple of 512. If the disk exists, its bytes are
        preserved, and it is extended if it is smaller than ``volume.size``.

        :raises NoSpace: nothing is left behind. This is also the error when the
            storage itself runs full during the work (ENOSPC, EDQUOT, a message).
        """

    def require_empty(self, volume_id: str) -> None:
        """Check that a disk that was created, and never used, has no bytes.

        For storage that may give a new disk those of an earlier one.

        :raises ForeignBytes: it had some, and it is not this volume's disk any more.
        """

    @abc.abstractmethod
    def delete(self, volume_id: str) -> None:
        """Delete the disk. A disk that does not exist is success.

        If its bytes must be wiped first, this only renames it, which takes the
        same short time for any size; ``wipes`` and ``wipe`` do the rest.

        :raises DiskBusy: it is open, or has snapshots that need it; nothing was
            deleted.
        """

    @abc.abstractmethod
    def extend(self, volume: Volume) -> Disk:
        """Extend the disk to at least ``volume.size`` bytes; its data is preserved.

        The new part reads as zeros. A disk that is large enough is success. A disk
        never shrinks.

        :raises UnknownDisk: the disk does not exist.
        :raises NoSpace: the disk is unchanged.
        :raises Unsupported: it has snapshots, and ``extends_under_snapshots`` is no;
            the disk is unchanged.
        """

    @abc.abstractmethod
    def disk(self, volume_id: str) -> Disk:
        """Return the disk, active: its ``path`` exists when this returns.

        The path has a form that targets export
        (``lunshare.drivers.protocol.export_paths``).
        Each attach calls this, so it starts no process if the disk is active.

        :raises UnknownDisk: the disk does not exist.
        """

    @abc.abstractmethod
    def disks(self) -> tuple[Disk, ...]:
        """Return every disk of the pool that lunshare created. Cost: one query.

        An incomplete disk is not among them, and ``disk`` does not find it either,
        but its space counts as used. Snapshots are not disks.
        """

    @abc.abstractmethod
    def capacity(self) -> Capacity:
        """Return size and free space of the pool.

        The number of queries does not grow with the number of disks. (A storage may
        read all its metadata to answer one query, as LVM does.)

        A pool that is nearly full is ``closed``: it refuses new volumes, snapshots
        and growth with NoSpace, and reports that here in advance. The driver decides
        what "nearly" is. It leaves space for the writes of hosts and for its own
        metadata (a thin pool of LVM: ``lvm_pool_data_limit`` and
        ``lvm_pool_metadata_limit``; NFS: the last 2 %, at most 10 GiB). A pool
        whose volumes reserve their space may stay open until ``free`` is 0.
        """

    # Optional verbs. Each refuses by default. A driver that can do it overrides it
    # and sets the ability; the kit tests both answers.

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Preserve the volume's bytes as they are now, as ``snapshot.id``.

        It contains every write that was confirmed to a host before this call. Hosts
        may write meanwhile. A snapshot that exists is success, and is unchanged.

        :raises UnknownDisk: the volume has no disk.
        :raises DiskBusy: the disk is open, and ``snapshots_open`` is no. The driver
            checks this itself, because the caller may not know who opened it.
        :raises NoSpace: nothing is left behind.
        """
        raise self._unsupported("a snapshot")

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete it; volumes created from it are unaffected. Unknown is success."""
        raise self._unsupported("a snapshot")

    def snapshots(self) -> tuple[str, ...]:
        """Return the ids of every snapshot that lunshare created. Cost: one query."""
        return ()

    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        """Create the disk with the snapshot's bytes, and zeros after them.

        Afterwards disk and snapshot are independent: either may be changed or
        deleted. The bytes are on stable storage when this returns. A disk of that
        volume that exists is success, even if the snapshot does not exist any more.

        :raises UnknownSnapshot: the snapshot does not exist. LostSnapshot: it exists,
            but its bytes are lost.
        :raises NoSpace: nothing is left behind.
        """
        raise self._unsupported("a volume created from a snapshot")

    def clone(self, volume: Volume, source: Volume) -> Disk:
        """Create the disk with the bytes of ``source``, and zeros after them.

        They are the source's bytes as they are now, as in ``create_snapshot``; hosts
        may write to it meanwhile. It is a short step, so the caller may lock the
        source for it. Otherwise as ``create_from``: a disk of that volume that exists
        is success.

        :raises UnknownDisk: the source has no disk.
        :raises DiskBusy: the source is open, and ``snapshots_open`` is no.
        :raises NoSpace: nothing is left behind.
        """
        raise self._unsupported("a clone in one step")

    def revert(self, snapshot: Snapshot) -> Disk:
        """Give the volume the snapshot's bytes and size; the snapshot remains.

        The caller has closed every access to the volume. The driver checks again,
        and refuses if the disk is open. After a kill, the disk has the old bytes or
        the snapshot's until the call is repeated. The bytes are on stable storage
        when this returns.

        :raises UnknownDisk: the volume has no disk.
        :raises UnknownSnapshot: as for ``create_from``.
        :raises DiskBusy: the disk is open; nothing was changed.
        """
        raise self._unsupported("a snapshot")

    def fill(self, volume: Volume, source: Disk) -> None:
        """Copy all bytes of ``source``, any disk of this node, to the volume's disk.

        The source may belong to another driver, is not larger than the volume's
        disk, and neither is open. The volume's disk was created for this copy: it
        reads as zeros, or has some of these bytes from a call that was killed.
        After a kill, the caller repeats the call or deletes the volume's disk.

        It returns only after verification: both disks were read back from stable
        storage, and hold the same bytes, with zeros after them. The caller deletes
        the source only then. A copy may take days; its limit is ``Stalled``.

        :raises UnknownDisk: the volume has no disk.
        :raises Unsupported: ``abilities.fills`` does not have the source's kind, or
            this driver cannot read its path.
        :raises NoSpace: the pool is full; the disk has some of the bytes.
        :raises Stalled: no byte was copied for too long.
        :raises CopyDiffers: the bytes that were read back differ.
        """
        raise self._unsupported("copying a volume from another backend")

    def manageable(self) -> tuple[Manageable, ...]:
        """Return the foreign disks of the pool that could be managed. One query."""
        raise self._unsupported("managing a foreign disk")

    def manage(self, volume: Volume, reference: str) -> Disk:
        """Rename a foreign disk to the volume's name; its bytes are preserved.

        ``reference`` is one of ``manageable``. The disk has the size given there,
        which may be more than ``volume.size``. If the volume has a disk already,
        that is success.

        :raises UnknownReference: no such disk exists, or it cannot be managed.
        :raises DiskBusy: it is open; nothing was changed.
        """
        raise self._unsupported("managing a foreign disk")

    def unmanage(self, volume_id: str) -> None:
        """Rename the disk to a foreign name; its bytes are preserved.

        ``manageable`` lists it afterwards. A disk that does not exist is success.

        :raises DiskBusy: it is open; nothing was changed.
        """
        raise self._unsupported("unmanaging a volume")

    def manageable_snapshots(self) -> tuple[ManageableSnapshot, ...]:
        """Return the foreign snapshots of this pool's volumes. One query.

        A foreign snapshot is one whose name lunshare did not give. The storage itself
        says of which volume it is.
        """
        raise self._unsupported("managing a foreign snapshot")

    def manage_snapshot(self, snapshot: Snapshot, reference: str) -> None:
        """Rename a foreign snapshot to the snapshot's name; its bytes are preserved.

        ``reference`` is one of ``manageable_snapshots``, of ``snapshot.volume_id``. If
        the snapshot exists already, that is success.

        :raises UnknownReference: the volume has no such foreign snapshot, or it cannot
            be managed.
        :raises DiskBusy: it is open; nothing was changed.
        """
        raise self._unsupported("managing a foreign snapshot")

    def unmanage_snapshot(self, snapshot: Snapshot) -> None:
        """Rename the snapshot to a foreign name, which contains its id.

        Its bytes are preserved, and ``manageable_snapshots`` lists it afterwards. A
        snapshot that does not exist is success.

        :raises DiskBusy: it is open; nothing was changed.
        :raises LostSnapshot: its bytes are lost.
        :raises Unsupported: the storage does not know any more of which volume it is,
            so it could not be managed again; nothing was changed.
        """
        raise self._unsupported("unmanaging a snapshot")

    def wipes(self) -> tuple[Wipe, ...]:
        """Return the deleted disks that still have bytes to wipe. Cost: one query."""
        return ()

    def wipe(self, name: str, limit: int) -> Wipe | None:
        """Wipe up to ``limit`` bytes of a deleted disk, on stable storage.

        ``name`` is that of a ``Wipe``. Returns what is left to do, or None if the
        disk is gone and its space is free. After a kill the next call continues.
        A name that does not exist is success.
        """
        return None

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(
            f"{what} on backend {self.name}", "use a backend whose driver supports it"
        )


class TargetDriver(Driver):
    """Exports disks to hosts. The target itself enforces the mode of each host.

    ``apply`` is the one verb that opens access; the caller passes the complete
    wanted state of a volume as an ``Export``. Access fails closed: an access that
    is not wanted is closed before a wanted one is opened, a new access starts
    read-only, and write access is granted last and read back. If ``apply`` raises,
    no host has more access than the wanted state grants.
    """

    #: What the driver can do. An ability that is not named is a no.
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities()

    #: How hosts reach a volume: ``storage_protocol`` of the pool stats.
    PROTOCOL: ClassVar[str] = "iSCSI"

    def __init_subclass__(cls) -> None:
        require_abilities(cls, TargetAbilities)

    @property
    def abilities(self) -> TargetAbilities:
        """``ABILITIES``, changed by this backend's options. Does no I/O."""
        return self.ABILITIES

    @abc.abstractmethod
    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Make the live export equal to ``export``; return what was changed.

        ``only`` is a set of initiator names. With it, no other initiator is read or
        changed: one that is in ``only`` and not in ``export.connectors`` is closed.
        So an attach costs the same however many hosts and volumes there are.
        Without it, every access that is not wanted is closed.

        The sessions of an access that is already correct are not disturbed. When
        an access is closed or loses write, its writes in progress are complete and
        its session is ended before this returns. A disk that was extended is shown
        with its new size; hosts see it when they read the capacity again.

        Returns sentences for the log; empty if nothing was changed.

        :raises TargetFailed: the access is at most what ``export`` grants. The
            caller repeats the call.
        :raises DeadlineExceeded: closing is still in progress in the kernel. New
            I/O is refused already; I/O that was in progress may still complete.
        :raises Unsupported: a connector is read-only, and ``enforces_read_only`` is
            no; nothing was changed.
        """

    @abc.abstractmethod
    def remove(self, volume_id: str) -> tuple[str, ...]:
        """Close every access and delete the export; returns and raises as ``apply``.

        An export that does not exist is success. The disk is not needed.
        """

    @abc.abstractmethod
    def observe(self) -> tuple[LiveExport, ...]:
        """Return every live export that lunshare created, read from the target.

        Foreign exports are not listed. Empty if ``abilities.observes`` is no. One that
        hangs is ``unread``.
        """

    @property
    def listing(self) -> object:
        """What ``observe`` lists: equal for two targets that list the same."""
        return self

    def observe_volume(self, volume_id: str) -> LiveExport | None:
        """Return the live export of one volume, or None; as ``observe``."""
        exports = (export for export in self.observe() if export.volume_id == volume_id)
        return next(exports, None)

    def observe_host(self, volume_id: str, initiator: str) -> LiveConnector | None:
        """Return the live access of one host of a volume, or None; as ``observe``."""
        live = self.observe_volume(volume_id)
        accesses = live.connectors if live else ()
        return next((host for host in accesses if host.initiator == initiator), None)

    def registrations(self, volume_id: str) -> tuple[Registration, ...]:
        """Return the reservation keys that hosts of a volume have now; as ``observe``.

        Of very many, it may return only some.
        """
        live = self.observe_volume(volume_id)
        return live.registrations if live else ()

    def compare(self, export: Export) -> tuple[Drift, ...]:
        """Return each way in which the live export differs from ``export``.

        It reads, and changes nothing. Empty where ``apply`` would change nothing that
        a host notices. Credentials are compared, and never shown. A target that only
        observes compares modes; without ``abilities.observes`` it is empty.
        """
        if not self.abilities.observes:
            return ()
        live = self.observe_volume(export.volume_id)
        return tuple(drifts.of_accesses(export, live))

    @property
    def guards_portals(self) -> bool:
        """Whether only hosts that are admitted can open a connection. Does no I/O."""
        return False

    def admit(self, address: str, wanted: bool) -> bool:
        """Let hosts at an IP address open connections to the target, or not any more.

        Connections that exist are not ended. Returns False where what ``admit_all`` has
        made is lost, so that the caller calls that again.

        :raises Misconfigured: the node refused it; nothing was changed.
        """
        return True

    def admit_each(self, addresses: Mapping[str, bool]) -> bool:
        """Do the same for several addresses, by whether each is wanted."""
        results = [self.admit(address, wish) for address, wish in addresses.items()]
        return all(results)

    def admit_all(self, hosts: Collection[PortalHost]) -> tuple[str, ...]:
        """Let these hosts open connections, and no others.

        Networks that an option names are admitted too. Returns sentences for the log,
        and raises as ``admit``. Where ``guards_portals`` is no, everybody is admitted.
        """
        return ()

    @property
    def needs_addresses(self) -> bool:
        """Whether hosts without an address are refused. Does no I/O."""
        return False

    @property
    def portal_guard(self) -> PortalGuard | None:
        """What ``admit_all`` has seen; None if hosts do not connect, or not yet."""
        return None

    @abc.abstractmethod
    def connection_info(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        """Return what the host needs to log in, in the form of os-brick. No I/O.

        The caller has applied this connector. Keys for iSCSI:
        ``driver_volume_type``, ``target_iqn``, ``target_portal``, ``target_lun``,
        their plural forms if there are several portals, and ``auth_method``,
        ``auth_username``, ``auth_password`` if CHAP is used.
        """
