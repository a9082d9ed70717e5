# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Set the status of a snapshot, as an administrator wants it."""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Busy, Conflict, Invalid
from lunshare.agent.model.records import RequestContext, Snapshot
from lunshare.agent.model.states import SnapshotStatus

LOG = log.getLogger(__name__)

_RUNNING = frozenset(
    {
        SnapshotStatus.CREATING,
        SnapshotStatus.DELETING,
        SnapshotStatus.MANAGING,
        SnapshotStatus.UNMANAGING,
    }
)
# Only an operation writes these.
_NOT_SET = frozenset({SnapshotStatus.MANAGING, SnapshotStatus.UNMANAGING})
_SET = [status for status in SnapshotStatus if status not in _NOT_SET]
# What os-update_snapshot_status may write, by the status before.
_NEXT = {
    SnapshotStatus.CREATING: (
        SnapshotStatus.CREATING,
        SnapshotStatus.AVAILABLE,
        SnapshotStatus.ERROR,
    ),
    SnapshotStatus.DELETING: (SnapshotStatus.DELETING, SnapshotStatus.ERROR_DELETING),
}


class SnapshotResetter:
    """Ends errors of snapshots that no retry has ended."""

    def __init__(self, db: Database, backends: Backends) -> None:
        self._db, self._backends = db, backends

    def reset(self, ctx: RequestContext, snapshot_id: str, status: str) -> None:
        """Write a status that starts no operation, now or after a restart.

        :raises NotFound: the snapshot.
        :raises Invalid: the status is unknown.
        :raises Conflict: an operation works on it, or it is to be available and its
            backend does not have it, or its creation failed.
        """
        new, row = _parse(status), self._require(ctx, snapshot_id)
        if row.status in _RUNNING and row.reset_from is None:
            raise Conflict(
                f"snapshot {snapshot_id} is {row.status}: wait until that has ended"
            )
        former = row.reset_from or row.status
        if new is SnapshotStatus.AVAILABLE and row.status is not new:
            self._check_exists(row, former)
            former = new
        self._write(row, new, former)
        LOG.warning("[%s] status reset: snapshot=%s", row.volume_id, snapshot_id)

    def update(
        self, ctx: RequestContext, snapshot_id: str, status: str, progress: str | None
    ) -> None:
        """Note how far a snapshot is whose status an administrator has set.

        :raises NotFound: the snapshot.
        :raises Invalid: the status is unknown or does not follow, or this node works
            on the snapshot itself.
        """
        new, row = _parse(status), self._require(ctx, snapshot_id)
        allowed = _NEXT.get(row.status, ()) if row.reset_from else ()
        if new not in allowed:
            raise Invalid(
                f"os-update_snapshot_status.status: snapshot {snapshot_id} is"
                f" {row.status}; give one of: {', '.join(allowed) or 'none'}."
            )
        self._write(row, new, row.reset_from or row.status, progress)

    def _write(
        self,
        row: Snapshot,
        new: SnapshotStatus,
        former: SnapshotStatus,
        progress: str | None = None,
    ) -> None:
        with self._db.writing() as connection:
            if snapshots.get(connection, row.id) != row:
                raise Busy(f"snapshot {row.id} has just changed: try again")
            snapshots.change_status(
                connection,
                row.id,
                {row.status},
                new,
                forced=True,
                reset_from=None if new is former else former,
                progress=progress,
            )

    def _require(self, ctx: RequestContext, snapshot_id: str) -> Snapshot:
        with self._db.reading() as connection:
            return snapshots.require(connection, snapshot_id, ctx)

    def _check_exists(self, row: Snapshot, former: SnapshotStatus) -> None:
        # A failed creation may have left a part, which must not be read as the whole.
        if former is SnapshotStatus.ERROR:
            raise Conflict(f"snapshot {row.id} was not created: delete it")
        with self._db.reading() as connection:
            volume = volumes.require_row(connection, row.volume_id)
        with self._backends[volume.backend].for_request() as backend:
            if row.id not in backend.volumes.snapshots():
                raise Conflict(
                    f"snapshot {row.id} does not exist on backend {volume.backend}:"
                    " delete it"
                )


def _parse(text: str) -> SnapshotStatus:
    for status in _SET:
        if status == text:
            return status
    raise Invalid(f"status: give one of {', '.join(_SET)}.")
