# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Create the disk that a volume's row promises, and delete it again.

These are the steps of a create and of a delete. Requests and recovery run the same.
"""

from __future__ import annotations

import contextlib

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, status_changes, volumes
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import Conflict, NotFound
from lunshare.agent.model.records import Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.driver_values import (
    driver_snapshot,
    driver_volume,
    size_bytes,
)
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.service.node import Node
from lunshare.agent.service.volumes.rows import VolumeRows
from lunshare.agent.service.volumes.snapshot_rows import delete_disk
from lunshare.agent.service.volumes.steps import Operation, VolumeSteps
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import UnknownDisk, Unsupported
from lunshare.drivers.values import Snapshot
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)

_CREATE = Operation("its creation", (VolumeStatus.CREATING,), failed=VolumeStatus.ERROR)
_DELETE = Operation(
    "its deletion",
    (VolumeStatus.DELETING,),
    failed=VolumeStatus.ERROR_DELETING,
    done=None,
    retried=True,
)

#: What a create or a manage that failed may have left as the status.
_FAILED = frozenset(
    {
        VolumeStatus.ERROR,
        VolumeStatus.CREATING,
        VolumeStatus.ERROR_MANAGING,
        VolumeStatus.MANAGING,
    }
)


class VolumeDisks:
    """Creates and deletes the disks of volumes. Every step can be repeated."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        node: Node,
        wiper: Wiper,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._node, self._wiper = node, wiper
        self._rows, self._steps = VolumeRows(db), VolumeSteps(db, locks)

    def finish_create(self, volume_id: str) -> None:
        """Create the disk of a volume that is creating; other volumes are ignored."""
        with self._steps.run(volume_id, _CREATE) as step:
            if step is None:
                return
            with self._backends[step.volume.backend].for_job() as backend:
                self._create_disk(backend, step.volume)
        LOG.info("[%s] volume created: volume=%s", step.volume.backend, volume_id)

    def finish_delete(self, volume_id: str) -> None:
        """Delete a volume that is deleting, with its disk; others are ignored."""
        with self._steps.run(volume_id, _DELETE) as step:
            if step is None:
                return
            with self._backends[step.volume.backend].for_job() as backend:
                self._delete_disk(backend, step.volume)
        backend_name, size = step.volume.backend, step.volume.size
        self._node.count_volume(backend_name, -1, -size)
        self._wiper.wake(backend_name)
        LOG.info("[%s] volume deleted: volume=%s", backend_name, volume_id)

    def discard(self, volume: Volume) -> None:
        """Delete a volume whose create or manage failed, with all that it left."""
        self._start_delete(volume.id, _FAILED)
        try:
            self.finish_delete(volume.id)
        except Exception as error:
            LOG.error(
                "[%s] cleanup of a failed volume failed: volume=%s: %s",
                volume.backend,
                volume.id,
                error,
            )
            # No client knows its id. The next reconcile tries again.
            self._start_delete(volume.id, frozenset({VolumeStatus.ERROR_DELETING}))

    def _start_delete(self, volume_id: str, states: frozenset[VolumeStatus]) -> None:
        with self._db.writing() as connection:
            volume = volumes.get(connection, volume_id)
            if volume is not None and volume.own_status in states:
                status_changes.change_status(connection, volume, VolumeStatus.DELETING)

    def _create_disk(self, backend: Backend, volume: Volume) -> None:
        """Create the disk, with the bytes that the row names."""
        if volume.source_volid:
            self._clone(backend, volume, volume.source_volid)
        elif volume.snapshot_id:
            with self._db.reading() as connection:
                source = snapshots.get(connection, volume.snapshot_id)
            # While a volume is created from it, a snapshot cannot be deleted.
            assert source is not None  # noqa: S101
            backend.volumes.create_from(driver_volume(volume), driver_snapshot(source))
        else:
            backend.create(driver_volume(volume))

    def _clone(self, backend: Backend, volume: Volume, source_id: str) -> None:
        """Clone it at once, or copy a temporary snapshot, named by the volume's id.

        The source is locked only briefly, at the start.
        """
        intent, clone = volume.intent or {}, driver_volume(volume)
        source = DriverVolume(source_id, size_bytes(intent["source_size"]))
        temporary = Snapshot(volume.id, source.id, source.size)
        if not intent.get("has_snapshot"):
            at_once = backend.volumes.abilities.clones_at_once
            with self._locks.volume(source_id, f"the start of its clone {volume.id}"):
                try:
                    self._rows.check_unchanged(source_id, intent["source_size"])
                except (Conflict, NotFound):
                    # A clone that was killed after its effect has what its source was.
                    # Not asked first: LVM looks for a missing disk with a command.
                    if not (at_once and _has_disk(backend, volume.id)):
                        raise
                if at_once:
                    backend.volumes.clone(clone, source)
                    return
                backend.volumes.create_snapshot(temporary)
            # From here on the source may change, and even get another size.
            self._rows.update(volume.id, intent={**intent, "has_snapshot": True})
        backend.volumes.create_from(clone, temporary)
        self._delete_clone_snapshot(backend, volume, source_id)

    def _delete_clone_snapshot(
        self, backend: Backend, volume: Volume, source_id: str
    ) -> None:
        with self._locks.volume(source_id, f"the end of its clone {volume.id}"):
            backend.delete_snapshot(volume.id)

    def _delete_disk(self, backend: Backend, volume: Volume) -> None:
        """Delete its snapshots, which may need the disk, then the disk.

        A disk whose manage did not finish is unmanaged instead.
        """
        if "reference" in (volume.intent or {}):
            # A driver that does not support manage has changed no disk.
            with contextlib.suppress(Unsupported):
                backend.volumes.unmanage(volume.id)
            return
        with self._db.reading() as connection:
            its_snapshots = snapshots.of_volume(connection, volume.id)
        for snapshot in its_snapshots:
            delete_disk(backend, snapshot)
            with self._db.writing() as connection:
                snapshots.remove(connection, snapshot.id)
        backend.delete(volume.id)
        if volume.stale_backend:
            with self._backends[volume.stale_backend].for_job() as former:
                former.volumes.delete(volume.id)
        if volume.source_volid and "source_size" in (volume.intent or {}):
            self._delete_clone_snapshot(backend, volume, volume.source_volid)


def _has_disk(backend: Backend, volume_id: str) -> bool:
    try:
        backend.volumes.disk(volume_id)
    except UnknownDisk:
        return False
    return True
