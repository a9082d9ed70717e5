# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots: the bytes that a volume has at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Invalid, existing
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.quota_table import GIGABYTES, SNAPSHOTS
from lunshare.agent.model.records import (
    NewSnapshot,
    Page,
    RequestContext,
    Snapshot,
    Volume,
)
from lunshare.agent.model.states import DELETABLE_SNAPSHOT, SnapshotStatus, VolumeStatus
from lunshare.agent.service.driver_values import driver_snapshot
from lunshare.agent.service.jobs.job_runner import JobRunner, Step
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.volumes import rows, snapshot_rows
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_DELETING = (SnapshotStatus.DELETING, SnapshotStatus.ERROR_DELETING)

#: What a create or a manage that failed may have left as the status.
_FAILED = (SnapshotStatus.ERROR, SnapshotStatus.CREATING, SnapshotStatus.MANAGING)


class Snapshots:
    """The snapshots of this node's volumes."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        jobs: JobRunner,
        *,
        quotas: Quotas,
        node: Node,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._jobs, self._rows, self._quotas = jobs, rows.VolumeRows(db), quotas
        self._node, self._own_rows = node, snapshot_rows.SnapshotRows(db)

    def get(self, ctx: RequestContext, snapshot_id: str) -> Snapshot:
        """Return one snapshot.

        :raises NotFound: the snapshot does not exist, or is deleted.
        """
        with self._db.reading() as connection:
            return snapshots.require(connection, snapshot_id, ctx)

    def list(self, ctx: RequestContext, page: Page) -> PageRows[Snapshot]:
        """Return a page of snapshots.

        :raises NotFound: the marker of the page does not exist.
        """
        with self._db.reading() as connection:
            return snapshots.page(connection, page)

    def count(self, ctx: RequestContext, page: Page) -> int:
        """Count the snapshots that match the page's filters, on all pages."""
        with self._db.reading() as connection:
            return snapshots.count(connection, page)

    def create(self, ctx: RequestContext, new: NewSnapshot) -> Snapshot:
        """Create a snapshot of the volume; hosts that use it continue to write.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: its status does not allow it, its driver does not support
            snapshots, or its backend is frozen.
        :raises Exhausted: its pool has no space, or a quota of the project;
            nothing is left.
        :raises BackendFailed: it could not be created; nothing is left.
        """
        rows.check_has_project(ctx)
        with self._db.writing() as connection:
            is_locked = volumes.lock_available(connection, new.volume_id)
            volume = volumes.require(connection, new.volume_id, ctx)
            if not is_locked or not (new.in_use or _is_available(volume)):
                raise _wrong_status(volume, is_locked)
            self._node.check_not_frozen(connection, volume.backend)
            snapshot = snapshot_rows.new(ctx, new, volume)
            snapshots.insert(connection, snapshot)
            self._quotas.check(
                connection,
                snapshot.project_id,
                volume.volume_type_id,
                SNAPSHOTS,
                GIGABYTES,
            )
        try:
            self._jobs.run_and_wait(self.finish_create, snapshot.id, volume.backend)
        except Exception:
            self.discard(snapshot)
            raise
        return self.get(ctx, snapshot.id)

    def update(
        self, ctx: RequestContext, snapshot_id: str, changes: Mapping[str, Any]
    ) -> Snapshot:
        """Change name, description or metadata.

        :raises NotFound: the snapshot.
        """
        with self._db.writing() as connection:
            snapshots.require(connection, snapshot_id, ctx)
            snapshots.update(connection, snapshot_id, changes)
        return self.get(ctx, snapshot_id)

    def change_metadata(
        self, ctx: RequestContext, snapshot_id: str, new: Mapping[str, str], keep: bool
    ) -> Snapshot:
        """Write metadata; with ``keep`` other keys stay as they are.

        :raises NotFound: the snapshot.
        """
        with self._db.writing() as connection:
            old = snapshots.require(connection, snapshot_id, ctx).metadata
            metadata = {**old, **new} if keep else dict(new)
            snapshots.update(connection, snapshot_id, {"metadata": metadata})
            return snapshots.require(connection, snapshot_id, ctx)

    def delete_metadata(self, ctx: RequestContext, snapshot_id: str, key: str) -> None:
        """Delete one item of the metadata.

        :raises NotFound: the snapshot, or the item.
        """
        with self._db.writing() as connection:
            metadata = dict(snapshots.require(connection, snapshot_id, ctx).metadata)
            existing(
                metadata.pop(key, None), f"metadata of snapshot {snapshot_id}:", key
            )
            snapshots.update(connection, snapshot_id, {"metadata": metadata})

    def delete(
        self, ctx: RequestContext, snapshot_id: str, force: bool = False
    ) -> None:
        """Accept the deletion; volumes created from it are not affected.

        With ``force`` its status does not matter.

        :raises NotFound: the snapshot.
        :raises Invalid: a volume is being created from it or reverted to it, its
            status does not allow it, or its backend is frozen.
        """
        with self._db.writing() as connection:
            snapshot = snapshots.require(connection, snapshot_id, ctx)
            backend = volumes.require(connection, snapshot.volume_id).backend
            self._node.check_not_frozen(connection, backend)
            if not snapshots.change_status(
                connection,
                snapshot_id,
                frozenset(SnapshotStatus) if force else DELETABLE_SNAPSHOT,
                SnapshotStatus.DELETING,
                unread=True,
                forced=force,
            ):
                raise _delete_error(snapshot)
        self._jobs.run_later(self.finish_delete, snapshot_id, backend)

    @property
    def steps(self) -> Mapping[SnapshotStatus, Step]:
        """The step that finishes an operation, by the status of the snapshot."""
        return {
            SnapshotStatus.CREATING: self.finish_create,
            SnapshotStatus.DELETING: self.finish_delete,
            SnapshotStatus.ERROR_DELETING: self.finish_delete,
        }

    def finish_create(self, snapshot_id: str) -> None:
        """Create a snapshot that is creating; others are ignored. Can be repeated."""
        row = self._own_rows.get_if(snapshot_id, SnapshotStatus.CREATING)
        if row is None:
            return
        with self._locks.volume(row.volume_id, f"snapshot {snapshot_id}"):
            if self._own_rows.get_if(snapshot_id, SnapshotStatus.CREATING) is None:
                return
            name = self._own_rows.backend(row)
            with self._own_rows.failure_in_row(row, SnapshotStatus.ERROR):
                self._rows.check_unchanged(row.volume_id, row.size)
                with self._backends[name].for_job() as backend:
                    backend.volumes.create_snapshot(driver_snapshot(row))
            self._own_rows.change_status(row, SnapshotStatus.AVAILABLE)
        LOG.info(
            "[%s] snapshot created: snapshot=%s volume=%s", name, row.id, row.volume_id
        )

    def finish_delete(self, snapshot_id: str) -> None:
        """Delete a snapshot that is deleting; others are ignored. Can be repeated."""
        row = self._own_rows.get_if(snapshot_id, *_DELETING)
        if row is None:
            return
        with self._locks.volume(row.volume_id, f"the end of snapshot {snapshot_id}"):
            self._own_rows.start_delete(row, {SnapshotStatus.ERROR_DELETING})
            row = self._own_rows.get_if(snapshot_id, SnapshotStatus.DELETING)
            if row is None:
                return
            name = self._own_rows.backend(row)
            with (
                self._own_rows.failure_in_row(row, SnapshotStatus.ERROR_DELETING),
                self._backends[name].for_job() as backend,
            ):
                snapshot_rows.delete_disk(backend, row)
            self._own_rows.mark_deleted(snapshot_id)
        LOG.info(
            "[%s] snapshot deleted: snapshot=%s volume=%s", name, row.id, row.volume_id
        )

    def discard(self, row: Snapshot) -> None:
        """Delete a snapshot whose create or manage failed; no client knows its id.

        A driver that fails has left nothing, or finds it by the id. What is left
        is deleted by the next reconcile.
        """
        self._own_rows.start_delete(row, _FAILED)
        try:
            self.finish_delete(row.id)
        except Exception as error:
            LOG.error(
                "[%s] cleanup of a failed snapshot failed: snapshot=%s: %s",
                row.volume_id,
                row.id,
                error,
            )
            self._own_rows.start_delete(row, {SnapshotStatus.ERROR_DELETING})


def _is_available(volume: Volume) -> bool:
    return volume.status is VolumeStatus.AVAILABLE


def _wrong_status(volume: Volume, held: bool) -> Invalid:
    if held:
        return Invalid(
            f"snapshot.force: volume {volume.id} is {volume.status}; give true, or use"
            " microversion 3.66 or later."
        )
    return Invalid(
        f"snapshot.volume_id: volume {volume.id} is {volume.status}; it must be"
        " available or in-use."
    )


def _delete_error(found: Snapshot) -> Invalid:
    if found.status in DELETABLE_SNAPSHOT:
        return Invalid(
            f"Invalid snapshot: a volume is being created from snapshot {found.id}, or"
            " reverted to it; delete it when that is done"
        )
    return Invalid(
        f"Invalid snapshot: snapshot {found.id} is {found.status} and cannot be"
        f" deleted; it must be one of {', '.join(sorted(DELETABLE_SNAPSHOT))}"
    )
