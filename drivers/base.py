# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The two contracts a backend is made of. Their text is what the kit tests.

A ``VolumeDriver`` makes disks; a ``TargetDriver`` exports them. Both are
called from several threads at once, but never twice at once for one volume:
the caller holds that volume's lock. Every verb is repeat-safe: the caller may
have been killed half-way and will call again with the same arguments, and a
driver must recognise and finish its own half-done work. What the first call asked of
root may still run when the repeat comes, and must do no harm to what that has made. A
step that was not done in time is DeadlineExceeded, never a success. A driver keeps no
state beyond caches that it can lose.

How the contract grows: ``CONTRACT`` is its number. Within one number a driver that
was written earlier goes on working unchanged: a new method has a body here that
refuses or does nothing, a new ability is a no, a new field of a value or argument
has a default, and a new behaviour of the kit tests a promise that already stands
here or goes with a new ability. Whatever else changes gets the next number, and a
driver of another number is refused when it is loaded, with both numbers.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol

from oslo_config import cfg

from lunshare.drivers.abilities import TargetAbilities, VolumeAbilities
from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import (
    Capacity,
    Connector,
    Disk,
    Export,
    LiveExport,
    Manageable,
    Snapshot,
    Volume,
    Wipe,
)

#: The contract of this file; a driver's class says for which it was written.
CONTRACT = 1


