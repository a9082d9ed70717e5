# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A storm in epochs: work, wait until nothing is in progress, check the invariants.

A calm epoch has no faults, no kills and no reconcile on a timer. An operation that does
not end in it was lost by the request that started it. The other epochs have all of
them.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lunshare.agent.model.states import FAILED, UNFINISHED
from lunshare.agent.service.volumes.delete_rules import DELETABLE
from lunshare.drivers.values import GIB
from tests.stands.servers import free_port
from tests.storm import checks, hosts, marks
from tests.storm.chaos import OPERATIONS, Chaos
from tests.storm.client import Client, Shared
from tests.storm.hostile_member import HostileMember
from tests.storm.journal import Journal
from tests.storm.model import Register
from tests.storm.observation import Observation, observe
from tests.storm.onlooker import Onlooker
from tests.storm.processes import Daemon, Failed, Storage
from tests.storm.tenants import ADMINISTRATORS, OWNER, REST, TENANT, Tenants, users
from tests.storm.world import BACKENDS, BOUND, TYPES, World

CONFIG = """\
[DEFAULT]
host = storm
auth_strategy = http_basic
http_basic_auth_user_file = {users}
enabled_backends = {backends}
reconcile_interval = {reconcile}
create_wait = {wait}
volume_lock_timeout = 5
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
"""
BACKEND = """
[{name}]
volume_driver = storm
target_driver = storm
storm_socket = {socket}
storm_patience = {patience}
wipe_rate = 0
wipe_step = 4096
"""
#: How the backends differ.
DIFFERENT = {
    "thin": "",
    "thick": "fake_thin = false\nfake_capacity_gb = 120\nfake_wipe = true\n",
    "plain": "storm_extends_open = false\n",
}
_NEVER = 100_000
_START = 300.0  # seconds in which a daemon must answer, on the busiest machine
_STARTS = 5  # a bound is never less than the longest start, so many times
_FINISHED = 5.0  # after so many seconds a restart finishes what a fault has stopped
_LENGTH = 6.0  # seconds of work in an epoch
_PAUSE = 0.02  # the longest that a client rests
_DELAY = 1.0  # the longest duration of a step of the storage


@dataclass(frozen=True)
class Options:
    """As the command line has them."""

    seed: int
    seconds: float
    clients: int
    tree: Path
    work: Path
    calm: bool
    go_on: bool
    tenants: int = 0


