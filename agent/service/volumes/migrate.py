# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Give a volume another type, and move it to another backend of this node.

The copy is made first; one commit says where the volume is from then on; the
disk that it has left goes last. Until that commit the first disk is the truth,
so whatever fails before it is undone.
"""

from __future__ import annotations

from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import status_changes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import AgentError, Conflict, Invalid, NotFound
from lunshare.agent.records import RequestContext, Volume, VolumeType
from lunshare.agent.service.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.types import Types
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    require,
    still_needed,
    wrong_status,
)
from lunshare.agent.service.wiper import Wiper
from lunshare.agent.states import VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import GIB
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)

_MOVING = (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE)


class VolumeMigrator:
    """Retypes and migrations."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        types: Types,
        node: Node,
        jobs: JobRunner,
        pools: Pools,
        wiper: Wiper,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._types, self._node, self._jobs = types, node, jobs
        self._wiper = wiper
        self._pools, self._rows = pools, VolumeRows(db)

    def retype(
        self, ctx: RequestContext, volume_id: str, new_type: str, on_demand: bool
    ) -> None:
        """Give it another type, by id or name; move it only where it must.

        Whether several hosts may have it changes with the type, and only when
        the whole retype has succeeded. A move waits a little, as a creation does.

        :raises NotFound: the volume or the type.
        :raises Invalid: it has the type already; its backend has not what the type
            asks for and it may not move; or something has it that may not.
        :raises Exhausted: no other backend has room.
        :raises BackendFailed: it could not be moved, and is as it was.
        """
        kind = self._named(new_type)
        volume = self._rows.get(volume_id)
        if kind.id == volume.volume_type_id:
            raise Invalid(
                f"os-retype.new_type: volume {volume.id} is of type {kind.name}"
                " already."
            )
        why = self._pools.unmet_specs(ctx, volume.backend, kind)
        if why is None:
            return self._retype_here(volume, kind)
        if not on_demand:
            raise Invalid(
                f"os-retype.migration_policy: backend {volume.backend}: {why}; give"
                " on-demand, so that the volume may move."
            )
        backend = self._pools.choose(ctx, volume.size, kind, but=volume.backend)
        return self._begin(volume, VolumeStatus.RETYPING, backend, kind)

    def migrate(self, ctx: RequestContext, volume_id: str, host: str) -> None:
        """Move it to another backend of this node.

        Waits a little, as a creation does.

        :raises NotFound: the volume.
        :raises Invalid: the host is none of ours, is where it is, or has not what
            its type asks for; or something has the volume.
        :raises Exhausted: the backend has no room.
        :raises BackendFailed: it could not be moved, and is as it was.
        """
        volume = self._rows.get(volume_id)
        try:
            backend = self._pools.backend_of(host)
        except NotFound:
            raise Invalid(
                f"os-migrate_volume.host: {host!r} is no backend of this node; give one"
                " that GET /scheduler-stats/get_pools lists."
            ) from None
        if backend == volume.backend:
            raise Invalid(
                f"os-migrate_volume.host: volume {volume.id} is there already."
            )
        kind = None
        if volume.volume_type_id:
            kind = self._types.get(ctx, volume.volume_type_id)
        self._pools.choose(ctx, volume.size, kind, only=backend)
        self._begin(volume, VolumeStatus.MAINTENANCE, backend)

    def finish_migration(self, volume_id: str) -> None:
        """Finish a move, or undo it. Does nothing to a volume that does not move."""
        with self._locks.volume(volume_id, "its move"):
            volume = self._rows.get_if(volume_id, _MOVING)
            if volume is None:
                return None
            intent = volume.intent or {}
            if intent["backend"] == volume.backend:
                return self._stay(volume)
            try:
                self._copy(volume, intent["backend"])
            except Exception as error:
                self._settled(volume, "error", intent["backend"], reason=str(error))
                raise
            changes = {"backend": intent["backend"]}
            if "type_id" in intent:
                changes["volume_type_id"] = intent["type_id"]
                changes["multiattach"] = intent["multiattach"]
            self._settled(volume, "success", volume.backend, **changes)
        self._node.count_volume(volume.backend, -1, -volume.size)
        self._node.count_volume(intent["backend"], 1, volume.size)
        LOG.info(
            "[%s] MOVED volume=%s from=%s", intent["backend"], volume_id, volume.backend
        )

    def delete_old_disk(self, volume_id: str) -> None:
        """Delete the disk that a move has left behind. Repeat-safe."""
        with self._locks.volume(volume_id, "the end of its move"):
            volume = self._rows.get_if(volume_id, frozenset(VolumeStatus))
            if volume is None or volume.leaving is None:
                return None
            if volume.leaving == volume.backend:
                return self._stay(volume)
            with self._backends[volume.leaving].for_job() as backend:
                # Not its export: that goes by the volume's id, and is by now of
                # the backend that the volume is on.
                backend.volumes.delete(volume_id)
            self._rows.update(volume_id, leaving=None)
        self._wiper.wake(volume.leaving)

    def _stay(self, volume: Volume) -> None:
        """Delete nothing: a row that was written by an earlier lunshare is wrong."""
        LOG.error(
            "[%s] KEPT volume=%s: its row says both that it is there and that it is"
            " to leave that backend",
            volume.backend,
            volume.id,
        )
        self._rows.change_status(
            volume, VolumeStatus.AVAILABLE, intent=None, leaving=None
        )

    def _named(self, ident: str) -> VolumeType:
        kind = self._types.resolve(ident)
        if kind is None:
            raise NotFound("volume_type", ident)
        return kind

    def _retype_here(self, volume: Volume, kind: VolumeType) -> None:
        if volume.own_status is not VolumeStatus.AVAILABLE:
            raise wrong_status(volume, "retyped", "available")
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, kind)
            if not status_changes.move(
                connection,
                volume,
                VolumeStatus.AVAILABLE,
                unattached=kind.multiattach != volume.multiattach,
                volume_type_id=kind.id,
                multiattach=kind.multiattach,
            ):
                raise _wrong_status(connection, volume, "retyped")

    def _begin(
        self,
        volume: Volume,
        status: VolumeStatus,
        backend: str,
        kind: VolumeType | None = None,
    ) -> None:
        changes: dict[str, Any] = {}
        if kind:
            changes = {"type_id": kind.id, "multiattach": kind.multiattach}
        _check_free(volume)
        with self._rows.unless_changed(volume):
            self._check_way(volume, backend)
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, kind)
            if not status_changes.move(
                connection,
                volume,
                status,
                unattached=True,
                unsnapped=True,
                uncloned=True,
                intent={"backend": backend, **changes},
                migration_status="migrating",
            ):
                raise _wrong_status(connection, volume, "moved")
        self._jobs.run_and_wait(
            self.finish_migration, volume.id, volume.backend, copies=True
        )

    def _check_way(self, volume: Volume, name: str) -> None:
        """Refuse before anything is made, and write over nothing that is there."""
        with self._backends[volume.backend].for_request() as backend:
            kind = backend.volumes.disk(volume.id).kind
        with self._backends[name].for_request() as backend:
            if kind not in backend.volumes.abilities.fills:
                raise Invalid(
                    f"backend {name} cannot take the bytes of a {kind} disk, such as"
                    f" those of backend {volume.backend}: make a new volume there and"
                    " copy them on a host"
                )
            try:
                disk = backend.volumes.disk(volume.id)
            except UnknownDisk:
                return
        raise Conflict(
            f"backend {name} has a disk {disk.path} already, which is not known to be"
            f" of volume {volume.id}: see whose it is, and remove it"
        )

    def _copy(self, volume: Volume, name: str) -> None:
        with (
            self._backends[volume.backend].for_job() as source,
            self._backends[name].for_job() as target,
        ):
            source.target.remove(volume.id)
            disk = source.volumes.disk(volume.id)
            # Pools round sizes up, each in its own way.
            wanted = DriverVolume(volume.id, max(volume.size * GIB, disk.size))
            target.volumes.create(wanted)
            target.volumes.fill(wanted, disk)

    def _settled(
        self,
        volume: Volume,
        outcome: str,
        leaving: str,
        reason: str | None = None,
        **changes: Any,
    ) -> None:
        """Say how it ended; what is on the other backend goes."""
        if not self._rows.change_status(
            volume,
            VolumeStatus.AVAILABLE,
            reason,
            intent=None,
            leaving=leaving,
            migration_status=outcome,
            **changes,
        ):
            # Nothing is deleted on the word of a row that nobody wrote.
            raise changed_meanwhile(volume.id)
        self._jobs.run_later(self.delete_old_disk, volume.id, leaving)


def _check_free(volume: Volume) -> None:
    """Whether the volume's row lets it move.

    :raises Invalid: its status.
    :raises Conflict: its last move has left a disk.
    """
    if volume.own_status is not VolumeStatus.AVAILABLE:
        raise wrong_status(volume, "moved", "available")
    if volume.leaving:
        raise Conflict(
            f"volume {volume.id} still has a disk on backend {volume.leaving} from its"
            " last move: try again when that is deleted"
        )


def _wrong_status(connection: Any, seen: Volume, what: str) -> AgentError:
    """Why a volume that may be ``what`` by its own row was not."""
    volume = require(connection, seen.id)
    if not status_changes.same(seen, volume):
        return changed_meanwhile(volume.id)
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            f" attachments and cannot be {what} like this; delete those first"
        )
    return still_needed(connection, volume) or changed_meanwhile(volume.id)
