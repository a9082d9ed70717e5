# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What carries our names and has no row: find it, give it a row again, or delete it.

Nothing of it is ever deleted unasked: a wrong or empty database must not tear down
a live node. A disk that is newer than a restored database is recovered.
"""

from __future__ import annotations

from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends, NodeBackend, translated
from lunshare.agent.db import deleted_rows, snapshots, volumes
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import AgentError, BackendFailed, Conflict, Invalid, NotFound
from lunshare.agent.records import Orphan, RecoverRequest, RequestContext, Volume
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.types import Types
from lunshare.agent.service.wiper import Wiper
from lunshare.agent.states import VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB, Disk

LOG = log.getLogger(__name__)

All = list[Orphan]
Found = tuple[All, list[str]]


class Orphans:
    """The exports, disks and snapshots of ours that no row knows."""

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

    def list(self, ctx: RequestContext) -> All:
        """As they are now, on the backends that work.

        :raises BackendFailed: one of them does not answer.
        """
        orphans, failed = find(self._db, self._backends)
        if failed:
            raise BackendFailed("; ".join(failed))
        return orphans

    def recover(self, ctx: RequestContext, new: RecoverRequest) -> Volume:
        """Give a disk without a row its row again, under the same id.

        The volume is available and has no attachments.

        :raises NotFound: no backend has such a disk, or the type.
        :raises Conflict: it has a row, or is exported still.
        :raises Invalid: the disk is smaller than 1 GiB, or its backend lacks what
            the type asks for.
        """
        kind = self._types.resolve(new.volume_type)
        with self._locks.volume(new.volume_id, "its recovery"):
            with self._db.reading() as connection:
                _need_no_row(connection, "disk", new.volume_id)
            backend, disk = self._disk(new.volume_id)
            self._need_closed(backend, new.volume_id)
            why = self._pools.unmet_specs(ctx, backend.name, kind)
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
                _need_no_row(connection, "disk", new.volume_id)
                self._types.check_unchanged(connection, kind)
                deleted_rows.forget(connection, new.volume_id)
                volumes.insert(connection, volume)
        self._node.count_volume(backend.name, 1, volume.size)
        LOG.info("[%s] RECOVERED volume=%s", backend.name, volume.id)
        return volume

    def delete(self, ctx: RequestContext, kind: str, ident: str) -> None:
        """Delete one orphan, by its kind (export, disk, snapshot) and id.

        An export's sessions are ended as a detach ends them. A disk goes with its
        bytes, and only when it is not exported.

        :raises NotFound: there is no such orphan on a backend that works.
        :raises Conflict: it has a row, or the disk is exported still.
        """
        with self._locks.volume(ident, f"the deletion of its orphaned {kind}"):
            with self._db.reading() as connection:
                _need_no_row(connection, kind, ident)
            backend = self._holder(kind, ident)
            if kind == "disk":
                self._need_closed(backend, ident)
            with backend.for_request() as driver:
                if kind == "export":
                    driver.target.remove(ident)
                elif kind == "snapshot":
                    driver.volumes.delete_snapshot(ident)
                else:
                    driver.volumes.delete(ident)
        self._wiper.wake(backend.name)
        LOG.warning("[%s] DELETED orphan %s=%s", backend.name, kind, ident)

    def _disk(self, volume_id: str) -> tuple[NodeBackend, Disk]:
        for backend in _up(self._backends):
            with backend.for_request() as driver:
                for disk in driver.volumes.disks():
                    if disk.volume_id == volume_id:
                        return backend, disk
        raise NotFound("disk of volume", volume_id)

    def _holder(self, kind: str, ident: str) -> NodeBackend:
        for orphan in find(self._db, self._backends)[0]:
            if (orphan.kind, orphan.id) == (kind, ident):
                return self._backends[orphan.backend]
        raise NotFound(f"orphaned {kind}", ident)

    def _need_closed(self, backend: NodeBackend, volume_id: str) -> None:
        with backend.for_request() as driver:
            export = driver.target.observe_volume(volume_id)
        if export is not None:
            raise Conflict(
                f"the disk of volume {volume_id} is exported still: delete the orphaned"
                " export first, which ends the sessions of its hosts"
            )


def find(db: Database, backends: Backends) -> Found:
    """Every orphan, and a sentence for each backend that could not be asked.

    Rows are read after the storage: what was made meanwhile is not an orphan.
    """
    seen: dict[tuple[str, str], Orphan] = {}
    failed: list[str] = []
    for backend in _up(backends):
        try:
            with translated():
                for orphan in _held(backend):
                    # Two backends of one target see the same exports.
                    seen.setdefault((orphan.kind, orphan.id), orphan)
        except AgentError as error:
            failed.append(f"backend {backend.name}: {error}")
    with db.reading() as connection:
        known = volumes.ids(connection)
        kept = snapshots.ids(connection) | volumes.moments(connection)
    orphans = [
        each
        for each in seen.values()
        if each.id not in (kept if each.kind == "snapshot" else known)
    ]
    return sorted(orphans, key=lambda each: (each.kind, each.id)), failed


def _held(backend: NodeBackend) -> list[Orphan]:
    """Everything of ours on a backend, as if none of it had a row."""
    name, driver = backend.name, backend.driver
    held = [
        Orphan("export", each.volume_id, name, f"export of volume {each.volume_id}")
        for each in driver.target.observe()
    ]
    held += [
        Orphan("disk", each.volume_id, name, f"disk {each.path}")
        for each in driver.volumes.disks()
    ]
    return held + [
        Orphan("snapshot", each, name, f"snapshot {each} on backend {name}")
        for each in driver.volumes.snapshots()
    ]


def _need_no_row(connection: Any, kind: str, ident: str) -> None:
    if kind == "snapshot":
        there = snapshots.get(connection, ident) is not None
    else:
        there = volumes.get(connection, ident) is not None
    if there:
        noun = "snapshot" if kind == "snapshot" else "volume"
        raise Conflict(f"{noun} {ident} has a row: delete it by its own API request")


def _up(backends: Backends) -> list[NodeBackend]:
    return [backend for backend in backends.values() if backend.up]