class Storm:
    """All of it, in one process with the clients' threads."""

    def __init__(self, options: Options) -> None:
        self.options, self.journal = options, Journal()
        self.rng = random.Random(f"{options.seed}/storm")
        self.storage = Storage(options.work, options.tree, options.seed, _DELAY)
        listen = f"127.0.0.1:{free_port()}"
        self.daemon = Daemon(options.work, options.tree, listen)
        self.world = World("storm")
        self.world.operators = options.clients
        self.shared = Shared(
            options.seed, listen, self.storage.socket, self.journal, self.world
        )
        self.operators = [self._operator(n) for n in range(options.clients)]
        self.director = self._operator(options.clients)
        self.tenants = Tenants(self.shared, options.tenants, options.clients + 1)
        self.clients = [*self.operators, *self.tenants.clients]
        self.hostile = HostileMember(self.shared, self.clients)
        self.worlds = [self.world, *self.tenants.worlds]
        self.chaos = Chaos(options.seed, self.director, self.operators)
        self.onlooker = Onlooker(self.storage.socket, self.journal, self.world)
        self.users = users(options.work, options.tenants)
        self.checked = self.epochs = self.kills = self.faults = 0
        self.bound = BOUND
        self.reconciles = False  # on a timer, since this start of the daemon

    def _operator(self, number: int) -> Client:
        user = ADMINISTRATORS[number % len(ADMINISTRATORS)]
        return Client(number, replace(self.shared, user=user))

    def run(self) -> None:
        """Run until the time is over, or an invariant is broken."""
        end = time.monotonic() + self.options.seconds
        self._start_daemon(calm=True)
        self._prepare()
        self.onlooker.start()
        while not self._is_finished():
            self._run_epoch(calm=self.options.calm or self.epochs % 2 == 0)
            if self.epochs > 1 and time.monotonic() + _LENGTH > end:
                break
        self._stop_daemon()

    def _is_finished(self) -> bool:
        """Whether an invariant was broken and the run ends."""
        return bool(self.journal.findings) and not self.options.go_on

    def close(self) -> None:
        """End every process."""
        self.onlooker.stop()
        try:
            with contextlib.suppress(Failed):  # that was noted, or comes of a finding
                self.daemon.stop(BOUND)
        finally:
            self.storage.close()

    def _stop_daemon(self) -> None:
        """Stop the daemon; report it if that fails, and verbs that overlapped."""
        if not self.journal.findings:
            try:
                self.daemon.stop(self.bound)
            except Failed as error:
                self.journal.find("SIGTERM ends the daemon", str(error))
        for sentence in self.director.storage_client.call("machine", None, "overlaps"):
            self.journal.find("one verb at a time on a volume", sentence)

    def _start_daemon(self, calm: bool) -> None:
        """Start the daemon with a random configuration, another one after each kill."""
        self.reconciles = not calm and self.rng.random() < 0.5
        text = CONFIG.format(
            backends=",".join(BACKENDS),
            reconcile=1 if self.reconciles else _NEVER,
            wait=self.rng.choice([3.0, 3.0, 0.05]),
            users=self.users,
        )
        patience = _NEVER if calm else 1.0
        for name in BACKENDS:
            socket = self.storage.socket
            text += BACKEND.format(name=name, socket=socket, patience=patience)
            text += DIFFERENT[name]
        config = self.options.work / "lunshare.conf"
        config.write_text(text)
        self.daemon.start(config)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        began = time.monotonic()
        deadline = began + _START
        while self.director.get("types").status != 200:
            if (code := self.daemon.ended()) is not None:
                raise Failed(f"the daemon ended by itself with {code}")
            if time.monotonic() > deadline:
                raise Failed(f"the daemon did not answer within {_START:g} s")
            time.sleep(0.05)
        # If a start takes a minute on this machine, all else takes longer too.
        self.bound = max(self.bound, _STARTS * (time.monotonic() - began))
        for world in self.worlds:
            world.starts += 1
        self.world.alive.set()

    def _prepare(self) -> None:
        """Create the types, and foreign disks that can be managed."""
        for name, specs in TYPES.items():
            op = self.director.begin("type", name=name)
            asked = {"volume_type": {"name": name, "extra_specs": specs}}
            answer = self.director.post(op, "types", asked)
            op.given["id"] = answer.body["volume_type"]["id"]
        self.tenants.limit(self.director)
        for number, backend in enumerate(BACKENDS, 1):
            self._put_foreign_disk(f"foreign-{number}", backend, number)

    def _put_foreign_disk(self, reference: str, backend: str, number: int) -> None:
        client, places = self.director.number, range(len(marks.PLACES))
        blocks = {
            marks.block(client, p): marks.block_bytes(client, number) for p in places
        }
        size = 3 * GIB // 2 if number == 1 else 2 * GIB
        self.director.storage_client.call(
            "machine", None, "put_foreign", backend, reference, size, blocks
        )
        with self.journal.mark("storm", "put", reference) as op:
            op.given["marks"] = {Register(client, place): number for place in places}
            op.given["client"] = client
        self.world.add_foreign_disk(backend, reference)

    def _run_epoch(self, calm: bool) -> None:
        self.epochs += 1
        for world in self.worlds:
            world.calm = calm
        with self.journal.mark("storm", f"epoch {self.epochs}, calm: {calm}"):
            self._restart(calm)
            self._run_clients(calm)
            seen = self._wait_until_idle(calm)
        if seen is not None and not self._is_finished():
            self.checked += checks.check(seen, self.journal)
            checks.remember(seen, self.journal)
            self._add_unanswered_volumes(seen)

    def _restart(self, calm: bool) -> None:
        """Restart the daemon with kill -9, for an epoch that is ``calm`` or not."""
        if self.epochs > 1 and not self.options.calm:
            self._kill(calm)

    def _kill(self, calm: bool) -> None:
        self.kills += 1
        with self.journal.mark("storm", "kill -9"):
            self.daemon.kill()
            self.world.alive.clear()
        self._start_daemon(calm)

    def _run_clients(self, calm: bool) -> None:
        stop = threading.Event()
        works = [(OPERATIONS, _PAUSE, client) for client in self.operators]
        works += [(TENANT, REST, client) for client in self.tenants.clients]
        threads = [
            threading.Thread(target=client.run, args=(stop, table, rest, hosts.write))
            for table, rest, client in works
        ]
        threads.append(threading.Thread(target=self.hostile.run, args=(stop,)))
        for thread in threads:
            thread.start()
        try:
            self._start_races_and_faults(calm, time.monotonic() + _LENGTH)
        finally:
            stop.set()
            self.director.storage_client.call("machine", None, "clear")
            for thread in threads:
                thread.join()

    def _start_races_and_faults(self, calm: bool, end: float) -> None:
        kills = [] if calm else sorted(self.rng.uniform(1, _LENGTH) for _ in "ab")
        while time.monotonic() < end and not self._is_finished():
            self.chaos.races()
            if not calm and self.rng.random() < 0.25:
                self.faults += 1
                with self.journal.mark("storm", self.chaos.fault()):
                    pass
            if kills and time.monotonic() > end - kills[-1]:
                kills.pop()
                self._kill(calm)
            time.sleep(self.rng.uniform(0.1, 0.4))

    def _wait_until_idle(self, calm: bool) -> Observation | None:
        """Wait until all operations have ended; one that does not end is a finding."""
        if not calm and self.rng.random() < 0.5:
            self._kill(calm=True)
        deadline, seen = time.monotonic() + self.bound, None
        cleanup, restart = time.monotonic() + 1.0, time.monotonic() + _FINISHED
        if calm:
            restart = deadline
        projects = [world.project for world in self.worlds]
        while time.monotonic() < deadline:
            for client in self.clients:
                client.retry_unanswered()
            self.tenants.detach_hosts(self.director)
            director = self.director
            seen = observe(director.api, director.storage_client, projects)
            unanswered = any(client.unanswered for client in self.clients)
            if seen and not unanswered and not seen.going and not seen.broken:
                return seen
            if self._waits_for_restart(seen) and time.monotonic() > restart:
                self._kill(calm=True)
                restart = deadline
            elif seen and not seen.going and time.monotonic() > cleanup:
                self._delete_failed(seen)
                cleanup = time.monotonic() + 5.0
            time.sleep(0.05)
        self._report_unfinished(seen)
        return None

    def _waits_for_restart(self, seen: Observation | None) -> bool:
        """Whether only a restart ends what a fault has stopped, within the bound."""
        if self.reconciles:
            return seen is not None and waits_for_a_slow_retry(seen)
        return waits_for_reconcile(seen, self.journal)

    def _delete_failed(self, seen: Observation) -> None:
        """Delete what is in an error, as an operator does."""
        for ident, status in seen.broken.items():
            if ident in seen.migrated:
                continue  # its status is not an error: a reconcile finishes it
            if ident in seen.volumes:
                op = self.director.begin("delete", ident, was=status)
                self.director.delete(op, f"volumes/{ident}?cascade=true")
            elif ident in seen.snapshots:
                op = self.director.begin("delete-snapshot", ident, was=status)
                self.director.delete(op, f"snapshots/{ident}")
            else:
                self._detach(ident)

    def _detach(self, ident: str) -> None:
        for client in self.clients:
            for row in [row for row in client.attached if row.id == ident]:
                if not row.ending:
                    hosts.end(client, row)

    def _report_unfinished(self, seen: Observation | None) -> None:
        name = f"nothing is in between for longer than {self.bound:.0f} s"
        if seen is None:
            self.journal.find(name, "the daemon does not show its rows")
            return
        for ident, status in {**seen.going, **seen.broken}.items():
            row = seen.attachments.get(ident)
            if row and not self.journal.of(ident):
                sentence = f"{ident} is {status}, and no client got it"
                volume_id = row["volume_id"]
                self.journal.find("a client knows each attachment", sentence, volume_id)
            else:
                self.journal.find(name, f"{ident} is {status}", ident)
        for client in self.clients:
            if client.unanswered:
                sentence = (
                    f"{client.name} still waits for {len(client.unanswered)} answers"
                )
                self.journal.find(
                    name, sentence, *(r.id for r in client.attached if r.ending)
                )

    def _add_unanswered_volumes(self, seen: Observation) -> None:
        """Let clients use the volumes whose creation was not answered."""
        for ident, row in seen.volumes.items():
            for op in self.journal.every("create", "clone", "from-snapshot", "manage"):
                if op.given["name"] == row["name"] and "id" not in op.given:
                    op.given["id"] = ident
                    self.journal.about(op, ident)
            if row[OWNER] == self.world.project:
                self.world.add(ident)


def waits_for_reconcile(seen: Observation | None, journal: Journal) -> bool:
    """Whether a fault of the storm may have stopped what only a reconcile finishes.

    Also the end of an attachment whose creation a kill has interrupted: no client knows
    it, so none deletes it. The reconcile of the start fails while the target hangs.
    """
    if seen is None:
        return False
    unknown = [i for i in seen.broken if i in seen.attachments and not journal.of(i)]
    return bool(seen.going or seen.migrated or unknown or undeletable(seen))


def waits_for_a_slow_retry(seen: Observation) -> bool:
    """Whether a reconcile on a timer retries it only after a minute (``RetryPace``).

    A restart retries it at once.
    """
    return any(seen.volumes[ident]["status"] in FAILED for ident in undeletable(seen))


def undeletable(seen: Observation) -> list[str]:
    """Return the volumes in an error that a reconcile ends, and a delete cannot.

    A failed extend of a volume that hosts have is one: a delete is refused.
    """
    return [
        ident
        for ident in seen.broken
        if ident in seen.volumes
        and (status := seen.volumes[ident]["status"]) in UNFINISHED
        and (status not in DELETABLE or seen.of_volume(ident))
    ]
