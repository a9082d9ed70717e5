# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Revert a volume to its latest snapshot."""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, status_changes, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import AgentError, Conflict, Invalid, NotFound
from lunshare.agent.model.records import RequestContext, Snapshot, Volume
from lunshare.agent.model.states import SnapshotStatus, VolumeStatus
from lunshare.agent.service.driver_values import driver_snapshot
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.service.volumes.steps import Operation, VolumeSteps
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_REVERT = Operation("its revert", (VolumeStatus.REVERTING,), failed=VolumeStatus.ERROR)


class VolumeReverter:
    """Reverts volumes that no host uses."""

    def __init__(
        self, db: Database, backends: Backends, locks: VolumeLocks, jobs: JobRunner
    ) -> None:
        self._db, self._backends, self._jobs = db, backends, jobs
        self._steps = VolumeSteps(db, locks)
        # Reverts that this process started. No driver has worked on them before.
        self._untouched: set[str] = set()

    def revert(self, ctx: RequestContext, volume_id: str, snapshot_id: str) -> None:
        """Give the volume the bytes of its latest snapshot; the snapshot stays.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume, or the snapshot.
        :raises Invalid: the snapshot is not its latest, or has another size; or
            the driver does not support it.
        :raises Conflict: a host uses the volume, or its status does not allow it.
        :raises BackendFailed: it is unknown which bytes it has. It is in error; it
            can be reverted again.
        :raises BackendUnavailable: its disk may be on a part of its backend that is
            lost; nothing was changed.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            _check_latest(
                ctx, volume, snapshots.of_volume(connection, volume_id), snapshot_id
            )
            _check_unread(
                snapshots.volume_being_created(connection, snapshot_id), snapshot_id
            )
            self._backends[volume.backend].require_reach(volume_id)
            old = _revertible_status(volume)
            if old is None or not status_changes.change_status(
                connection,
                volume,
                VolumeStatus.REVERTING,
                unattached=True,
                intent={"snapshot_id": snapshot_id},
            ):
                raise _wrong_status(volume)
            # Before the commit, because a reconcile may start the job right after it.
            if old is VolumeStatus.AVAILABLE:
                self._untouched.add(volume_id)
            else:
                self._untouched.discard(volume_id)
        self._jobs.run_and_wait(self.finish_revert, volume_id, volume.backend)

    def finish_revert(self, volume_id: str) -> None:
        """Revert a volume that is reverting; others are ignored. Can be repeated."""
        with self._steps.run(volume_id, _REVERT) as step:
            if step is None:
                return
            if volume_id in self._untouched:
                # A refusal changes nothing, but an attempt before it may have.
                step.refused = VolumeStatus.AVAILABLE
            self._untouched.discard(volume_id)
            self._revert(step.volume)
        LOG.info("[%s] volume reverted: volume=%s", step.volume.backend, volume_id)

    def _revert(self, volume: Volume) -> None:
        snapshot_id = (volume.intent or {})["snapshot_id"]
        with self._db.reading() as connection:
            snapshot = snapshots.require(connection, snapshot_id)
        with self._backends[volume.backend].for_job() as backend:
            backend.volumes.revert(driver_snapshot(snapshot))


def _check_latest(
    ctx: RequestContext, volume: Volume, all_of_it: list[Snapshot], snapshot_id: str
) -> None:
    """Check that this is the snapshot to which the volume can be reverted."""
    visible = [snapshot.id for snapshot in all_of_it if ctx.sees(snapshot.project_id)]
    if snapshot_id not in visible:
        raise NotFound(f"snapshot of volume {volume.id}:", snapshot_id)
    latest = all_of_it[-1]
    if not ctx.sees(latest.project_id):
        raise Invalid(
            f"revert.snapshot_id: volume {volume.id} has a later snapshot of another"
            " project; ask an administrator."
        )
    if latest.id != snapshot_id:
        raise Invalid(
            f"revert.snapshot_id: volume {volume.id} has a later snapshot; give"
            f" {latest.id}, or delete that one first."
        )
    if latest.status is not SnapshotStatus.AVAILABLE:
        raise Invalid(
            f"revert.snapshot_id: snapshot {latest.id} is {latest.status}; it must be"
            " available."
        )
    if latest.size != volume.size:
        raise Invalid(
            f"revert.snapshot_id: volume {volume.id} has {volume.size} GiB and the"
            f" snapshot {latest.size}; create a volume from the snapshot instead."
        )


def _check_unread(reader: str | None, snapshot_id: str) -> None:
    """A driver may create the snapshot again, so nothing may be copying it."""
    if reader is not None:
        raise Conflict(
            f"snapshot {snapshot_id} is being copied into volume {reader}: revert when"
            " that one is complete"
        )


def _revertible_status(volume: Volume) -> VolumeStatus | None:
    """Return its status if that allows a revert, else None."""
    failed = volume.own_status is VolumeStatus.ERROR
    if volume.own_status is VolumeStatus.AVAILABLE:
        return volume.own_status
    if failed and "snapshot_id" in (volume.intent or {}):
        return volume.own_status
    return None


def _wrong_status(volume: Volume) -> AgentError:
    hosts = len(volume.attachments)
    having = f" with {hosts} attachments" if hosts else ""
    return Conflict(
        f"volume {volume.id} is {volume.status}{having} and cannot be reverted; it must"
        " be available, and no attachment may be left"
    )
