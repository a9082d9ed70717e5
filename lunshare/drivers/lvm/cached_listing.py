# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume group and its logical volumes, read again only after LVM changed them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lunshare.drivers.errors import DeadlineExceeded, DriverError, HelperUnreachable
from lunshare.drivers.lvm.lvm_commands import Lvm
from lunshare.drivers.lvm.lvm_reports import LogicalVolume, VolumeGroup

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Listing:
    """A volume group, its logical volumes, and LVM's metadata commit of that state.

    ``commit`` may be the one before, if LVM changed the group during the listing.
    """

    group: VolumeGroup
    volumes: tuple[LogicalVolume, ...]
    commit: dict[str, int] | None


class CachedListing:
    """The current listing, read with vgs and lvs only if the group has changed.

    Each creation, deletion, rename or extension of a logical volume is a commit of
    the group's metadata, and the header on a disk of the group shows the last one.
    vgs and lvs read every volume of the group before they report anything (5,000
    volumes: 5 s in the lab). Several threads may share one instance.
    """

    def __init__(self, lvm: Lvm) -> None:
        self._lvm = lvm
        self._last: Listing | None = None
        self._changes, self._mutex = 0, threading.Lock()
        #: The paths of the group's disks that were present at the last listing.
        self.disks: tuple[str, ...] = ()

    def disks_changed(self) -> None:
        """Read again: a disk of the group is lost or back, which is no commit."""
        with self._mutex:
            self._changes, self._last = self._changes + 1, None

    def current(self) -> Listing:
        """Return the listing; the same object as before while nothing has changed.

        A commit during the two commands is noticed by the next call.
        """
        last, changes = self._last, self._changes
        disk = last.group.device if last else ""
        commit = self._commit(disk)
        if last is None or commit is None or commit != last.commit:
            group, volumes = self._lvm.volume_group(), self._lvm.logical_volumes()
            valid_commit = commit if group.device == disk else None
            last = Listing(group, volumes, valid_commit)
            self.disks = group.disks
            with self._mutex:
                if changes == self._changes:
                    self._last = last
        return last

    def _commit(self, disk: str) -> dict[str, int] | None:
        try:
            return self._lvm.metadata_commit(disk) if disk else None
        except (DeadlineExceeded, HelperUnreachable):
            raise
        except DriverError:  # the disk may be lost; the error of vgs names it better
            return None


class Derived(Generic[_T]):
    """A value that is computed from a listing, once for each listing."""

    def __init__(self, compute: Callable[[Listing], _T]) -> None:
        self._compute = compute
        self._last: tuple[Listing, _T] | None = None

    def value_for(self, listed: Listing) -> _T:
        """Return the value for this listing."""
        last = self._last
        if last is None or last[0] is not listed:
            last = self._last = listed, self._compute(listed)
        return last[1]
