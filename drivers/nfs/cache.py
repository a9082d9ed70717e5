# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where volumes are and how much is promised to them, as far as is remembered.

It can be lost at any time: the shares are asked then. With it, capacity costs
the same whatever the pool holds, and an attach asks one share.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from lunshare.drivers.nfs.files import Files

Place = tuple[Files, int]


class Known:
    """Volumes by id: on which share, and how many bytes. For many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: dict[str, Place] = {}
        self._promised = 0
        self._changes = 0
        self._complete = False

    def promised(self) -> int | None:
        """The sum of all sizes; None before the shares were listed once."""
        with self._mutex:
            return self._promised if self._complete else None

    def where(self, volume_id: str) -> Files | None:
        """The share that it was on."""
        with self._mutex:
            place = self._places.get(volume_id)
        return place[0] if place else None

    def note(self, volume_id: str, files: Files, size: int) -> None:
        """It is there and has this size."""
        with self._mutex:
            before = self._places.get(volume_id)
            if before != (files, size):
                self._promised += size - (before[1] if before else 0)
                self._places[volume_id] = (files, size)
                self._changes += 1

    def forget(self, volume_id: str) -> None:
        """It is gone."""
        with self._mutex:
            before = self._places.pop(volume_id, None)
            self._promised -= before[1] if before else 0
            self._changes += 1

    def changes(self) -> int:
        """A number to give to ``learn``: take it before listing."""
        with self._mutex:
            return self._changes

    def learn(self, places: Mapping[str, Place], changes: int) -> None:
        """The shares hold just these, unless something changed since ``changes``."""
        with self._mutex:
            if changes == self._changes or not self._complete:
                self._places = dict(places)
                self._promised = sum(size for _, size in places.values())
                self._complete = True
