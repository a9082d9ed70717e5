# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make the live node equal to the database, at start and on a timer.

Rows in the middle of an operation are finished by the functions that requests run.
The wanted access is applied to every volume that has or may have hosts, and what has
drifted meanwhile is noted by its kind. What lunshare created and has no row is reported
and not changed: an empty database must not close the access of a live node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from dataclasses import dataclass, field
from itertools import groupby

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import due_attachments, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import (
    AgentError,
    BackendFailed,
    BackendUnavailable,
    Busy,
)
from lunshare.agent.model.records import Attachment, Volume
from lunshare.agent.model.states import ENDING, AttachStatus
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.fencing import Fences
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.leases import Leases
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans import inventory
from lunshare.agent.service.recovery import Recovery
from lunshare.agent.service.verifier import Verifier
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_RECOVERY_SECONDS = 3.0
#: Lines for one volume: a target that is made anew has three changes a host.
_MOST_LOGGED = 20

Progress = Callable[[int, int], None]
#: Gets how many differences were changed, how many could not be, and the seconds.
Measured = Callable[[int, int, float], object]


@dataclass
class ReconcileResult:
    """What one run did: sentences for the log and for the health check."""

    changed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Reconciler:
    """Reconciles the node with the database, one run at a time."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        access: Access,
        verifier: Verifier,
        handovers: Handovers,
        fences: Fences,
        leases: Leases,
        node: Node,
        recovery: Recovery,
        measured: Measured = lambda *_: None,
    ) -> None:
        """``measured`` is called for each run that has ended."""
        self._measured = measured
        self._db, self._backends, self._locks = db, backends, locks
        self._access, self._node, self._recovery = access, node, recovery
        self._handovers, self._fences, self._leases = handovers, fences, leases
        self._verifier = verifier
        self._one_run, self._has_run = threading.Lock(), False

    def run(
        self,
        progress: Progress = lambda done, total: None,
        wait: float | None = None,
    ) -> ReconcileResult:
        """Check the backends, then reconcile every volume.

        A volume that a request works on is left to the request. ``progress`` gets
        how many volumes are done, of how many. ``wait`` is that of Node.refresh.
        """
        with self._one_run:
            result, began = ReconcileResult(), time.monotonic()
            self._leases.end_all()  # before anything is opened
            self._fences.finish()
            self._node.refresh(wait)
            for name in self._backends:
                self._admit(name, result)
            work = self._volumes_to_apply(result)
            for done, volume_id in enumerate(work):
                progress(done, len(work))
                self._apply(volume_id, result)
            progress(len(work), len(work))
            self._verifier.forget_others(work)
            self._recover(result)
            self._has_run = True
            self._report(result)
            took = time.monotonic() - began
            self._measured(len(result.changed), len(result.failed), took)
            return result

    def _admit(self, backend: str, result: ReconcileResult) -> None:
        """Let the hosts of a backend reach its portals, before their access opens."""

        def admit() -> None:
            if self._backends.is_up(backend):
                result.changed += self._access.admissions.apply(backend)

        self._try(result, f"portals of backend {backend}", admit)

    def _recover(self, result: ReconcileResult) -> None:
        """Resume volumes and snapshots that are in the middle of an operation.

        Hosts come first. A copy may take hours, and is not waited for.
        """
        jobs = self._recovery.start_steps()
        wait(jobs.values(), _RECOVERY_SECONDS)
        for name, job in jobs.items():
            if job.done() and not job.cancelled():
                self._try(result, name, lambda job=job: job.result())  # type: ignore[misc]

    def _volumes_to_apply(self, result: ReconcileResult) -> list[str]:
        """Return the volumes that have hosts in the database, or a live export."""
        with self._db.reading() as connection:
            ids = due_attachments.volumes_to_reconcile(connection)
        listing = inventory.read(self._db, self._backends)
        result.unknown += [*map(str, listing.orphans), *sorted(listing.remains)]
        result.failed += [*listing.failed, *listing.missing]
        orphaned = {orphan.id for orphan in listing.orphans if orphan.kind == "export"}
        work = dict.fromkeys([*ids, *sorted(listing.exported)])
        return [volume_id for volume_id in work if volume_id not in orphaned]

    def _apply(self, volume_id: str, result: ReconcileResult) -> None:
        def apply() -> None:
            with self._locks.volume(volume_id, "reconcile", timeout=0):
                with self._db.reading() as connection:
                    volume = volumes.get_row(connection, volume_id)
                    rows = due_attachments.unfinished(connection, volume_id)
                if volume and self._backends.reaches(volume.backend, volume_id):
                    self._apply_locked(volume, rows, result)

        self._try(result, f"volume {volume_id}", apply)

    def _apply_locked(
        self, volume: Volume, rows: Iterable[Attachment], result: ReconcileResult
    ) -> None:
        """Close what is not wanted, then apply the rest.

        A close needs no disk, and no other host. One that fails does not stop the
        others, but each of them would wait for a target that hangs.
        """
        for row in rows:
            try:
                self._detach_unwanted(row)
            except BackendUnavailable:
                raise
            except BackendFailed as error:
                result.failed.append(f"attachment {row.id}: {error}")
        changed = self._verifier.apply(volume, verifies=self._has_run)
        result.changed += [f"volume {volume.id}: {what}" for what in changed]
        self._handovers.finish(volume.id)

    def _detach_unwanted(self, row: Attachment) -> None:
        if row.status in ENDING or _is_unanswered(row):
            self._access.delete(row.id)
        elif row.status is AttachStatus.ERROR_ATTACHING:
            self._access.detach_failed(row)
        elif row.fence is not None and row.fenced_at is None:
            self._fences.apply_locked(row.id)
        else:
            self._access.detach_replaced(row)

    def _try(
        self, result: ReconcileResult, name: str, step: Callable[[], None]
    ) -> None:
        try:
            step()
        except Busy:
            LOG.debug("[%s] reconcile: left to the request that works on it", name)
        except AgentError as error:
            result.failed.append(f"{name}: {error}")
        except Exception:
            LOG.exception("[%s] reconcile failed unexpectedly", name)
            result.failed.append(f"{name}: failed unexpectedly")

    def _report(self, result: ReconcileResult) -> None:
        """Log it, and let the health name it with the drift that is left.

        That has a line in the log from when it was found.
        """
        for subject, sentences in groupby(result.changed, _subject):
            changes = list(sentences)
            for sentence in changes[:_MOST_LOGGED]:
                LOG.warning("reconcile changed: %s", sentence)
            if (more := len(changes) - _MOST_LOGGED) > 0:
                LOG.warning("reconcile changed: %s: %s more", subject, more)
        for sentence in result.failed:
            LOG.error("reconcile failed: %s", sentence)
        drift, foreign = self._verifier.remaining()
        unknown = tuple(sorted({*result.unknown, *foreign}))
        if unknown != self._node.health().unknown:
            for sentence in unknown:
                LOG.warning("reconcile did not touch: %s", sentence)
        failed = tuple(sorted({*result.failed, *drift}))
        self._node.note_reconciled(failed, unknown)


def _subject(sentence: str) -> str:
    return sentence.partition(": ")[0]


def _is_unanswered(row: Attachment) -> bool:
    """Whether the daemon was killed while it created this attachment.

    The caller has the volume's lock, which this process holds from the row to the
    end of its opening, and of its cleanup when the target refused. No client knows
    its id. A client that wants it asks again.
    """
    opening = row.status is AttachStatus.ATTACHING and row.connection_info is None
    if opening and row.initiator is None:
        return False  # os-reserve, which was committed before it was answered
    failed = row.status is AttachStatus.ERROR_ATTACHING
    return (opening or failed) and not row.answered
