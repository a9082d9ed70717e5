# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The row of a snapshot on which a step works, and the end of its disk."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from typing import Any

from lunshare.agent.db import snapshots
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.records import (
    ManageSnapshotRequest,
    NewSnapshot,
    RequestContext,
    Snapshot,
    Volume,
)
from lunshare.agent.model.states import SnapshotStatus
from lunshare.agent.service.driver_values import driver_snapshot
from lunshare.agent.service.volumes.rows import VolumeRows
from lunshare.agent.service.volumes.steps import failure_recorded
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import Unsupported


def new(
    ctx: RequestContext, asked: NewSnapshot | ManageSnapshotRequest, volume: Volume
) -> Snapshot:
    """Return the row of a snapshot of the volume that is being created."""
    return Snapshot(
        id=str(uuid.uuid4()),
        volume_id=volume.id,
        size=volume.size,
        status=SnapshotStatus.CREATING,
        project_id=ctx.project_id,
        user_id=ctx.user_id,
        name=asked.name,
        description=asked.description,
        metadata=asked.metadata,
        created_at=now(),
        updated_at=now(),
    )


class SnapshotRows:
    """The rows of snapshots, one at a time. Each call is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db, self._volumes = db, VolumeRows(db)

    def get_if(self, snapshot_id: str, *states: SnapshotStatus) -> Snapshot | None:
        """Return the snapshot if its status is one of these, else None.

        None also if an administrator has set that status: no operation stands behind
        it, and a step that waited for its lock has nothing to do.
        """
        with self._db.reading() as connection:
            row = snapshots.get(connection, snapshot_id)
        return row if row and row.status in states and not row.reset_from else None

    def backend(self, row: Snapshot) -> str:
        """Return the backend of its volume."""
        return self._volumes.get(row.volume_id).backend

    def change_status(
        self,
        row: Snapshot,
        new: SnapshotStatus,
        reason: str | None = None,
        **values: Any,
    ) -> None:
        """Change the status if it is that of ``row``."""
        with self._db.writing() as connection:
            snapshots.change_status(
                connection, row.id, {row.status}, new, reason=reason, **values
            )

    def start_delete(self, row: Snapshot, old: Collection[SnapshotStatus]) -> None:
        """Set it to deleting, if an operation has left it in one of ``old``."""
        with self._db.writing() as connection:
            current = snapshots.get(connection, row.id)
            if current is not None and not current.reset_from:
                deleting = SnapshotStatus.DELETING
                snapshots.change_status(connection, row.id, old, deleting)

    def mark_deleted(self, snapshot_id: str) -> None:
        """Mark it deleted."""
        with self._db.writing() as connection:
            snapshots.remove(connection, snapshot_id)

    def failure_in_row(
        self, row: Snapshot, status: SnapshotStatus
    ) -> AbstractContextManager[None]:
        """Write the error of the work inside, and ``status``; see failure_recorded."""
        return failure_recorded(lambda e: self.change_status(row, status, str(e)))


def delete_disk(backend: Backend, row: Snapshot) -> None:
    """Delete a snapshot's bytes. One whose manage did not finish is unmanaged."""
    if row.reference is None:
        backend.delete_snapshot(row.id)
        return
    # A driver that does not support manage has changed nothing.
    with suppress(Unsupported):
        backend.volumes.unmanage_snapshot(driver_snapshot(row))
