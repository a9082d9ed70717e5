# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A cache: which share each volume is on, and the sum of their sizes.

It may be lost at any time; the shares are asked then. It makes the cost of capacity
independent of the number of volumes, and lets an attach ask one share only.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from lunshare.drivers.nfs.share_files import ShareFiles

#: The share of a volume, and its size in bytes.
Place = tuple[ShareFiles, int]


class VolumeCache:
    """Volumes by id. Several threads may share it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: dict[str, Place] = {}
        self._provisioned = 0
        self._version = 0
        self._complete = False

    def provisioned(self) -> int | None:
        """Return the sum of all sizes; None until the shares were listed once."""
        with self._mutex:
            return self._provisioned if self._complete else None

    def share_of(self, volume_id: str) -> ShareFiles | None:
        """Return the share that the volume was last seen on."""
        with self._mutex:
            place = self._places.get(volume_id)
        return place[0] if place else None

    def remember(self, volume_id: str, share: ShareFiles, size: int) -> None:
        """Store that the volume is on this share with this size."""
        with self._mutex:
            before = self._places.get(volume_id)
            if before != (share, size):
                self._provisioned += size - (before[1] if before else 0)
                self._places[volume_id] = (share, size)
                self._version += 1

    def forget(self, volume_id: str) -> None:
        """Store that the volume does not exist."""
        with self._mutex:
            before = self._places.pop(volume_id, None)
            self._provisioned -= before[1] if before else 0
            self._version += 1

    def version(self) -> int:
        """Return a number for ``replace``; read it before the shares are listed."""
        with self._mutex:
            return self._version

    def replace(
        self, places: Mapping[str, Place], version: int, complete: bool = True
    ) -> None:
        """Store that exactly these exist, if nothing changed since ``version``.

        They are not ``complete`` if a share could not be listed.
        """
        with self._mutex:
            if version == self._version or not self._complete:
                self._places = dict(places)
                self._provisioned = sum(size for _, size in places.values())
                self._complete = complete
