# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One client: a thread that does one random operation after another.

Its random numbers depend only on the seed and its number. A request without an answer
is sent again until it has one, as clients should do.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storm_storage.storage_client import StorageClient
from tests.storm.api import Answer, Api
from tests.storm.journal import Journal, Op
from tests.storm.world import BACKENDS, WORKING, World

#: Seconds for which a client waits for the end of its operation.
_WATCHED = 1.5
_POLL = 0.03
_REST = 0.2
_TOGETHER = 2.0


@dataclass(frozen=True)
class Shared:
    """What all clients have in common."""

    seed: int
    listen: str
    socket: str
    journal: Journal
    world: World
    user: str = "admin-0"


@dataclass
class Race:
    """One operation on one volume, started by several clients at the same time."""

    work: Callable[[Client, str], None]
    volume_id: str
    barrier: threading.Barrier


class Client:
    """Its hosts have initiators that no other client uses."""

    def __init__(self, number: int, shared: Shared) -> None:
        self.number, self.name = number, f"client-{number}"
        self.rng = random.Random(f"{shared.seed}/{number}")
        self.journal, self.world = shared.journal, shared.world
        self.api = Api(shared.listen, shared.journal, shared.user)
        self.storage_client = StorageClient(shared.socket)
        self.races: queue.SimpleQueue[Race] = queue.SimpleQueue()
        self.unanswered: list[Callable[[], bool]] = []
        self.attached: list[Any] = []
        self.fenced: set[str] = set()  # initiators, from before the request until after
        self.unsure: set[tuple[str, str]] = set()
        self.writes = 0
        self.own: str | None = None  # only legacy.use_own_volume uses it
        self.given_up: list[str] = []  # those that it used before

    def uuid(self) -> str:
        """A random one, decided by the seed."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def host(self, letter: str) -> str:
        """The initiator of one of its hosts."""
        return f"iqn.2020-01.org.storm:h{self.number}{letter}"

    @staticmethod
    def now() -> float:
        """The clock of the journal."""
        return time.monotonic()

    def begin(self, what: str, *objects: str, **given: Any) -> Op:
        """An operation is about to be asked for."""
        return self.journal.begin(self.name, what, *objects, **given)

    def post(self, op: Op, path: str, body: object) -> Answer:
        return self.api.ask(op, "POST", f"/v3/{path}", body)

    def act(self, op: Op, volume_id: str, action: str, body: object) -> Answer:
        return self.post(op, f"volumes/{volume_id}/action", {action: body})

    def delete(self, op: Op, path: str) -> Answer:
        return self.api.ask(op, "DELETE", f"/v3/{path}")

    def get(self, path: str) -> Answer:
        return self.api.ask(None, "GET", f"/v3/{path}")

    def volume(self, volume_id: str) -> dict[str, Any] | None:
        """The volume as it is now. Each such answer is checked."""
        asked = time.monotonic()
        answer = self.get(f"volumes/{volume_id}")
        if answer.status == 404:
            self.world.drop(volume_id)
        if answer.status != 200:
            return None
        volume: dict[str, Any] = answer.body["volume"]
        self.check(volume, asked)
        return volume

    def check(self, volume: dict[str, Any], asked: float) -> None:
        """Check a volume in the answer to a request that was sent at ``asked``."""
        if larger := self.world.larger_size_before(volume, asked, time.monotonic()):
            sentence = f"{volume['id']} has {volume['size']} GiB and had {larger}"
            self.journal.find(
                "the size of a volume never shrinks", sentence, volume["id"]
            )
        hosts = volume["attachments"]
        servers = {host["server_id"] for host in hosts if host["server_id"]}
        if not volume["multiattach"] and len(hosts) > 1 and len(servers) != 1:
            sentence = f"{volume['id']} takes one host and has {len(hosts)}"
            self.journal.find("a plain volume has one host", sentence, volume["id"])

    def watch(self, op: Op, volume_id: str) -> None:
        """Wait until it has no operation in progress; note in ``op`` how that ended."""
        deadline = time.monotonic() + _WATCHED
        while time.monotonic() < deadline:
            found = self.volume(volume_id)
            if found is None:
                return
            if found["status"] not in WORKING:
                op.done, op.result = time.monotonic(), found["status"]
                op.reason = found.get("status_reason") or ""
                return self._check_disk(volume_id, found["status"])
            time.sleep(_POLL)

    def _check_disk(self, volume_id: str, status: str) -> None:
        """A volume without an error has a disk on some backend at any time."""
        if "error" in status or self.where(volume_id):
            return
        again = self.volume(volume_id)
        if again and again["status"] not in WORKING and "error" not in again["status"]:
            sentence = f"{volume_id} is {again['status']}, and no backend has its disk"
            self.journal.find("each row has its disk exactly once", sentence, volume_id)

    def where(self, volume_id: str) -> list[str]:
        """The backends that have a disk of that volume now."""
        found = self.storage_client.call("machine", None, "where", volume_id, BACKENDS)
        return list(found)

    def live(self) -> dict[str, dict[str, str]]:
        """The mode of each initiator of each volume, at the storage."""
        found: dict[str, dict[str, str]] = {}
        for name in BACKENDS:
            exports = self.storage_client.call("machine", None, "live", name)
            for volume_id, hosts in exports.items():
                found.setdefault(volume_id, {}).update(hosts)
        return found

    def see_generation(self, volume_id: str, value: int, asked: float) -> None:
        """Check a fencing generation in the answer to a request sent at ``asked``."""
        larger = self.world.larger_generation(volume_id, value, asked, time.monotonic())
        if larger is not None:
            sentence = f"{volume_id} has generation {value} and had {larger}"
            self.journal.find("the generation only grows", sentence, volume_id)

    def run(
        self, stop: threading.Event, table: Any, pause: float, offline: Any
    ) -> None:
        """Work until it is stopped; ``offline`` is what it does without a daemon."""
        works, weights = zip(*table, strict=True)
        try:
            while not stop.is_set():
                if not self.world.alive.is_set():
                    offline(self)
                    self.world.alive.wait(_REST)
                    continue
                self._race()
                self.retry_unanswered()
                self.rng.choices(works, weights)[0](self)
                stop.wait(self.rng.random() * pause)
        except Exception as error:
            sentence = f"{self.name}: {type(error).__name__}: {error}"
            self.journal.find("the storm itself works", sentence)
            raise

    def retry_unanswered(self) -> None:
        """Repeat each request that was not answered, once; these may add others."""
        requests, self.unanswered = self.unanswered, []
        again = [request for request in requests if not request()]
        self.unanswered = [*again, *self.unanswered]

    def _race(self) -> None:
        try:
            race = self.races.get_nowait()
        except queue.Empty:
            return
        with contextlib.suppress(threading.BrokenBarrierError):
            race.barrier.wait(
                _TOGETHER
            )  # whoever waits too long starts without the others
        race.work(self, race.volume_id)
