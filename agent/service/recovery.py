# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Go on with what a restart, or a backend that was away, has interrupted.

Which step goes on with which status is a table; the steps are those that the
requests began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.records import Volume
from lunshare.agent.service.job_runner import JobRunner, Step
from lunshare.agent.service.services import Services
from lunshare.agent.service.volumes.create import VolumeDisks
from lunshare.agent.states import FAILED, UNFINISHED, VolumeStatus


class UnfinishedRow(NamedTuple):
    """A row that is in the middle of something, and how to go on."""

    noun: str
    ident: str
    step: Step
    backend: str
    copies: bool = False
    failed: bool = False


class RetryPace:
    """How often what has failed is tried: at once, then after twice the time before."""

    _FIRST, _MOST = 60.0, 3600.0  # seconds

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}

    def due(self, names: Collection[str]) -> set[str]:
        """Which of all that have failed are to be tried now; they count as tried."""
        now, known = self._clock(), self._known
        waits = {name: known.get(name, (now, self._FIRST)) for name in names}
        due = {name for name, (at, _) in waits.items() if at <= now}
        self._known = waits | {
            name: (now + waits[name][1], min(self._MOST, 2 * waits[name][1]))
            for name in due
        }
        return due


class Recovery:
    """Starts the steps of rows that are in the middle of something."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        jobs: JobRunner,
        volume_disks: VolumeDisks,
        services: Services,
    ) -> None:
        self._db, self._backends, self._jobs = db, backends, jobs
        self._snapshots = services.snapshots
        self._steps: Mapping[VolumeStatus, Step] = {
            VolumeStatus.CREATING: volume_disks.finish_create,
            VolumeStatus.DELETING: volume_disks.finish_delete,
            VolumeStatus.ERROR_DELETING: volume_disks.finish_delete,
            VolumeStatus.EXTENDING: services.extender.finish_extend,
            VolumeStatus.ERROR_EXTENDING: services.extender.finish_extend,
            VolumeStatus.REVERTING: services.reverter.finish_revert,
            VolumeStatus.MANAGING: services.foreign_disks.finish_manage,
            VolumeStatus.UNMANAGING: services.foreign_disks.finish_unmanage,
            VolumeStatus.ERROR_UNMANAGING: services.foreign_disks.finish_unmanage,
            VolumeStatus.RETYPING: services.migrator.finish_migration,
            VolumeStatus.MAINTENANCE: services.migrator.finish_migration,
        }
        self._pace = RetryPace()
        self._clear: Step = services.migrator.delete_old_disk

    def start_steps(self) -> dict[str, Future[None]]:
        """Start each on its own; the jobs by what they are about, for a log.

        What has failed before is tried again less and less often.
        """
        found = [g for g in [*self._volumes(), *self._kept()] if self._up(g.backend)]
        due = self._pace.due([going.ident for going in found if going.failed])
        return {
            f"{going.noun} {going.ident}": self._jobs.submit(
                going.step, going.ident, going.backend, going.copies
            )
            for going in found
            if not going.failed or going.ident in due
        }

    def _volumes(self) -> Iterator[UnfinishedRow]:
        with self._db.reading() as connection:
            found = volumes.unfinished(connection)
        for row in found:
            if row.own_status in UNFINISHED:
                step = self._steps[row.own_status]
                failed = row.own_status in FAILED
                yield UnfinishedRow(
                    "volume", row.id, step, row.backend, _copies(row), failed
                )
            elif row.leaving is not None:
                yield UnfinishedRow("volume", row.id, self._clear, row.leaving)

    def _kept(self) -> Iterator[UnfinishedRow]:
        with self._db.reading() as connection:
            found = snapshots.unfinished(connection)
        for row, backend in found:
            step = self._snapshots.steps[row.status]
            failed = row.status in FAILED
            yield UnfinishedRow("snapshot", row.id, step, backend, failed=failed)

    def _up(self, name: str) -> bool:
        backend = self._backends.find(name)
        return backend is not None and backend.up


def _copies(row: Volume) -> bool:
    """Whether it may take hours."""
    moves = row.own_status in (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE)
    made = row.own_status is VolumeStatus.CREATING
    return moves or (made and bool(row.snapshot_id or row.source_volid))
