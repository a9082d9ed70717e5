# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Managing foreign snapshots of volumes, and unmanaging snapshots. Both are a rename.

LVM says of which volume a snapshot is (``origin``). When a thin volume is reverted, LVM
forgets that of its snapshots: the volume that they were created from is removed.
"""

from __future__ import annotations

from collections.abc import Mapping

from lunshare.drivers.errors import (
    DiskBusy,
    LostSnapshot,
    UnknownReference,
    Unsupported,
)
from lunshare.drivers.lvm import names
from lunshare.drivers.lvm.brief_opens import wait_until_closed
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import VolumeDetails
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.values import ManageableSnapshot, Snapshot, Volume

_OPEN = "it is open: unmount it, or stop what uses it"
_LOST = "its reserve is full (lvm_snapshot_reserve)"

_Present = Mapping[str, VolumeDetails]


class ForeignSnapshots:
    """The foreign snapshots of one pool's volumes."""

    def __init__(self, lvm: Lvm, kind: Thin | Thick) -> None:
        self._lvm, self._kind = lvm, kind

    def manageable(self) -> tuple[ManageableSnapshot, ...]:
        """Return each foreign snapshot of a volume of lunshare."""
        present = self._present()
        return tuple(
            ManageableSnapshot(
                details.name, self._size(details, present), volume_id, _problem(details)
            )
            for details in present.values()
            if (volume_id := self._volume_of(details, present))
        )

    def manage(self, snapshot: Snapshot, reference: str) -> None:
        """Rename the foreign snapshot ``reference`` to the snapshot's name."""
        if not names.is_valid(reference) or names.created_by_lunshare(reference):
            raise UnknownReference(reference, "give the name of a logical volume")
        present = self._present()
        if snapshot.name in present:
            return
        foreign = wait_until_closed(
            present.get(reference), lambda: self._present().get(reference)
        )
        if foreign is None or self._volume_of(foreign, present) != snapshot.volume_id:
            why = f"volume {snapshot.volume_id} has no such foreign snapshot"
            raise UnknownReference(reference, why)
        if foreign.open:
            raise DiskBusy(snapshot.volume_id, f"{reference}: {_OPEN}")
        if problem := _problem(foreign):
            raise UnknownReference(reference, problem)
        self._lvm.rename(reference, snapshot.name)

    def unmanage(self, snapshot: Snapshot) -> None:
        """Rename it to a foreign name. A snapshot that does not exist is success."""
        details = self._closed(snapshot)
        if details is None:
            return
        if details.lost:
            raise LostSnapshot(snapshot.id, _LOST)
        if details.open:
            raise DiskBusy(snapshot.volume_id, f"snapshot {snapshot.id}: {_OPEN}")
        if names.volume_id(details.origin) != snapshot.volume_id:
            raise Unsupported(
                f"unmanaging snapshot {snapshot.id}",
                "its volume was reverted since it was created, and LVM does not know"
                " any more that it is a snapshot of it: create a volume from it, and"
                " unmanage that one",
            )
        self._lvm.rename(snapshot.name, f"unmanaged-{snapshot.id}")

    def _closed(self, snapshot: Snapshot) -> VolumeDetails | None:
        """Return it as it is now; wait while udev has it open."""
        return wait_until_closed(self._find(snapshot), lambda: self._find(snapshot))

    def _present(self) -> _Present:
        return {volume.name: volume for volume in self._lvm.details()}

    def _find(self, snapshot: Snapshot) -> VolumeDetails | None:
        name = Volume(snapshot.volume_id, 0).name
        details = self._lvm.details_of(name, snapshot.name).get(snapshot.name)
        return details if details and self._kind.owns(details) else None

    def _volume_of(self, found: VolumeDetails, present: _Present) -> str | None:
        """Return the id of the volume whose foreign snapshot it is, or None."""
        origin = present.get(found.origin)
        ours = origin is not None and self._kind.owns(origin)
        foreign = not names.created_by_lunshare(found.name)
        if not (ours and foreign and self._kind.owns(found)):
            return None
        return names.volume_id(found.origin)

    def _size(self, found: VolumeDetails, present: _Present) -> int:
        """Return the size of its bytes. LVM reports a thick snapshot's reserve."""
        return found.size if found.pool else present[found.origin].size


def _problem(details: VolumeDetails) -> str:
    if details.open:
        return _OPEN
    if details.lost:
        return f"its bytes are lost: {_LOST}"
    if details.merging:
        return "it is being merged into its volume"
    if not details.writable:
        return "it is read-only: lvchange --permission rw"
    return ""
