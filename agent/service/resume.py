# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Go on with what a restart, or a backend that was away, has interrupted.

Which step goes on with which status is a table; the steps are those that the
requests began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from agent.backends import Backends
from agent.db import snapshots, volumes
from agent.db.engine import Database
from agent.records import Volume
from agent.service.jobs import Jobs, Step
from agent.service.making import Making
from agent.service.services import Services
from agent.states import UNFINISHED, VolumeStatus


class _Going(NamedTuple):
    """A row that is in the middle of something, and how to go on."""

    noun: str
    ident: str
    step: Step
    backend: str
    copies: bool = False


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
            f"{going.noun} {going.ident}": self._jobs.start(
                going.step, going.ident, going.backend, going.copies
            )
            for going in [*self._volumes(), *self._kept()]
            if self._up(going.backend)
        }

    def _volumes(self) -> Iterator[_Going]:
        with self._db.reading() as connection:
            found = volumes.unfinished(connection)
        for row in found:
            if row.own_status in UNFINISHED:
                step = self._steps[row.own_status]
                yield _Going("volume", row.id, step, row.backend, _copies(row))
            elif row.leaving is not None:
                yield _Going("volume", row.id, self._clear, row.leaving)

    def _kept(self) -> Iterator[_Going]:
        with self._db.reading() as connection:
            found = snapshots.unfinished(connection)
        for row, backend in found:
            step = self._snapshots.steps[row.status]
            yield _Going("snapshot", row.id, step, backend)

    def _up(self, name: str) -> bool:
        backend = self._backends.find(name)
        return backend is not None and backend.up


def _copies(row: Volume) -> bool:
    """Whether it may take hours."""
    moves = row.own_status in (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE)
    made = row.own_status is VolumeStatus.CREATING
    return moves or (made and bool(row.snapshot_id or row.source_volid))
