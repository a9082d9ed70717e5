# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Go on with what a restart, or a backend that was away, has interrupted.

Which step goes on with which status is a table; the steps are those that the
requests began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from agent.backends import Backends
from agent.db import snapshots, volumes
from agent.db.engine import Database
from agent.records import Volume
from agent.service.jobs import Jobs, Step
from agent.service.making import Making
from agent.service.services import Services
from agent.states import UNFINISHED, VolumeStatus


class Resume:
    """Starts the steps of rows that are in the middle of something."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        jobs: Jobs,
        making: Making,
        services: Services,
    ) -> None:
        self._db, self._backends, self._jobs = db, backends, jobs
        self._snapshots = services.snapshots
        self._steps: Mapping[VolumeStatus, Step] = {
            VolumeStatus.CREATING: making.make,
            VolumeStatus.DELETING: making.unmake,
            VolumeStatus.EXTENDING: services.extending.grow,
            VolumeStatus.ERROR_EXTENDING: services.extending.grow,
            VolumeStatus.REVERTING: services.reverting.restore,
            VolumeStatus.MANAGING: services.handing.take,
            VolumeStatus.UNMANAGING: services.handing.release,
            VolumeStatus.RETYPING: services.moving.carry,
            VolumeStatus.MAINTENANCE: services.moving.carry,
        }
        self._clear: Step = services.moving.clear

    def start(self) -> dict[str, Future[None]]:
        """Start each on its own; the jobs by what they are about, for a log."""
        return {
            name: self._jobs.start(step, ident, copies)
            for name, step, ident, copies in [*self._volumes(), *self._kept()]
        }

    def _volumes(self) -> Iterator[tuple[str, Step, str, bool]]:
        with self._db.reading() as connection:
            found = volumes.unfinished(connection)
        for row in found:
            if row.own_status in UNFINISHED and self._up(row.backend):
                step = self._steps[row.own_status]
                yield f"volume {row.id}", step, row.id, _copies(row)
            elif row.own_status not in UNFINISHED and self._up(row.leaving):
                yield f"volume {row.id}", self._clear, row.id, False

    def _kept(self) -> Iterator[tuple[str, Step, str, bool]]:
        with self._db.reading() as connection:
            found = snapshots.unfinished(connection)
        for row, backend in found:
            if self._up(backend):
                step = self._snapshots.steps[row.status]
                yield f"snapshot {row.id}", step, row.id, False

    def _up(self, name: str | None) -> bool:
        backend = self._backends.find(name) if name else None
        return backend is not None and backend.up


def _copies(row: Volume) -> bool:
    """Whether it may take hours."""
    moves = row.own_status in (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE)
    made = row.own_status is VolumeStatus.CREATING
    return moves or (made and bool(row.snapshot_id or row.source_volid))
