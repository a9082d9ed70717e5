# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A group and its logical volumes, read again only when LVM has changed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lunshare.drivers.errors import DeadlineExceeded, DriverError, HelperUnreachable
from lunshare.drivers.lvm.commands import Lvm
from lunshare.drivers.lvm.report import LogicalVolume, VolumeGroup

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Listed:
    """``commit`` is that of what is listed, or of what was there just before."""

    group: VolumeGroup
    volumes: tuple[LogicalVolume, ...]
    commit: list[int] | None


class Listing:
    """What a periodic look needs, at a cost that stands still while nothing changes.

    Every way to make, remove, rename or grow a logical volume is a commit of the
    group's metadata, which the header of a disk of the group tells. vgs and lvs
    build every volume of the group before they answer anything (5,000: 5 s in the
    lab). Threads may share it.
    """

    def __init__(self, lvm: Lvm) -> None:
        self._lvm = lvm
        self._seen: Listed | None = None

    def now(self) -> Listed:
        """As LVM has it now; the same object while that is so.

        A commit that comes while it is read is seen by the next call.
        """
        seen = self._seen
        disk = seen.group.device if seen else ""
        commit = self._commit(disk)
        if seen is None or commit is None or commit != seen.commit:
            group, volumes = self._lvm.group(), self._lvm.volumes()
            known = commit if group.device == disk else None
            seen = self._seen = Listed(group, volumes, known)
        return seen

    def _commit(self, disk: str) -> list[int] | None:
        try:
            return self._lvm.commit(disk) if disk else None
        except (DeadlineExceeded, HelperUnreachable):
            raise
        except DriverError:  # it may be gone, or another's: LVM itself says so better
            return None


class Drawn(Generic[_T]):
    """What follows from a listing, drawn from each once."""

    def __init__(self, draw: Callable[[Listed], _T]) -> None:
        self._draw = draw
        self._last: tuple[Listed, _T] | None = None

    def of(self, listed: Listed) -> _T:
        """What follows from this one."""
        last = self._last
        if last is None or last[0] is not listed:
            last = self._last = listed, self._draw(listed)
        return last[1]
