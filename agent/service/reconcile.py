# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make the live node equal to the database, at start and on a timer.

Half-done rows are finished by the functions that began them; every volume
that has or may have hosts is settled as a whole. What is ours but has no row
is reported and left alone: an empty database must not tear down a live node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field

from oslo_log import log

from lunshare.agent.backends import Backends, NodeBackend, translated
from lunshare.agent.db import attachments, snapshots, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import AgentError, Busy
from lunshare.agent.records import Attachment, Volume
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.node import Node
from lunshare.agent.service.recovery import Recovery
from lunshare.agent.states import AttachStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB, Disk

LOG = log.getLogger(__name__)

_RESUME_SECONDS = 3.0
_GOING = (AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING)

Progress = Callable[[int, int], None]


@dataclass
class ReconcileResult:
    """What one pass did: sentences for the log and for health."""

    changed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Reconciler:
    """One pass over everything this node holds."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        access: Access,
        node: Node,
        recovery: Recovery,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._access, self._node, self._recovery = access, node, recovery
        self._one = threading.Lock()

    def run(
        self,
        progress: Progress = lambda done, total: None,
        wait: float | None = None,
    ) -> ReconcileResult:
        """Check the backends, then bring every volume in line.

        What a request is working on is left to it. ``progress`` is told how
        many volumes are done, of how many. ``wait`` is lunshare.agent.service.node's.
        """
        with self._one:
            return self._run(progress, wait)

    def _run(self, progress: Progress, wait: float | None) -> ReconcileResult:
        result = ReconcileResult()
        self._node.refresh(wait)
        work = self._work(result)
        for done, volume_id in enumerate(work):
            progress(done, len(work))
            self._settle(volume_id, result)
        progress(len(work), len(work))
        self._resume(result)
        self._report(result)
        return result

    def _resume(self, result: ReconcileResult) -> None:
        """Go on with volumes and snapshots that were in the middle of something.

        Hosts come first: a copy may take hours, and is not waited for.
        """
        jobs = self._recovery.start_steps()
        wait(jobs.values(), _RESUME_SECONDS)
        for name, job in jobs.items():
            if job.done():
                self._try(result, name, lambda job=job: job.result())  # type: ignore[misc]

    def _works(self, volume: Volume) -> bool:
        backend = self._backends.find(volume.backend)
        return backend is not None and backend.up

    def _work(self, result: ReconcileResult) -> list[str]:
        """Volumes with hosts in the database, or with a live export of ours."""
        with self._db.reading() as connection:
            wanted = set(attachments.connected_volumes(connection))
            known = volumes.ids(connection)
        live = self._live(result)
        # Read after the targets: a volume made meanwhile is not an orphan.
        with self._db.reading() as connection:
            known |= volumes.ids(connection)
        for volume_id in sorted(live - known):
            result.unknown.append(f"export of volume {volume_id} has no row")
        self._find_orphans(known, result)
        return sorted((wanted | live) & known)

    def _live(self, result: ReconcileResult) -> set[str]:
        live: set[str] = set()
        for backend in self._up():
            try:
                with translated():
                    live |= {e.volume_id for e in backend.driver.target.observe()}
            except AgentError as error:
                result.failed.append(f"backend {backend.name}: {error}")
        return live

    def _find_orphans(self, known: set[str], result: ReconcileResult) -> None:
        """Disks and snapshots of ours that have no row."""
        with self._db.reading() as connection:
            wanted = snapshots.ids(connection) | volumes.moments(connection)
            placed = volumes.placed(connection)
        for backend in self._up():
            try:
                with translated():
                    disks = backend.driver.volumes.disks()
                    kept = backend.driver.volumes.snapshots()
            except AgentError as error:
                result.failed.append(f"backend {backend.name}: {error}")
                continue
            with self._db.reading() as connection:
                known |= volumes.ids(connection)
                wanted |= snapshots.ids(connection) | volumes.moments(connection)
                placed &= volumes.placed(connection)
            result.failed += _missing(backend.name, placed, disks)
            for disk in disks:
                if disk.volume_id not in known:
                    result.unknown.append(f"disk {disk.path} has no row")
            for snapshot_id in sorted(set(kept) - wanted):
                result.unknown.append(
                    f"snapshot {snapshot_id} on backend {backend.name} has no row"
                )

    def _settle(self, volume_id: str, result: ReconcileResult) -> None:
        def settle() -> None:
            with self._locks.volume(volume_id, "reconcile", timeout=0):
                with self._db.reading() as connection:
                    volume = volumes.get(connection, volume_id)
                    rows = attachments.of_volume(connection, volume_id)
                if volume is not None and self._works(volume):
                    self._settle_held(volume, rows, result)

        self._try(result, f"volume {volume_id}", settle)

    def _settle_held(
        self, volume: Volume, rows: Iterable[Attachment], result: ReconcileResult
    ) -> None:
        for row in rows:
            if _is_unanswered(row):
                self._access.abandon(row)
        changed = self._access.settle_all(volume)
        result.changed += [f"volume {volume.id}: {what}" for what in changed]
        for row in rows:
            if row.status in _GOING or _is_unanswered(row):
                self._access.release(row)
            elif row.status is AttachStatus.ERROR_ATTACHING:
                self._access.clean(row)
            elif row.leaving is not None:
                self._access.note_left(row)

    def _try(
        self, result: ReconcileResult, name: str, step: Callable[[], None]
    ) -> None:
        try:
            step()
        except Busy:
            LOG.debug("[%s] RECONCILE left to the request that has it", name)
        except AgentError as error:
            result.failed.append(f"{name}: {error}")
        except Exception:
            LOG.exception("[%s] RECONCILE failed unexpectedly", name)
            result.failed.append(f"{name}: failed unexpectedly")

    def _up(self) -> list[NodeBackend]:
        return [backend for backend in self._backends.values() if backend.up]

    def _report(self, result: ReconcileResult) -> None:
        for sentence in result.changed:
            LOG.warning("RECONCILE changed %s", sentence)
        for sentence in result.failed:
            LOG.error("RECONCILE failed %s", sentence)
        unknown = tuple(sorted(set(result.unknown)))
        if unknown != self._node.health().unknown:
            for sentence in unknown:
                LOG.warning("RECONCILE left alone: %s", sentence)
        self._node.note_reconciled(tuple(sorted(set(result.failed))), unknown)


def _missing(
    name: str, placed: Iterable[tuple[str, str, int]], disks: Iterable[Disk]
) -> Iterator[str]:
    """Volumes whose disk is not there, or too small; ``placed`` before and after."""
    there = {disk.volume_id: disk.size for disk in disks}
    for backend, volume_id, size in sorted(placed):
        if backend != name:
            continue
        if volume_id not in there:
            yield (
                f"volume {volume_id} has no disk on backend {name}: bring the disk"
                " back, or delete the volume"
            )
        elif there[volume_id] < size * GIB:
            yield (
                f"volume {volume_id} has {size} GiB, and its disk on backend {name}"
                f" {there[volume_id]} bytes: extend the volume to repair it"
            )


def _is_unanswered(row: Attachment) -> bool:
    """Whether an earlier life died in the middle of its creation.

    The caller has the volume's lock, which this life holds from the row to the end of
    its opening. Nobody was told its id; whoever asked for it asks again.
    """
    opening = row.status is AttachStatus.ATTACHING and row.connection_info is None
    return opening and not row.answered
