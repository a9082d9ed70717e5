# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Managing foreign logical volumes, and unmanaging volumes. Both are a rename.

Pools, hidden volumes of LVM and volumes of lunshare are never offered.
"""

from __future__ import annotations

from lunshare.drivers.errors import DiskBusy, UnknownReference
from lunshare.drivers.lvm import names
from lunshare.drivers.lvm.brief_opens import wait_until_closed
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import VolumeDetails
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.values import Manageable, Volume

_OPEN = "it is open: unmount it, or stop what uses it"


class ForeignVolumes:
    """The foreign logical volumes of one pool."""

    def __init__(self, lvm: Lvm, kind: Thin | Thick) -> None:
        self._lvm, self._kind = lvm, kind

    def manageable(self) -> tuple[Manageable, ...]:
        """Return each foreign volume of the pool that could be managed."""
        return tuple(
            Manageable(volume.name, volume.size, self._problem(volume))
            for volume in self._lvm.details()
            if self._offered(volume)
        )

    def manage(self, volume: Volume, reference: str) -> None:
        """Rename the volume ``reference`` to the volume's name."""
        if not names.is_valid(reference) or names.created_by_lunshare(reference):
            raise UnknownReference(reference, "give the name of a logical volume")
        present = self._present()
        self._kind.require_owned(present, volume)
        if volume.name in present:
            return
        foreign = wait_until_closed(
            present.get(reference), lambda: self._present().get(reference)
        )
        if foreign is None or not self._offered(foreign):
            raise UnknownReference(reference, "the pool has no such logical volume")
        if foreign.open:
            raise DiskBusy(volume.id, f"{reference}: {_OPEN}")
        if problem := self._problem(foreign):
            raise UnknownReference(reference, problem)
        self._lvm.rename(reference, volume.name)

    def unmanage(self, volume_id: str) -> None:
        """Rename it to a foreign name. A volume that does not exist is success."""
        name = Volume(volume_id, 0).name
        parts = self._lvm.details_of(name)
        if name not in parts or not self._kind.owns(parts[name]):
            return
        if not parts[name].pool and any(lv.origin == name for lv in parts.values()):
            raise DiskBusy(volume_id, "its snapshots need it; delete them first")
        for part in parts.keys() & {name + end for end in names.PARTS}:
            self._lvm.remove(part)  # else finish_reverts would rename it to the volume
        if parts[name].open:
            # udev opens it briefly at times. LVM waits for that, and then decides.
            self._lvm.deactivate(name)
            self._lvm.activate(name)
        self._lvm.rename(name, f"unmanaged-{volume_id}")

    def _present(self) -> dict[str, VolumeDetails]:
        return {volume.name: volume for volume in self._lvm.details()}

    def _offered(self, found: VolumeDetails) -> bool:
        pool = "pool" in found.layout
        return (
            self._kind.owns(found)
            and not pool
            and not names.created_by_lunshare(found.name)
        )

    def _problem(self, details: VolumeDetails) -> str:
        if details.open:
            return _OPEN
        if not details.writable:
            return "it is read-only: lvchange --permission rw"
        return self._kind.manage_problem(details)