class Root(Protocol):
    """The door to root that a driver is given; see lunshare.drivers.helper_client."""

    def run(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a command allowed by rootwrap.d as root; return its stdout.

        :raises CommandFailed: it exited with another code than 0.
        :raises HelperRefused: no filter in rootwrap.d allows it.
        :raises HelperUnreachable: the helper does not answer.
        :raises DeadlineExceeded: it did not finish within ``timeout`` seconds.
        """

    def call(self, verb: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Call a typed verb of the root helper; raises as ``run`` does.

        A verb that works on bytes takes as long as it goes on: its ``timeout`` is
        the time in which none of them may be done (Stalled).
        """


def _need(driver: Any, kind: type) -> None:
    if not isinstance(driver.ABILITIES, kind):
        raise TypeError(f"ABILITIES of {driver.__name__} must be {kind.__name__}(...)")


class VolumeDriver(abc.ABC):
    """Makes, finds and removes disks, one per volume, named from the volume id.

    Disks that do not carry our name are never listed, opened or changed.
    """

    #: The contract it was written for. A driver that does not say was for the first.
    CONTRACT: ClassVar[int] = 1

    #: What it can do; what is not named here it cannot.
    ABILITIES: ClassVar[VolumeAbilities] = VolumeAbilities()

    #: Options of a backend section that this driver reads.
    OPTIONS: ClassVar[list[cfg.Opt]] = []

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        """Keep the arguments; do no I/O. ``name`` is the backend's section."""
        self.name, self.options, self.root = name, options, root

    def __init_subclass__(cls) -> None:
        _need(cls, VolumeAbilities)

    @property
    def abilities(self) -> VolumeAbilities:
        """``ABILITIES``, or what of them the options leave. Asks no storage."""
        return self.ABILITIES

    @abc.abstractmethod
    def check(self) -> None:
        """Prove that this backend can work, and make its disks ready after a boot.

        Called at start and before each reconcile.

        :raises Misconfigured: with what to do about it.
        """

    @abc.abstractmethod
    def create(self, volume: Volume) -> Disk:
        """Make the disk, at least ``volume.size`` bytes, reading as zeros.

        Its size is a multiple of 512 bytes. Repeat-safe: a disk of that name that is
        large enough is success, and a smaller one grows; its bytes stay. What a
        killed call began is finished, or begun anew.

        :raises NoSpace: nothing was left behind, also where it was the storage that
            said so in the middle of the work (ENOSPC, EDQUOT, a command's text).
        """

    @abc.abstractmethod
    def delete(self, volume_id: str) -> None:
        """Remove the disk. An unknown disk is success.

        Where its bytes must be wiped first, it only loses its name here, which
        takes a moment however large it is; see ``wipes``.

        :raises DiskBusy: it is open, or has snapshots that need it; nothing was
            removed.
        """

    @abc.abstractmethod
    def extend(self, volume: Volume) -> Disk:
        """Grow the disk to at least ``volume.size``; bytes keep their place.

        Already that large is success; it never shrinks.

        :raises UnknownDisk: there is nothing to grow.
        :raises NoSpace: the disk is as it was.
        :raises Unsupported: it has snapshots, under which this driver cannot grow
            it; the disk is as it was.
        """

    @abc.abstractmethod
    def disk(self, volume_id: str) -> Disk:
        """Return the disk, activated; ``path`` exists when this returns.

        The path is of a form that the target's side exports (lunshare.drivers.paths):
        absolute, and showing whose it is. On the attach path: starts no process when
        the disk is active already.

        :raises UnknownDisk: there is none.
        """

    @abc.abstractmethod
    def disks(self) -> tuple[Disk, ...]:
        """Every disk of ours, known to the caller or not. Cost: one query.

        One that is half made is not among them until ``disk`` finds it; its room
        counts as taken. Snapshots are not disks.
        """

    @abc.abstractmethod
    def capacity(self) -> Capacity:
        """The pool's room. Cost does not grow with the number of disks.

        That is the number of questions asked: where the storage itself reads
        all it knows to answer any of them, as LVM does, its time is not ours.
        A pool that is nearly full is ``closed``: it refuses what would take
        more room with NoSpace, and says so here before anybody asks. What "nearly"
        is, the driver decides: it closes while there is room for the writes that
        hosts have under way and for its own tables (a thin pool of LVM:
        ``lvm_pool_data_limit`` and ``lvm_pool_metadata_limit``; NFS: the last 2 %, at
        most 10 GiB). One whose volumes reserve their room may stay open and let
        ``free`` say it.
        """

    # What a driver need not do: these refuse, and a driver that can overrides
    # them and says so in ABILITIES. The kit holds the one against the other.

    def create_snapshot(self, snapshot: Snapshot) -> None:
        """Keep the volume's bytes as they are now; hosts may go on writing.

        A write that a host was told has landed is in it. Repeat-safe: a
        snapshot that is there is success, and keeps its moment.

        :raises UnknownDisk: there is no such volume.
        :raises DiskBusy: somebody has it open, and ``snapshots_open`` is no. The
            driver sees to that, for the caller may not know who has it.
        :raises NoSpace: nothing was left behind.
        """
        raise self._unsupported("a snapshot")

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove it; volumes made from it stay whole. An unknown one is success."""
        raise self._unsupported("a snapshot")

    def snapshots(self) -> tuple[str, ...]:
        """The ids of every snapshot of ours. Cost: one query."""
        return ()

    def create_from(self, volume: Volume, snapshot: Snapshot) -> Disk:
        """Make the disk with the snapshot's bytes, and zeros behind them.

        From then on neither sees what is done to the other, and the snapshot
        may go. Repeat-safe: a disk of that name is success. The bytes are on the
        medium when this returns.

        :raises UnknownSnapshot: there is no such snapshot, or (LostSnapshot) its
            bytes are lost.
        :raises NoSpace: nothing was left behind.
        """
        raise self._unsupported("a volume made of another's bytes")

    def revert(self, snapshot: Snapshot) -> Disk:
        """Give its volume the snapshot's bytes and size; the snapshot stays.

        The caller has ended every access to the volume; the driver looks once more,
        and refuses where somebody has it open all the same. Killed half-way, the
        volume has the old bytes or the snapshot's when this is repeated. The bytes
        are on the medium when this returns.

        :raises UnknownDisk: there is no such volume.
        :raises UnknownSnapshot: there is no such snapshot, or (LostSnapshot) its
            bytes are lost.
        :raises DiskBusy: the disk is open; nothing was changed.
        """
        raise self._unsupported("a snapshot")

    def fill(self, volume: Volume, source: Disk) -> None:
        """Give the volume's disk all bytes of another disk of this node.

        Nobody has either open, the other is no larger, and may be another
        driver's. The volume's was made for this: it reads as zeros, or has
        some of these bytes from a call that was killed. Killed half-way, it is
        repeated, or the volume's disk is deleted.

        It returns when it is proven: both disks were read back from their medium
        and hold the same bytes, and zeros are behind them. The caller deletes the
        other after that and not before. It may take days; a driver fails when it
        comes no further (Stalled).

        :raises UnknownDisk: the volume has none.
        :raises Unsupported: the other's kind is not among ``abilities.fills``, or it is
            where this driver cannot read it.
        :raises NoSpace: the pool is full; the disk has some of the bytes.
        :raises CopyDiffers: what is read back is not what the other holds.
        """
        raise self._unsupported("moving a volume")

    def manageable(self) -> tuple[Manageable, ...]:
        """Disks in the pool that are not ours, but could be. Cost: one query."""
        raise self._unsupported("taking over a disk")

    def manage(self, volume: Volume, reference: str) -> Disk:
        """Make somebody's disk the volume's: it gets our name, and keeps its bytes.

        It has the size that ``manageable`` gives, which may be more than the volume's.

        Repeat-safe: a disk of the volume's name is success.

        :raises UnknownReference: there is no such disk, or it cannot be taken.
        :raises DiskBusy: it is open; nothing was changed.
        """
        raise self._unsupported("taking over a disk")

    def unmanage(self, volume_id: str) -> None:
        """Give the disk away: it keeps its bytes under a name that is not ours.

        It is then among ``manageable``. An unknown disk is success.

        :raises DiskBusy: it is open; nothing was changed.
        """
        raise self._unsupported("giving a disk away")

    def wipes(self) -> tuple[Wipe, ...]:
        """Deleted disks that still have bytes to wipe. Cost: one query."""
        return ()

    def wipe(self, name: str, most: int) -> Wipe | None:
        """Wipe up to ``most`` bytes of a deleted disk, down to the medium.

        Returns what is left to do; None when it is gone and its room is free
        again. May be killed at any moment and is gone on with by the next
        call. An unknown name is success.
        """
        return None

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(
            f"{what} on backend {self.name}", "use a backend whose driver offers it"
        )


class TargetDriver(abc.ABC):
    """Exports disks to hosts, each in its own mode, enforced by the target.

    The wanted state comes in as an ``Export`` and ``apply`` is the one verb that
    writes it. Access fails closed: what is not wanted is closed before what
    is wanted is opened, a new access is born read-only, write access comes
    last and is read back. When ``apply`` raises, no host has more than the
    wanted state grants.
    """

    #: The contract it was written for. A driver that does not say was for the first.
    CONTRACT: ClassVar[int] = 1

    #: What it can do; what is not named here it cannot.
    ABILITIES: ClassVar[TargetAbilities] = TargetAbilities()

    #: Options of a backend section that this driver reads.
    OPTIONS: ClassVar[list[cfg.Opt]] = []

    #: How hosts reach a volume, in the words of a pool's report.
    PROTOCOL: ClassVar[str] = "iSCSI"

    def __init__(self, name: str, options: Mapping[str, Any], root: Root) -> None:
        """Keep the arguments; do no I/O. ``name`` is the backend's section."""
        self.name, self.options, self.root = name, options, root

    def __init_subclass__(cls) -> None:
        _need(cls, TargetAbilities)

    @property
    def abilities(self) -> TargetAbilities:
        """``ABILITIES``, or what of them the options leave. Asks nothing."""
        return self.ABILITIES

    @abc.abstractmethod
    def check(self) -> None:
        """Prove that exporting can work.

        :raises Misconfigured: with what to do about it.
        """

    @abc.abstractmethod
    def apply(
        self, export: Export, only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Make the live export equal to ``export``; return what was changed.

        With ``only``, look at no other initiators than these: one of them that
        is not among ``export.connectors`` is closed. So an attach costs the
        same whatever else the volume and the node hold. Without it, every
        access that is not wanted is closed. A disk that has grown is shown to
        its hosts with its new size; they see it when they ask again.

        Initiators whose access is already right keep their sessions and see
        nothing. When an access is closed or loses write, its writes under way
        have landed, and its session is ended, before this returns. Nothing
        changed means an empty answer; entries are sentences for a log.

        :raises TargetFailed: access is at most what ``export`` grants; repeat.
        :raises DeadlineExceeded: a closing is pending in the kernel: new I/O is
            refused already, but what was under way may still land.
        """

    @abc.abstractmethod
    def remove(self, volume_id: str) -> tuple[str, ...]:
        """End every session and take the export away. Unknown is success."""

    @abc.abstractmethod
    def observe(self) -> tuple[LiveExport, ...]:
        """Every live export of ours. Foreign ones are neither listed nor touched."""

    def live(self, volume_id: str) -> LiveExport | None:
        """The live export of one volume, or None. As ``observe``, for one.

        A driver overrides it where that costs less than looking at all of them.
        """
        found = (each for each in self.observe() if each.volume_id == volume_id)
        return next(found, None)

    @abc.abstractmethod
    def connection(self, volume: Volume, connector: Connector) -> dict[str, Any]:
        """What the host needs to log in, in os-brick's words. No I/O.

        Keys: ``driver_volume_type``, ``target_iqn``, ``target_portal``,
        ``target_lun``, their plural forms with several portals, and
        ``auth_method``, ``auth_username``, ``auth_password`` with CHAP.
        """
