# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make the disk that a volume's row promises, and take it away again.

These are the steps behind a create and a delete; requests and reconcile start
the same ones.
"""

from __future__ import annotations

import contextlib

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, status_changes, volumes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Busy
from lunshare.agent.records import Volume
from lunshare.agent.service.attachments.access import driver_snapshot, driver_volume
from lunshare.agent.service.node import Node
from lunshare.agent.service.volumes.rows import VolumeRows
from lunshare.agent.service.wiper import Wiper
from lunshare.agent.states import VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import Unsupported
from lunshare.drivers.values import GIB, Snapshot

LOG = log.getLogger(__name__)

_FAILED = frozenset(
    {
        VolumeStatus.ERROR,
        VolumeStatus.CREATING,
        VolumeStatus.ERROR_MANAGING,
        VolumeStatus.MANAGING,
    }
)


class VolumeDisks:
    """Steps that make and remove disks. Repeat-safe."""

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
        self._node, self._wiper, self._rows = node, wiper, VolumeRows(db)

    def finish_create(self, volume_id: str) -> None:
        """Finish a creation; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its creation"):
            volume = self._rows.get_if(volume_id, {VolumeStatus.CREATING})
            if volume is None:
                return
            try:
                with self._backends[volume.backend].for_job() as backend:
                    self._fill(backend, volume)
            except Busy:
                raise  # somebody has its source: that says nothing of this volume
            except Exception as error:
                self._rows.change_status(volume, VolumeStatus.ERROR, str(error))
                raise
            self._rows.change_status(volume, VolumeStatus.AVAILABLE, intent=None)
            LOG.info("[%s] CREATED volume=%s", volume.backend, volume_id)

    def finish_delete(self, volume_id: str) -> None:
        """Finish a removal; does nothing to a volume that is not deleting."""
        with self._locks.volume(volume_id, "its deletion"):
            volume = self._rows.get_to_resume(
                volume_id, VolumeStatus.DELETING, VolumeStatus.ERROR_DELETING
            )
            if volume is None:
                return
            try:
                with self._backends[volume.backend].for_job() as backend:
                    self._destroy(backend, volume)
            except Busy:
                raise
            except Exception as error:
                self._rows.change_status(
                    volume, VolumeStatus.ERROR_DELETING, str(error)
                )
                raise
            self._rows.mark_deleted(volume_id)
            self._node.count_volume(volume.backend, -1, -volume.size)
            self._wiper.wake(volume.backend)
            LOG.info("[%s] DELETED volume=%s", volume.backend, volume_id)

    def discard(self, volume: Volume) -> None:
        """Forget a creation that failed; what the driver left goes with it."""
        self._want_gone(volume.id, _FAILED)
        try:
            self.finish_delete(volume.id)
        except Exception as error:
            LOG.error("[%s] DROP volume=%s: %s", volume.backend, volume.id, error)
            # Nobody was told its id: the next reconcile tries again.
            self._want_gone(volume.id, frozenset({VolumeStatus.ERROR_DELETING}))

    def _want_gone(self, volume_id: str, states: frozenset[VolumeStatus]) -> None:
        with self._db.writing() as connection:
            volume = volumes.get(connection, volume_id)
            if volume is not None and volume.own_status in states:
                status_changes.move(connection, volume, VolumeStatus.DELETING)

    def _fill(self, backend: Backend, volume: Volume) -> None:
        """Make the disk, with the bytes that the row names."""
        if volume.source_volid:
            self._clone(backend, volume, volume.source_volid)
        elif volume.snapshot_id:
            with self._db.reading() as connection:
                source = snapshots.get(connection, volume.snapshot_id)
            # While a volume is being made of it, a snapshot does not go.
            assert source is not None  # noqa: S101
            backend.volumes.create_from(driver_volume(volume), driver_snapshot(source))
        else:
            backend.create(driver_volume(volume))

    def _clone(self, backend: Backend, volume: Volume, source_id: str) -> None:
        """The steps of Backend.clone; the first two hold the lock of the source."""
        intent = volume.intent or {}
        moment = Snapshot(volume.id, source_id, intent["moment"] * GIB)
        if not intent.get("kept"):
            with self._locks.volume(source_id, f"the start of its clone {volume.id}"):
                self._rows.check_unchanged(source_id, intent["moment"])
                backend.volumes.create_snapshot(moment)
            # From here on the source may change, and even be of another size.
            self._rows.update(volume.id, intent={**intent, "kept": True})
        backend.volumes.create_from(driver_volume(volume), moment)
        self._end_moment(backend, volume, source_id)

    def _end_moment(self, backend: Backend, volume: Volume, source_id: str) -> None:
        with self._locks.volume(source_id, f"the end of its clone {volume.id}"):
            backend.volumes.delete_snapshot(volume.id)

    def _destroy(self, backend: Backend, volume: Volume) -> None:
        """Remove its snapshots, which may need it, then its disk.

        A disk that was never wholly ours is given back instead.
        """
        if "reference" in (volume.intent or {}):
            # A driver that takes no disk over has taken none.
            with contextlib.suppress(Unsupported):
                backend.volumes.unmanage(volume.id)
            return
        with self._db.reading() as connection:
            kept = snapshots.of_volume(connection, volume.id)
        for snapshot in kept:
            backend.volumes.delete_snapshot(snapshot.id)
            with self._db.writing() as connection:
                snapshots.remove(connection, snapshot.id)
        backend.delete(volume.id)
        if volume.leaving:
            with self._backends[volume.leaving].for_job() as left:
                left.volumes.delete(volume.id)
        if volume.source_volid and volume.intent:
            # A driver without snapshots has left none.
            with contextlib.suppress(Unsupported):
                self._end_moment(backend, volume, volume.source_volid)
