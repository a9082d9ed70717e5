# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Resume operations that a restart, or an unavailable backend, has interrupted.

A table says which step finishes which status. Requests run the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots as snapshot_rows
from lunshare.agent.db import volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.records import Volume
from lunshare.agent.model.states import FAILED, UNFINISHED, VolumeStatus
from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner, Step
from lunshare.agent.service.snapshots.managed import ManagedSnapshots
from lunshare.agent.service.snapshots.snapshots import Snapshots
from lunshare.agent.service.volumes.create import VolumeDisks
from lunshare.agent.service.volumes.extend import VolumeExtender
from lunshare.agent.service.volumes.manage import ManagedDisks
from lunshare.agent.service.volumes.migrate import VolumeMigrator
from lunshare.agent.service.volumes.revert import VolumeReverter


class UnfinishedRow(NamedTuple):
    """A row in the middle of an operation, and the step that finishes it."""

    resource: str
    ident: str
    step: Step
    backend: str
    volume_id: str
    pool: JobPool = JobPool.DISKS
    failed: bool = False


class RetryPace:
    """How often a failed step is retried: at once, then with doubled intervals."""

    _FIRST, _LONGEST = 60.0, 3600.0  # seconds

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}

    def due(self, names: Collection[str]) -> set[str]:
        """Return which of the failed ones to retry now; they count as retried."""
        now, failures = self._clock(), self._known
        waits = {name: failures.get(name, (now, self._FIRST)) for name in names}
        due = {name for name, (at, _) in waits.items() if at <= now}
        self._known = waits | {
            name: (now + waits[name][1], min(self._LONGEST, 2 * waits[name][1]))
            for name in due
        }
        return due


class Recovery:
    """Starts the steps of rows that are in the middle of an operation."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        jobs: JobRunner,
        *,
        volume_disks: VolumeDisks,
        snapshots: Snapshots,
        managed_snapshots: ManagedSnapshots,
        extender: VolumeExtender,
        reverter: VolumeReverter,
        managed_disks: ManagedDisks,
        migrator: VolumeMigrator,
    ) -> None:
        self._db, self._backends, self._jobs = db, backends, jobs
        self._snapshot_steps = {**snapshots.steps, **managed_snapshots.steps}
        self._steps: Mapping[VolumeStatus, Step] = {
            VolumeStatus.CREATING: volume_disks.finish_create,
            VolumeStatus.DELETING: volume_disks.finish_delete,
            VolumeStatus.ERROR_DELETING: volume_disks.finish_delete,
            VolumeStatus.EXTENDING: extender.finish_extend,
            VolumeStatus.ERROR_EXTENDING: extender.finish_extend,
            VolumeStatus.REVERTING: reverter.finish_revert,
            VolumeStatus.MANAGING: managed_disks.finish_manage,
            VolumeStatus.UNMANAGING: managed_disks.finish_unmanage,
            VolumeStatus.ERROR_UNMANAGING: managed_disks.finish_unmanage,
            VolumeStatus.RETYPING: migrator.finish_migration,
            VolumeStatus.MAINTENANCE: migrator.finish_migration,
        }
        self._retry_pace = RetryPace()
        self._delete_old_disk: Step = migrator.delete_old_disk

    def start_steps(self) -> dict[str, Future[None]]:
        """Start a job for each row; return the jobs by resource and id, for a log.

        A step that has failed before is retried less and less often. One whose disk
        may be on a part of its backend that is lost waits for that part.
        """
        rows = [*self._unfinished_volumes(), *self._unfinished_snapshots()]
        reaches = self._backends.reaches
        rows = [row for row in rows if reaches(row.backend, row.volume_id)]
        due = self._retry_pace.due([row.ident for row in rows if row.failed])
        return {
            f"{row.resource} {row.ident}": self._start(row)
            for row in rows
            if not row.failed or row.ident in due
        }

    def _start(self, row: UnfinishedRow) -> Future[None]:
        """Start its step. The failure of one that failed before is known already."""
        job = self._jobs.submit(row.step, row.ident, row.backend, row.pool)
        if not row.failed:
            self._jobs.report_failure(job, row.step, row.ident)
        return job

    def _unfinished_volumes(self) -> Iterator[UnfinishedRow]:
        with self._db.reading() as connection:
            rows = volumes.unfinished(connection)
        for row in rows:
            if row.own_status in UNFINISHED and row.reset_from is None:
                step = self._steps[row.own_status]
                failed = row.own_status in FAILED
                yield UnfinishedRow(
                    "volume", row.id, step, row.backend, row.id, _pool(row), failed
                )
            elif row.stale_backend is not None:
                yield UnfinishedRow(
                    "volume", row.id, self._delete_old_disk, row.stale_backend, row.id
                )

    def _unfinished_snapshots(self) -> Iterator[UnfinishedRow]:
        with self._db.reading() as connection:
            rows = snapshot_rows.unfinished(connection)
        for row, backend in rows:
            step = self._snapshot_steps[row.status]
            failed = row.status in FAILED
            yield UnfinishedRow(
                "snapshot", row.id, step, backend, row.volume_id, failed=failed
            )


def _pool(row: Volume) -> JobPool:
    """Return the threads of its step: those of copies, if that may take hours."""
    migrates = row.own_status in (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE)
    created = row.own_status is VolumeStatus.CREATING
    copies = created and bool(row.snapshot_id or row.source_volid)
    return JobPool.COPIES if migrates or copies else JobPool.DISKS
