# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the clients share: the volumes and snapshots that they can use."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

BACKENDS = ("thin", "thick", "plain")
#: The types by name, with extra specs: backend, and whether it can have many hosts.
TYPES: dict[str, dict[str, str]] = {
    "shared": {"multiattach": "<is> True"},
    "single": {},
    "shared-thin": {"volume_backend_name": "thin", "multiattach": "<is> True"},
    "single-thick": {"volume_backend_name": "thick"},
    "shared-thick": {"volume_backend_name": "thick", "multiattach": "<is> True"},
    "single-plain": {"volume_backend_name": "plain"},
}
#: Seconds within which an operation must end if nothing stops it.
BOUND = 30.0

#: Statuses of a volume with an operation in progress.
WORKING = frozenset(
    {
        "creating", "deleting", "extending", "reverting", "managing", "unmanaging",
        "retyping", "maintenance",
    }
)  # fmt: skip
#: The same with those that a volume has because of its attachments.
GOING = WORKING | {"attaching", "detaching"}


@dataclass(slots=True)
class Known:
    """One volume, as answers to clients showed it."""

    id: str
    snapshots: list[str] = field(default_factory=list)


class World:
    """What one project has. Used by all threads. It may be out of date: races."""

    def __init__(self, host: str, project: str = "storm") -> None:
        self.host, self.calm, self.project = host, True, project
        self.legacy: list[
            str
        ] = []  # the volumes that only legacy.use_shared_volume uses
        self.alive = threading.Event()  # the daemon is
        self.starts = 0  # of the daemon, so far
        self._mutex = threading.Lock()
        self._volumes: dict[str, Known] = {}
        self.operators = 0  # clients whose hosts a writers policy can name
        #: What is proven to be closed (``onlooker.Closed``), until it is given back.
        self.closed: set[Any] = set()
        #: The volumes of which a lease that ended could let any reader write.
        self.passed_on: set[str] = set()
        self.promoted = 0  # readers that write since a lease has ended
        self._passing: Counter[str] = Counter()  # such leases, by volume
        self._generations: dict[str, tuple[int, float]] = {}
        self._sizes: dict[str, tuple[int, float]] = {}
        self._references: set[tuple[str, str]] = set()

    def host_of(self, backend: str) -> str:
        """host@backend#pool, as the API shows it."""
        return f"{self.host}@{backend}#{backend}"

    def add(self, volume_id: str) -> None:
        with self._mutex:
            self._volumes.setdefault(volume_id, Known(volume_id))

    def drop(self, volume_id: str) -> None:
        with self._mutex:
            self._volumes.pop(volume_id, None)

    def volumes(self) -> list[str]:
        with self._mutex:
            return list(self._volumes)

    def pick(self, rng: random.Random) -> str | None:
        """Any volume; older ones more often, so that clients choose the same one."""
        found = self.volumes()
        return found[int(rng.random() ** 2 * len(found))] if found else None

    def add_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        with self._mutex:
            if volume_id in self._volumes:
                self._volumes[volume_id].snapshots.append(snapshot_id)

    def drop_snapshot(self, snapshot_id: str) -> None:
        with self._mutex:
            for known in self._volumes.values():
                if snapshot_id in known.snapshots:
                    known.snapshots.remove(snapshot_id)

    def snapshots(self, volume_id: str | None = None) -> list[str]:
        """Oldest first; of one volume, or of all."""
        with self._mutex:
            found = [v for v in self._volumes.values() if volume_id in (None, v.id)]
            return [snapshot for known in found for snapshot in known.snapshots]

    def add_foreign_disk(self, backend: str, reference: str) -> None:
        """Add a foreign disk that can be managed."""
        with self._mutex:
            self._references.add((backend, reference))

    def pick_foreign_disk(self, rng: random.Random) -> tuple[str, str] | None:
        """Return a foreign disk. It stays listed, so another client may try too."""
        with self._mutex:
            found = sorted(self._references)
        return rng.choice(found) if found else None

    def remove_foreign_disk(self, reference: str) -> None:
        with self._mutex:
            kept = {each for each in self._references if each[1] != reference}
            self._references = kept

    def larger_size_before(
        self, volume: dict[str, Any], asked: float, answered: float
    ) -> int | None:
        """The size that was seen before this request and is larger, or None."""
        return self._larger(self._sizes, volume["id"], volume["size"], asked, answered)

    def larger_generation(
        self, volume_id: str, value: int, asked: float, answered: float
    ) -> int | None:
        """The same of a fencing generation."""
        return self._larger(self._generations, volume_id, value, asked, answered)

    def _larger(
        self,
        known: dict[str, tuple[int, float]],
        ident: str,
        value: int,
        asked: float,
        answered: float,
    ) -> int | None:
        with self._mutex:
            seen, at = known.get(ident, (0, answered))
            if seen > value:
                return seen if at < asked else None
            if value > seen:
                known[ident] = (value, answered)
            return None

    def reopens(self, initiator: str, volume_id: str) -> None:
        """A host asks for a volume anew: that its lease ended says no more of it."""
        for each in list(self.closed):
            if (each.initiator, each.volume_id) == (initiator, volume_id):
                self.closed.discard(each)

    def passes_on(self, volume_id: str) -> None:
        """A lease is asked for whose end lets a reader write, whoever that is."""
        with self._mutex:
            self._passing[volume_id] += 1
            self.passed_on.add(volume_id)
            for each in list(self.closed):
                if each.volume_id == volume_id:
                    self.closed.discard(each)

    def has_passed_on(self, volume_id: str, promoted: bool) -> None:
        """Such a lease has ended, and no reader is still to follow."""
        with self._mutex:
            self._passing[volume_id] -= 1
            self.promoted += promoted

    def close(self, closed: Any, own: int) -> None:
        """A lease has ended; of those that pass on, ``own`` are its holder's.

        The end of another one could let the holder write again.
        """
        with self._mutex:
            if self._passing[closed.volume_id] == own:
                self.closed.add(closed)
