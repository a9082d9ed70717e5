# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What lunshare created and has no row: list it, recover its row, or delete it.

Nothing is deleted without a request: a wrong or empty database must not close the
access of a live node. A disk that is newer than a restored database is recovered.
"""

from __future__ import annotations

from collections.abc import Collection

from oslo_log import log

from lunshare.agent.backends import Backends, NodeBackend, is_part_lost
from lunshare.agent.db import snapshots, volumes
from lunshare.agent.db.purge import purge_volume
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import (
    BackendFailed,
    BackendUnavailable,
    Conflict,
    Invalid,
    NotFound,
)
from lunshare.agent.model.operator_records import Orphan, RecoverRequest
from lunshare.agent.model.records import RequestContext, Volume
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.service.node import Node
from lunshare.agent.service.orphans import inventory
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes.rows import check_has_project
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB, Disk

LOG = log.getLogger(__name__)

OrphanList = list[Orphan]


class Orphans:
    """The exports, disks and snapshots that lunshare created and that have no row."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        types: Types,
        node: Node,
        pools: Pools,
        wiper: Wiper,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._types, self._node = types, node
        self._pools, self._wiper = pools, wiper

    def list(self, ctx: RequestContext) -> OrphanList:
        """Return the orphans of the backends that are up.

        :raises BackendFailed: one of them does not answer.
        """
        listing = inventory.read(self._db, self._backends)
        if listing.failed:
            raise BackendFailed("; ".join(listing.failed))
        return listing.orphans

    def recover(self, ctx: RequestContext, new: RecoverRequest) -> Volume:
        """Create the row of a disk that has none, with the same id.

        The volume is available and has no attachments.

        :raises NotFound: no backend has such a disk, or the type.
        :raises Conflict: it has a row, is still exported, or two backends have one.
        :raises Invalid: the disk is smaller than 1 GiB, or its backend does not
            meet the type's extra specs.
        :raises BackendFailed: its backend does not answer; no row was created.
        """
        check_has_project(ctx)
        kind = self._types.resolve(ctx, new.volume_type)
        with self._locks.volume(new.volume_id, "its recovery"):
            with self._db.reading() as connection:
                _check_no_row(connection, "disk", new.volume_id)
            backend, disk = self._disk(new.volume_id)
            self._check_not_exported(backend, new.volume_id)
            why = self._pools.unmet_specs(backend.name, kind)
            if why is not None:
                raise Invalid(f"volume.volume_type: backend {backend.name}: {why}.")
            if disk.size < GIB:
                raise Invalid(
                    f"volume.id: {disk.path} has {disk.size} bytes, and a volume has"
                    " 1 GiB or more: extend the disk first."
                )
            volume = Volume(
                id=new.volume_id,
                size=disk.size // GIB,
                own_status=VolumeStatus.AVAILABLE,
                backend=backend.name,
                project_id=ctx.project_id,
                user_id=ctx.user_id,
                name=new.name,
                availability_zone=self._pools.zone,
                multiattach=kind.multiattach if kind else False,
                volume_type_id=kind.id if kind else None,
                created_at=now(),
                updated_at=now(),
            )
            with self._db.writing() as connection:
                _check_no_row(connection, "disk", new.volume_id)
                self._types.check_unchanged(connection, kind)
                purge_volume(connection, new.volume_id)
                volumes.insert(connection, volume)
        self._node.count_volume(backend.name, 1, volume.size)
        LOG.info("[%s] volume recovered: volume=%s", backend.name, volume.id)
        return volume

    def delete(self, ctx: RequestContext, kind: str, ident: str) -> None:
        """Delete one orphan, by its kind (export, disk, snapshot) and id.

        An export's sessions are ended as a detach ends them. A disk is deleted with
        its bytes, and only when it is not exported.

        :raises NotFound: no backend that is up has such an orphan.
        :raises Conflict: it has a row, the disk is still exported, or two backends
            have one.
        :raises BackendFailed: it may still exist; repeat the request.
        """
        with self._locks.volume(ident, f"the deletion of its orphaned {kind}"):
            with self._db.reading() as connection:
                _check_no_row(connection, kind, ident)
            backend = self._backend_of(kind, ident)
            if kind == "disk":
                self._check_not_exported(backend, ident)
            with backend.for_request() as driver:
                if kind == "export":
                    driver.target.remove(ident)
                elif kind == "snapshot":
                    driver.volumes.delete_snapshot(ident)
                else:
                    driver.volumes.delete(ident)
        self._wiper.wake(backend.name)
        LOG.warning("[%s] orphan deleted: %s=%s", backend.name, kind, ident)

    def _disk(self, volume_id: str) -> tuple[NodeBackend, Disk]:
        disks, lost = [], None
        for backend in self._backends.values():
            if backend.up:
                try:
                    with backend.for_request() as driver:
                        listed = driver.volumes.disks()
                except BackendUnavailable as error:
                    if not is_part_lost(error):
                        raise
                    lost = error
                    continue
                disks += [(backend, d) for d in listed if d.volume_id == volume_id]
        if not disks:
            raise lost or NotFound("disk of volume", volume_id)
        _check_one(volume_id, {disk.path for _, disk in disks})
        return disks[0]

    def _backend_of(self, kind: str, ident: str) -> NodeBackend:
        orphans = [
            orphan
            for orphan in inventory.read(self._db, self._backends).orphans
            if (orphan.kind, orphan.id) == (kind, ident)
        ]
        if not orphans:
            raise NotFound(f"orphaned {kind}", ident)
        _check_one(ident, {orphan.where for orphan in orphans})
        return self._backends[orphans[0].backend]

    def _check_not_exported(self, backend: NodeBackend, volume_id: str) -> None:
        with backend.for_request() as driver:
            export = driver.target.observe_volume(volume_id)
        if export is not None and not export.ended:
            raise Conflict(
                f"the disk of volume {volume_id} is still exported: delete the orphaned"
                " export first, which ends the sessions of its hosts"
            )


def _check_no_row(connection: Connection, kind: str, ident: str) -> None:
    if kind == "snapshot":
        exists = snapshots.get(connection, ident) is not None
    else:
        exists = volumes.get(connection, ident) is not None
    if exists:
        resource = "snapshot" if kind == "snapshot" else "volume"
        second = ", or remove a second disk by hand" if kind == "disk" else ""
        raise Conflict(
            f"{resource} {ident} has a row: delete it by its own API request{second}"
        )


def _check_one(ident: str, places: Collection[str]) -> None:
    """Check that an id names one thing only, so that no wrong one is used."""
    if len(places) > 1:
        raise Conflict(
            f"{ident} is the id of {' and of '.join(sorted(places))}: check which of"
            " them is complete, and remove the other one by hand"
        )
