# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How a job works on a volume: lock it, read its row, work, write how it ended.

A request commits the status that says what is in progress (``creating``). A job
does the work. The row then gets the status after success, or the status after a
failure with the reason. A restart finds the first status and runs the job again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Busy
from lunshare.agent.model.records import Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    is_refusal,
)
from lunshare.agent.volume_locks import VolumeLocks


@dataclass(frozen=True, slots=True)
class Operation:
    """The statuses of one operation. ``purpose`` is what the lock's waiters read.

    ``done`` is None where the row is deleted at the end. ``refused`` is the status
    after an error that changed nothing, None where it is ``failed`` too. With
    ``retried`` a volume in ``failed`` is worked on again.
    """

    purpose: str
    running: tuple[VolumeStatus, ...]
    failed: VolumeStatus
    done: VolumeStatus | None = VolumeStatus.AVAILABLE
    refused: VolumeStatus | None = None
    retried: bool = False


@dataclass(slots=True)
class Step:
    """One run of an operation on ``volume``, as its row was when the run started.

    The work may change the rest: ``refused`` is the operation's; ``done_values`` and
    ``failed_values`` are other columns that are written with the last status.
    """

    volume: Volume
    refused: VolumeStatus | None
    done_values: dict[str, Any] = field(default_factory=dict)
    failed_values: dict[str, Any] = field(default_factory=dict)


class VolumeSteps:
    """Runs the work of operations on volumes."""

    def __init__(self, db: Database, locks: VolumeLocks) -> None:
        self._rows, self._locks = VolumeRows(db), locks

    @contextmanager
    def run(self, volume_id: str, operation: Operation) -> Iterator[Step | None]:
        """Run the block under the volume's lock, then write how it ended.

        The block gets None when the row does not ask for this operation. When the
        block raises, the row gets the reason and the error is raised again.

        :raises Busy: another operation has the volume, or changed its row.
        """
        with self._locks.volume(volume_id, operation.purpose):
            volume = self._start(volume_id, operation)
            if volume is None:
                yield None
                return
            step = Step(volume, operation.refused)
            with failure_recorded(lambda e: self._fail(step, operation, e)):
                yield step
            self._finish(step, operation)

    def _start(self, volume_id: str, operation: Operation) -> Volume | None:
        if operation.retried:
            (running,) = operation.running
            return self._rows.get_to_retry(volume_id, running, operation.failed)
        volume = self._rows.get_if(volume_id, operation.running)
        return None if volume is None or volume.reset_from else volume

    def _finish(self, step: Step, operation: Operation) -> None:
        if operation.done is None:
            self._rows.mark_deleted(step.volume.id)
            return
        values = {"intent": None, **step.done_values}
        if not self._rows.change_status(step.volume, operation.done, **values):
            # A create that hangs can be cancelled without its lock.
            raise changed_meanwhile(step.volume.id)

    def _fail(self, step: Step, operation: Operation, error: Exception) -> None:
        status, values = operation.failed, dict(step.failed_values)
        if step.refused is not None and is_refusal(error):
            status, values = step.refused, {"intent": None, **values}
        self._rows.change_status(step.volume, status, str(error), **values)


@contextmanager
def failure_recorded(record: Callable[[Exception], None]) -> Iterator[None]:
    """Call ``record`` with the error of the block, and raise it again.

    Busy is not recorded: another operation has a lock, which says nothing about
    this work. It is done again later.
    """
    try:
        yield
    except Busy:
        raise
    except Exception as error:
        record(error)
        raise
