# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Logical volumes of others that become ours, and ours that are given away.

Both are a change of name. Pools, what LVM keeps hidden, and what we named are
never offered.
"""

from __future__ import annotations

from lunshare.drivers.errors import DiskBusy, UnknownReference
from lunshare.drivers.lvm import names
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.report import Looked
from lunshare.drivers.lvm.thick import Thick
from lunshare.drivers.lvm.thin import Thin
from lunshare.drivers.values import Manageable, Volume

_OPEN = "it is open: unmount it, or stop what uses it"


class Handing:
    """The ways into and out of one pool."""

    def __init__(self, lvm: Lvm, kind: Thin | Thick) -> None:
        self._lvm, self._kind = lvm, kind

    def manageable(self) -> tuple[Manageable, ...]:
        """Whatever of the pool is not ours."""
        return tuple(
            Manageable(found.name, found.size, self._why_not(found))
            for found in self._lvm.looked()
            if self._offered(found)
        )

    def manage(self, volume: Volume, reference: str) -> None:
        """Give it the volume's name."""
        if not names.valid(reference) or names.ours(reference):
            raise UnknownReference(reference, "give the name of a logical volume")
        here = {found.name: found for found in self._lvm.looked()}
        self._kind.need_mine(here, volume)
        if volume.name in here:
            return
        found = here.get(reference)
        if found is None or not self._offered(found):
            raise UnknownReference(reference, "the pool has no such logical volume")
        if found.open:
            raise DiskBusy(volume.id, f"{reference}: {_OPEN}")
        if why := self._why_not(found):
            raise UnknownReference(reference, why)
        self._lvm.rename(reference, volume.name)

    def unmanage(self, volume_id: str) -> None:
        """Give it a name that is not ours."""
        name = Volume(volume_id, 0).name
        parts = self._lvm.around(name)
        if name not in parts or not self._kind.owns(parts[name]):
            return
        if not parts[name].pool and any(lv.origin == name for lv in parts.values()):
            raise DiskBusy(volume_id, "its snapshots need it; delete them first")
        for part in parts.keys() & {name + end for end in names.PARTS}:
            self._lvm.remove(part)  # or a revert that was killed would give it back
        if parts[name].open:
            # udev opens it for a moment now and then: LVM waits for that, and judges.
            self._lvm.deactivate(name)
            self._lvm.activate(name)
        self._lvm.rename(name, f"unmanaged-{volume_id}")

    def _offered(self, found: Looked) -> bool:
        pool = "pool" in found.layout
        return self._kind.owns(found) and not pool and not names.ours(found.name)

    def _why_not(self, found: Looked) -> str:
        if found.open:
            return _OPEN
        if not found.writable:
            return "it is read-only: lvchange --permission rw"
        return self._kind.why_not(found)
