# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Manage a snapshot that lunshare did not create, and unmanage a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Invalid
from lunshare.agent.model.quota_table import GIGABYTES, SNAPSHOTS
from lunshare.agent.model.records import (
    ManageableSnapshot,
    ManageSnapshotRequest,
    RequestContext,
    Snapshot,
    Volume,
)
from lunshare.agent.model.states import SnapshotStatus
from lunshare.agent.service.driver_values import driver_snapshot
from lunshare.agent.service.jobs.job_runner import JobRunner, Step
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.snapshots.snapshots import Snapshots
from lunshare.agent.service.volumes import rows, snapshot_rows
from lunshare.agent.service.volumes.steps import failure_recorded
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB

LOG = log.getLogger(__name__)

_AVAILABLE, _UNMANAGING = SnapshotStatus.AVAILABLE, SnapshotStatus.UNMANAGING
# An unmanage that failed may be asked for again.
_UNMANAGEABLE = frozenset({_AVAILABLE, _UNMANAGING})


class ManagedSnapshots:
    """Foreign snapshots that become snapshots, and the other way round."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        jobs: JobRunner,
        *,
        its_snapshots: Snapshots,
        pools: Pools,
        quotas: Quotas,
        node: Node,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._jobs, self._snapshots, self._pools = jobs, its_snapshots, pools
        self._quotas, self._node = quotas, node
        self._volumes, self._rows = rows.VolumeRows(db), snapshot_rows.SnapshotRows(db)

    def list(self, ctx: RequestContext, host: str) -> list[ManageableSnapshot]:
        """Return the snapshots of volumes on a backend that could be managed.

        :raises NotFound: the host.
        :raises Invalid: its driver does not support it.
        :raises BackendFailed: its storage does not answer.
        """
        return [*self._manageable(self._pools.backend_of(host))]

    def manage(self, ctx: RequestContext, new: ManageSnapshotRequest) -> Snapshot:
        """Make a foreign snapshot a snapshot of its volume; its bytes are preserved.

        It is the newest snapshot of the volume then. Waits a little, as the creation
        of a snapshot does.

        :raises NotFound: the volume.
        :raises Invalid: the volume has no such foreign snapshot, or that cannot be
            managed; the volume's status, or its backend is frozen.
        :raises Busy: the volume has just changed.
        :raises Exhausted: a quota of the project.
        :raises BackendFailed: it is not managed; the foreign snapshot is as it was.
        """
        rows.check_has_project(ctx)
        volume = self._volumes.get(new.volume_id, ctx)
        if not volume.backend:
            raise rows.wrong_status(volume, "snapshotted", "available or in-use")
        foreign = self._require(volume, new)
        snapshot = replace(
            snapshot_rows.new(ctx, new, volume),
            size=foreign.gib,
            status=SnapshotStatus.MANAGING,
            reference=foreign.reference,
        )
        with self._db.writing() as connection:
            is_locked = volumes.lock_available(connection, volume.id)
            current = volumes.require(connection, volume.id, ctx)
            if not is_locked:
                raise rows.wrong_status(current, "snapshotted", "available or in-use")
            if current.backend != volume.backend:
                raise rows.changed_meanwhile(volume.id)
            self._node.check_not_frozen(connection, current.backend)
            snapshots.insert(connection, snapshot)
            self._quotas.check(
                connection, ctx.project_id, current.volume_type_id, SNAPSHOTS, GIGABYTES
            )
        try:
            self._jobs.run_and_wait(self.finish_manage, snapshot.id, volume.backend)
        except Exception:
            self._snapshots.discard(snapshot)
            raise
        return self._snapshots.get(ctx, snapshot.id)

    def unmanage(self, ctx: RequestContext, snapshot_id: str) -> None:
        """Make the snapshot a foreign one again, with its bytes; forget it.

        Waits a little, as the creation of a snapshot does.

        :raises NotFound: the snapshot.
        :raises Invalid: a volume is being created from it or reverted to it, its
            status does not allow it, its driver cannot, or its backend is frozen.
        :raises BackendFailed: it is unmanaging. The next reconcile tries again. To
            ask again, or to delete it by force, is allowed.
        """
        with self._db.writing() as connection:
            snapshot = snapshots.require(connection, snapshot_id, ctx)
            backend = volumes.require(connection, snapshot.volume_id).backend
            self._node.check_not_frozen(connection, backend)
            if not snapshots.change_status(
                connection, snapshot_id, _UNMANAGEABLE, _UNMANAGING, unread=True
            ):
                raise _unmanage_error(snapshot)
        self._jobs.run_and_wait(self.finish_unmanage, snapshot_id, backend)

    @property
    def steps(self) -> Mapping[SnapshotStatus, Step]:
        """The step that finishes an operation, by the status of the snapshot."""
        return {
            SnapshotStatus.MANAGING: self.finish_manage,
            _UNMANAGING: self.finish_unmanage,
        }

    def finish_manage(self, snapshot_id: str) -> None:
        """Manage a snapshot that is managing; others are ignored. Can be repeated."""
        row = self._rows.get_if(snapshot_id, SnapshotStatus.MANAGING)
        if row is None or row.reference is None:
            return
        with self._locks.volume(row.volume_id, f"the manage of snapshot {row.id}"):
            if self._rows.get_if(row.id, SnapshotStatus.MANAGING) is None:
                return
            name = self._rows.backend(row)
            with (
                self._rows.failure_in_row(row, SnapshotStatus.ERROR),
                self._backends[name].for_job() as backend,
            ):
                backend.volumes.manage_snapshot(driver_snapshot(row), row.reference)
            self._rows.change_status(row, _AVAILABLE, reference=None)
        LOG.info(
            "[%s] snapshot managed: snapshot=%s volume=%s old_name=%s",
            name,
            row.id,
            row.volume_id,
            row.reference,
        )

    def finish_unmanage(self, snapshot_id: str) -> None:
        """Unmanage one that is unmanaging; others are ignored. Can be repeated."""
        row = self._rows.get_if(snapshot_id, _UNMANAGING)
        if row is None:
            return
        with self._locks.volume(row.volume_id, f"the unmanage of snapshot {row.id}"):
            if self._rows.get_if(row.id, _UNMANAGING) is None:
                return
            name = self._rows.backend(row)
            with (
                failure_recorded(lambda error: self._fail_unmanage(row, error)),
                self._backends[name].for_job() as backend,
            ):
                backend.volumes.unmanage_snapshot(driver_snapshot(row))
            self._rows.mark_deleted(row.id)
        LOG.info(
            "[%s] snapshot unmanaged: snapshot=%s volume=%s",
            name,
            row.id,
            row.volume_id,
        )

    def _fail_unmanage(self, row: Snapshot, error: Exception) -> None:
        """Record it; the snapshot is available if this attempt was refused.

        An attempt before it may have unmanaged the snapshot, and then it is not.
        """
        refused = rows.is_refusal(error) and self._exists(row)
        status = _AVAILABLE if refused else _UNMANAGING
        self._rows.change_status(row, status, str(error))

    def _exists(self, row: Snapshot) -> bool:
        with self._backends[self._rows.backend(row)].for_job() as backend:
            return row.id in backend.volumes.snapshots()

    def _manageable(self, name: str) -> Sequence[ManageableSnapshot]:
        with self._backends[name].for_request() as backend:
            snapshots = backend.volumes.manageable_snapshots()
        return [_with_size_checked(snapshot) for snapshot in snapshots]

    def _require(
        self, volume: Volume, new: ManageSnapshotRequest
    ) -> ManageableSnapshot:
        for snapshot in self._manageable(volume.backend):
            if (snapshot.reference, snapshot.volume_id) == (new.reference, volume.id):
                rows.check_safe(snapshot, "snapshot")
                return snapshot
        raise Invalid(
            f"snapshot.ref.source-name: volume {volume.id} has no foreign snapshot"
            f" {new.reference!r}; give one that GET /manageable_snapshots lists."
        )


def _with_size_checked(snapshot: ManageableSnapshot) -> ManageableSnapshot:
    """Return it with the problem of its size, if a snapshot of it cannot be managed.

    A revert to it gives its volume this size, which is a number of GiB.
    """
    if snapshot.problem or snapshot.size % GIB == 0:
        return snapshot
    problem = f"it has {snapshot.size} bytes, which is not a number of GiB"
    return replace(snapshot, problem=problem)


def _unmanage_error(found: Snapshot) -> Invalid:
    if found.status in _UNMANAGEABLE:
        return Invalid(
            f"Invalid snapshot: a volume is being created from snapshot {found.id}, or"
            " reverted to it; unmanage it when that is done"
        )
    return Invalid(
        f"Invalid snapshot: snapshot {found.id} is {found.status} and cannot be"
        " unmanaged; it must be available"
    )
