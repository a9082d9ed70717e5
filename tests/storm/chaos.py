# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Races of clients, faults of the storage, and kills of the daemon."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.storm import hosts, many_hosts, modes, queries, taken_access, volumes
from tests.storm import write_limits as limits
from tests.storm.client import Client, Race
from tests.storm.world import BACKENDS, World

Work = volumes.Work


def on_any(work: Work) -> Callable[[Client], None]:
    """Return the work on a random volume."""

    def done(client: Client) -> None:
        volume_id = client.world.pick(client.rng)
        if volume_id is not None:
            work(client, volume_id)

    return done


#: The operations that a client chooses from, each with its weight.
OPERATIONS: list[tuple[Callable[[Client], None], int]] = [
    (volumes.create, 8),
    (on_any(volumes.delete), 4),
    (on_any(volumes.extend), 4),
    (on_any(volumes.snapshot), 4),
    (on_any(volumes.delete_snapshot), 6),
    (on_any(volumes.clone), 3),
    (on_any(volumes.from_snapshot), 3),
    (on_any(volumes.revert), 4),
    (on_any(volumes.retype), 4),
    (on_any(volumes.flip_multiattach), 4),
    (on_any(volumes.migrate), 4),
    (on_any(volumes.rename), 4),
    (on_any(volumes.unmanage), 1),
    (volumes.manage, 3),
    (on_any(hosts.attach), 10),
    (hosts.connect, 5),
    (hosts.complete, 6),
    (hosts.detach, 12),
    (modes.change_mode, 10),
    (modes.hand_over, 10),
    (on_any(modes.ask_generation), 3),
    (on_any(limits.limit), 8),
    (on_any(limits.unlimit), 4),
    (taken_access.fence, 4),
    (taken_access.lend, 10),
    (on_any(many_hosts.attach_many), 4),
    (many_hosts.detach_many, 5),
    (hosts.write, 18),
    (queries.lists, 5),
    (queries.types, 1),
    (queries.health, 1),
    (queries.manageable, 1),
]

#: Several migrations to the same backend.
_MOVE = "move"
#: What several clients do to one volume at the same time. The first value: whether
#: the volume must have no hosts and no snapshots, because else most of it is refused.
RACES: list[tuple[bool, Sequence[Work | str]]] = [
    (True, (_MOVE, _MOVE)),
    (True, (_MOVE, _MOVE)),
    (True, (_MOVE, _MOVE, _MOVE)),
    (True, (_MOVE, _MOVE, volumes.clone)),
    (True, (volumes.migrate, volumes.retype, volumes.snapshot, hosts.attach)),
    (True, (volumes.share, hosts.attach, volumes.reserve_for_one, hosts.attach)),
    (True, (volumes.share, volumes.reserve_for_one, *(hosts.attach,) * 4)),
    (True, (volumes.share, volumes.reserve_for_one, *(hosts.attach,) * 4)),
    (
        True,
        (
            volumes.flip_multiattach,
            hosts.attach,
            volumes.retype,
            hosts.attach,
            volumes.flip_multiattach,
        ),
    ),
    (True, (volumes.unmanage, hosts.attach, volumes.migrate)),
    (True, (volumes.delete, hosts.attach, volumes.clone, volumes.snapshot)),
    (False, (volumes.extend,) * 2),
    (False, (volumes.extend,) * 4),
    (False, (volumes.extend,) * 6),
    (False, (volumes.extend, volumes.extend, volumes.snapshot, volumes.clone)),
    (False, (volumes.revert, volumes.revert, volumes.extend, hosts.attach)),
    (False, (volumes.revert,) * 4),
    (False, (volumes.revert, volumes.delete_snapshot, volumes.from_snapshot)),
    (False, (volumes.delete, volumes.snapshot, volumes.revert, hosts.attach)),
    (False, (hosts.attach,) * 3),
]

_POINTS = (
    "create.before", "create.half", "create.after", "delete.before", "delete.after",
    "extend.before", "extend.after", "create_snapshot.before", "create_snapshot.after",
    "delete_snapshot.before", "delete_snapshot.after", "create_from.before",
    "create_from.half", "create_from.after", "revert.before", "revert.after",
    "fill.before", "fill.half", "fill.after", "manage.before", "manage.after",
    "unmanage.before", "unmanage.after", "apply.before", "apply.exported",
    "apply.closed", "apply.created", "apply.opened", "apply.after", "remove.before",
    "remove.after", "disk", "disks", "capacity", "check", "observe",
)  # fmt: skip


class Chaos:
    """Has its own random numbers, so those of the clients depend only on the seed."""

    def __init__(self, seed: int, director: Client, clients: Sequence[Client]) -> None:
        self._rng = random.Random(f"{seed}/chaos")
        self._director, self._clients = director, clients

    def races(self) -> None:
        """Let several clients work on one volume at once, for several volumes."""
        answer = self._director.get("volumes/detail")
        rows = answer.body["volumes"] if answer.status == 200 else []
        self._rng.shuffle(rows)
        clients = [client for client in self._clients if client.races.empty()]
        self._rng.shuffle(clients)
        while rows and len(clients) > 1:
            free, works = self._rng.choice(RACES)
            row = self._one(rows, free)
            if row is None:
                volumes.make(self._director, "create", {"size": 1})
                return
            several, clients = clients[: len(works)], clients[len(works) :]
            self._begin(row, several, works)

    def _begin(
        self, row: dict[str, Any], several: list[Client], works: Sequence[Work | str]
    ) -> None:
        barrier = threading.Barrier(len(several))
        here = (row["os-vol-host-attr:host"] or "").partition("#")[2]
        to = volumes.migrate_to(self._rng.choice([b for b in BACKENDS if b != here]))
        for client, work in zip(several, works, strict=False):
            chosen = to if isinstance(work, str) else work
            client.races.put(Race(chosen, row["id"], barrier))

    def _one(self, rows: list[dict[str, Any]], free: bool) -> dict[str, Any] | None:
        """Take a volume out of ``rows``; if ``free``, one without hosts."""
        world: World = self._director.world
        for row in rows:
            idle = row["status"] == "available" and not world.snapshots(row["id"])
            if idle or not free:
                rows.remove(row)
                return row
        return None

    def fault(self) -> str:
        """Let one step of the storage fail, or hang for a while; return its name."""
        kind = self._rng.choice(["fail", "fail", "hang"])
        backend = self._rng.choice(BACKENDS)
        point = self._rng.choice(_POINTS)
        times, seconds = self._rng.randint(1, 2), self._rng.uniform(0.3, 2.5)
        storage_client = self._director.storage_client
        storage_client.call(
            "machine", None, "arm", kind, backend, point, times, seconds
        )
        return f"{kind} {backend} {point}"
