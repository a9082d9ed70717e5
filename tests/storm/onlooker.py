# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at the storage all the time: who may write there, and who should not.

It needs no daemon, so it sees also what a killed one has left.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from storm_storage.storage_client import StorageClient
from tests.storm import write_limits
from tests.storm.journal import Journal
from tests.storm.world import BACKENDS, World

_REST = 0.05

#: The mode of each initiator of each volume.
Live = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """What is proven of a host: no access, or no writing; of a volume, or of all."""

    initiator: str
    writes_only: bool
    volume_id: str | None = None

    def breach(self, live: Live) -> str | None:
        """Return the volume to which the host has access nevertheless."""
        for volume_id, modes in live.items():
            if self.volume_id in (None, volume_id):
                mode = modes.get(self.initiator)
                if mode == "rw" or (mode and not self.writes_only):
                    return volume_id
        return None


class Onlooker:
    """A thread that compares the live exports with what was acknowledged."""

    def __init__(self, socket: str, journal: Journal, world: World) -> None:
        self.journal, self._world = journal, world
        self._storage_client = StorageClient(socket)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = self.limited = self.proofs = self.most = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __str__(self) -> str:
        return (
            f"{self.looks} looks at the storage: {self.limited} at a volume with a"
            f" policy and writers (of at most one: {self.most} at most),"
            f" {self.proofs} at a proven fence or an ended lease;"
            f" {self._world.promoted} leases have passed on"
        )

    def _run(self) -> None:
        while not self._stop.wait(_REST):
            self.look()

    def look(self) -> None:
        """Look once. What was taken before, and is not given back yet, must hold."""
        closed, since = set(self._world.closed), time.monotonic()
        live: Live = {}
        for name in BACKENDS:
            found = self._storage_client.call("machine", None, "live", name)
            for ident, hosts in found.items():
                live.setdefault(ident, {}).update(hosts)
        until = time.monotonic()
        self.looks += 1
        self.check_closed(closed & self._world.closed, live)
        self.check_limits(live, since, until)

    def check_closed(self, closed: set[Closed], live: Live) -> None:
        """A host from which access was taken has none."""
        for each in closed:
            self.proofs += 1
            if (volume_id := each.breach(live)) is not None:
                what = "the lease ended" if each.volume_id else "the fence was proven"
                sentence = f"{each.initiator}: {what}, and it is {live[volume_id]}"
                self.journal.find("what is taken stays closed", sentence, volume_id)

    def check_limits(self, live: Live, since: float, until: float) -> None:
        """No more hosts write than the policies allow."""
        for ident, hosts in live.items():
            rw = {host for host, mode in hosts.items() if mode == "rw"}
            if not rw:
                continue
            may = write_limits.limits(self.journal, ident, since, until)
            self.limited += may != write_limits.NONE
            self.most = max(self.most, len(rw) if may.most == 1 else 0)
            if why := may.excess(rw):
                self.journal.find("no more write than may", f"{ident}: {why}", ident)
