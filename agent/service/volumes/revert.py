# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Take a volume back to its latest snapshot."""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, status_changes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import AgentError, Conflict, Invalid, NotFound
from lunshare.agent.records import RequestContext, Snapshot, Volume
from lunshare.agent.service.attachments.access import driver_snapshot
from lunshare.agent.service.job_runner import JobRunner
from lunshare.agent.service.volumes import rows
from lunshare.agent.service.volumes.rows import VolumeRows, is_refusal
from lunshare.agent.states import SnapshotStatus, VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)


class VolumeReverter:
    """Reverts of volumes that nobody has."""

    def __init__(
        self, db: Database, backends: Backends, locks: VolumeLocks, jobs: JobRunner
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._jobs, self._rows = jobs, VolumeRows(db)
        # Those that this life began: no driver has touched them before.
        self._untouched: set[str] = set()

    def revert(self, ctx: RequestContext, volume_id: str, snapshot_id: str) -> None:
        """Give the volume its latest snapshot's bytes; the snapshot stays.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume, or the snapshot.
        :raises Invalid: the snapshot is not its latest, or of another size; or the
            driver cannot.
        :raises Conflict: a host has the volume, or its status does not allow it.
        :raises BackendFailed: which bytes it has is not known: it is in error; to
            revert it again is allowed.
        """
        with self._db.writing() as connection:
            volume = rows.require(connection, volume_id)
            _check(volume, snapshots.of_volume(connection, volume_id), snapshot_id)
            _check_unread(snapshots.reader(connection, snapshot_id), snapshot_id)
            old = _from(volume)
            if old is None or not status_changes.move(
                connection,
                volume,
                VolumeStatus.REVERTING,
                unattached=True,
                intent={"snapshot_id": snapshot_id},
            ):
                raise _wrong_status(volume)
        if old is VolumeStatus.AVAILABLE:
            self._untouched.add(volume_id)
        self._jobs.run_and_wait(self.finish_revert, volume_id, volume.backend)

    def finish_revert(self, volume_id: str) -> None:
        """Finish a revert. Repeat-safe; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its revert"):
            volume = self._rows.get_if(volume_id, {VolumeStatus.REVERTING})
            if volume is None:
                return
            untouched = volume_id in self._untouched
            self._untouched.discard(volume_id)
            try:
                self._restore(volume)
            except Exception as error:
                self._failed(volume, error, untouched)
                raise
            self._rows.change_status(volume, VolumeStatus.AVAILABLE, intent=None)
        LOG.info("[%s] REVERTED volume=%s", volume.backend, volume_id)

    def _restore(self, volume: Volume) -> None:
        snapshot_id = (volume.intent or {})["snapshot_id"]
        with self._db.reading() as connection:
            snapshot = snapshots.get(connection, snapshot_id)
        if snapshot is None:
            raise NotFound("snapshot", snapshot_id)
        with self._backends[volume.backend].for_job() as backend:
            backend.volumes.revert(driver_snapshot(snapshot))

    def _failed(self, volume: Volume, error: Exception, untouched: bool) -> None:
        """A refusal changes nothing, but an attempt before it may have."""
        if untouched and is_refusal(error):
            self._rows.change_status(
                volume, VolumeStatus.AVAILABLE, str(error), intent=None
            )
        else:
            self._rows.change_status(volume, VolumeStatus.ERROR, str(error))


def _check(volume: Volume, kept: list[Snapshot], snapshot_id: str) -> None:
    """Whether this is the snapshot that the volume may go back to."""
    if not any(snapshot.id == snapshot_id for snapshot in kept):
        raise NotFound(f"snapshot of volume {volume.id}:", snapshot_id)
    latest = kept[-1]
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
            f" snapshot {latest.size}; make a volume of the snapshot instead."
        )


def _check_unread(reader: str | None, snapshot_id: str) -> None:
    """A driver may take the snapshot anew, from under whoever reads it."""
    if reader is not None:
        raise Conflict(
            f"snapshot {snapshot_id} is being copied into volume {reader}: revert when"
            " that one is whole"
        )


def _from(volume: Volume) -> VolumeStatus | None:
    """The status from which this volume may be reverted, or None."""
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
