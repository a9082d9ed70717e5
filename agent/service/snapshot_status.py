# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a snapshot, as an administrator sets it.

A status in progress (creating, deleting) is continued by the next reconcile. A
snapshot becomes available only if its backend has it, and no creation of it failed.
"""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Invalid, NotFound
from lunshare.agent.records import RequestContext, Snapshot
from lunshare.agent.service.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.agent.service.snapshots import Snapshots
from lunshare.agent.states import SnapshotStatus
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_CREATING, _AVAILABLE = SnapshotStatus.CREATING, SnapshotStatus.AVAILABLE
_DELETING = SnapshotStatus.DELETING

#: Which status os-update_snapshot_status may set, by the present one.
UPDATES = {
    _CREATING: frozenset({_CREATING, _AVAILABLE, SnapshotStatus.ERROR}),
    _DELETING: frozenset({_DELETING, SnapshotStatus.ERROR_DELETING}),
}


class SnapshotStatuses:
    """Sets the status of snapshots, and deletes them in any."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        its_snapshots: Snapshots,
        jobs: JobRunner,
        node: Node,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._snapshots, self._jobs, self._node = its_snapshots, jobs, node

    def reset(self, ctx: RequestContext, snapshot_id: str, new: SnapshotStatus) -> None:
        """Set the status.

        :raises NotFound: the snapshot.
        :raises Invalid: it can not be available, because its backend does not have
            it, or its creation failed; or a volume is being created from it.
        """
        found = self._snapshots.get(ctx, snapshot_id)
        if new is _AVAILABLE and found.status is _CREATING:
            backend = self._backend(found)
            self._jobs.run_and_wait(self._snapshots.finish_create, snapshot_id, backend)
            return
        with self._locks.volume(found.volume_id, f"the reset of {snapshot_id}"):
            found = self._snapshots.get(ctx, snapshot_id)
            if new is _AVAILABLE and found.status is not _AVAILABLE:
                self._check_complete(found)
            self._write(found, new)
        LOG.info(
            "[%s] snapshot status set: snapshot=%s from=%s to=%s",
            found.volume_id,
            snapshot_id,
            found.status,
            new,
        )

    def update(
        self,
        ctx: RequestContext,
        snapshot_id: str,
        new: SnapshotStatus,
        progress: str | None,
    ) -> None:
        """Set status and progress of a snapshot that is creating or deleting.

        :raises NotFound: the snapshot.
        :raises Invalid: its status does not allow the new one.
        """
        found = self._snapshots.get(ctx, snapshot_id)
        if new not in UPDATES.get(found.status, ()):
            raise Invalid(
                f"os-update_snapshot_status.status: snapshot {snapshot_id} is"
                f" {found.status}, and can not become {new}."
            )
        self.reset(ctx, snapshot_id, new)
        if progress is not None:
            with self._db.writing() as connection:
                snapshots.set_progress(connection, snapshot_id, progress)

    def force_delete(self, ctx: RequestContext, snapshot_id: str) -> None:
        """Accept the deletion of a snapshot, whatever its status is.

        :raises NotFound: the snapshot.
        :raises Invalid: a volume is being created from it or reverted to it, or its
            backend is frozen.
        """
        found = self._snapshots.get(ctx, snapshot_id)
        backend = self._backend(found)
        with self._db.writing() as connection:
            self._node.check_not_frozen(connection, backend)
            if not snapshots.reset_status(connection, snapshot_id, _DELETING):
                raise _in_use(snapshot_id)
        self._jobs.run_later(self._snapshots.finish_delete, snapshot_id, backend)

    def _write(self, found: Snapshot, new: SnapshotStatus) -> None:
        with self._db.writing() as connection:
            if not snapshots.reset_status(connection, found.id, new):
                raise _in_use(found.id)

    def _check_complete(self, found: Snapshot) -> None:
        if found.status is SnapshotStatus.ERROR and found.status_reason:
            raise Invalid(
                f"os-reset_status.status: snapshot {found.id} was not created"
                f" ({found.status_reason}); delete it."
            )
        with self._backends[self._backend(found)].for_request() as backend:
            if found.id not in backend.volumes.snapshots():
                raise Invalid(
                    f"os-reset_status.status: the backend of snapshot {found.id} does"
                    " not have it; delete it."
                )

    def _backend(self, found: Snapshot) -> str:
        with self._db.reading() as connection:
            volume = volumes.get_row(connection, found.volume_id)
        if volume is None:
            raise NotFound("volume", found.volume_id)
        return volume.backend


def _in_use(snapshot_id: str) -> Invalid:
    return Invalid(
        f"Invalid snapshot: a volume is being created from snapshot {snapshot_id}, or"
        " reverted to it; try again when that is done"
    )
