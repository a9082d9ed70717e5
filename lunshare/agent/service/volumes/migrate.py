# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Retype a volume, and migrate it to another backend of this node.

The copy is created first. One commit then says on which backend the volume is. The
disk on the old backend is deleted last. Until that commit the old disk is valid, so
whatever fails before it is undone.
"""

from __future__ import annotations

from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import snapshots, status_changes, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import (
    AgentError,
    Conflict,
    Invalid,
    NotFound,
    existing,
)
from lunshare.agent.model.quota_table import GIGABYTES, SNAPSHOTS, VOLUMES
from lunshare.agent.model.records import RequestContext, Volume, VolumeType
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments import access
from lunshare.agent.service.driver_values import size_bytes
from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner
from lunshare.agent.service.jobs.wiper import Wiper
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.explanation import PlacementRequest
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.sharing import SharingRules
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes.delete_rules import still_needed
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    wrong_status,
)
from lunshare.agent.service.volumes.steps import Operation, VolumeSteps
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.backend import Backend
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.migration import require_same_sectors
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)

_MIGRATE = Operation(
    "its migration",
    (VolumeStatus.RETYPING, VolumeStatus.MAINTENANCE),
    failed=VolumeStatus.AVAILABLE,
)


class VolumeMigrator:
    """Retypes and migrates volumes."""

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
        scheduler: Scheduler,
        wiper: Wiper,
        quotas: Quotas,
        sharing: SharingRules,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._types, self._node, self._jobs = types, node, jobs
        self._pools, self._scheduler, self._wiper = pools, scheduler, wiper
        self._rows, self._quotas, self._sharing = VolumeRows(db), quotas, sharing
        self._steps = VolumeSteps(db, locks)

    def retype(
        self, ctx: RequestContext, volume_id: str, new_type: str, on_demand: bool
    ) -> None:
        """Give it another type, by id or name; migrate it only where it must.

        ``on_demand`` allows a migration. Whether several hosts may use it changes
        with the type, and only when the complete retype has succeeded. A migration
        waits a little, as the creation of a volume does.

        :raises NotFound: the volume or the type.
        :raises Forbidden: several hosts could use it then, and the policy.
        :raises Invalid: it already has the type; its backend does not meet the
            type's extra specs and a migration is not allowed; or it has
            attachments, snapshots or clones that do not allow it.
        :raises Conflict: it or the type has just changed, the old disk of its last
            migration still exists, or the type's writers policy would exclude hosts
            that may write.
        :raises Exhausted: no other backend has space, or a quota of the new type.
        :raises BackendFailed: it could not be migrated, and is as it was.
        """
        kind = self._require_type(ctx, new_type)
        volume = self._rows.get(volume_id, ctx)
        if kind.id == volume.volume_type_id:
            raise Invalid(
                f"os-retype.new_type: volume {volume.id} is of type {kind.name}"
                " already."
            )
        if volume.own_status is not VolumeStatus.AVAILABLE:
            raise wrong_status(volume, "retyped", "available")
        self._sharing.check_new(ctx, kind.multiattach and not volume.multiattach)
        why = self._pools.unmet_specs(volume.backend, kind)
        if why is None:
            return self._retype_here(volume, kind)
        if not on_demand:
            raise Invalid(
                f"os-retype.migration_policy: backend {volume.backend}: {why}; give"
                " on-demand, so that the volume may be migrated."
            )
        sector = self._pools.sector(volume.backend)
        request = PlacementRequest(
            volume.size, kind, exclude=volume.backend, sector=sector
        )
        backend = self._scheduler.place(ctx, volume.id, request)
        return self._start(volume, VolumeStatus.RETYPING, backend, kind)

    def migrate(self, ctx: RequestContext, volume_id: str, host: str) -> None:
        """Migrate it to another backend of this node.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: the host is not a backend of this node, is the one where
            the volume is, or does not meet its type's extra specs; or the volume
            has attachments, snapshots or clones.
        :raises Conflict: it has just changed, the old disk of its last migration
            still exists, or the backend has another disk of its id.
        :raises Exhausted: the backend has no space.
        :raises BackendFailed: it could not be migrated, and is as it was.
        """
        volume = self._rows.get(volume_id, ctx)
        try:
            backend = self._pools.backend_of(host)
        except NotFound:
            raise Invalid(
                f"os-migrate_volume.host: {host!r} is not a backend of this node;"
                " give one that GET /scheduler-stats/get_pools lists."
            ) from None
        if backend == volume.backend:
            raise Invalid(
                f"os-migrate_volume.host: volume {volume.id} is already there."
            )
        kind = None
        if volume.volume_type_id:
            kind = self._types.get(ctx, volume.volume_type_id)
        sector = self._pools.sector(volume.backend)
        request = PlacementRequest(volume.size, kind, only=backend, sector=sector)
        self._scheduler.place(ctx, volume.id, request)
        self._start(volume, VolumeStatus.MAINTENANCE, backend)

    def finish_migration(self, volume_id: str) -> None:
        """Finish a migration, or undo it; ignore a volume without one."""
        try:
            self._migrate(volume_id)
        finally:
            self._start_cleanup(volume_id)

    def _migrate(self, volume_id: str) -> None:
        with self._steps.run(volume_id, _MIGRATE) as step:
            if step is None:
                return
            volume, intent = step.volume, step.volume.intent or {}
            old, new = volume.backend, intent["backend"]
            if new == old:
                _log_wrong_row(volume)
                step.done_values = {"stale_backend": None}
                return
            step.failed_values = {
                "intent": None,
                "stale_backend": new,
                "migration_status": "error",
            }
            self._copy(volume, new)
            step.done_values = {
                "backend": new,
                "stale_backend": old,
                "migration_status": "success",
            }
            if "type_id" in intent:
                step.done_values["volume_type_id"] = intent["type_id"]
                step.done_values["multiattach"] = intent["multiattach"]
        self._node.count_volume(old, -1, -volume.size)
        self._node.count_volume(new, 1, volume.size)
        LOG.info("[%s] volume migrated: volume=%s from=%s", new, volume_id, old)

    def _start_cleanup(self, volume_id: str) -> None:
        """Delete what the migration has left on the other backend."""
        volume = self._rows.get_if(volume_id, frozenset(VolumeStatus))
        if volume is not None and volume.stale_backend is not None:
            self._jobs.run_later(self.delete_old_disk, volume_id, volume.stale_backend)

    def delete_old_disk(self, volume_id: str) -> None:
        """Delete the disk that a migration has left behind. Can be repeated."""
        with self._locks.volume(volume_id, "the end of its migration"):
            volume = self._rows.get_if(volume_id, frozenset(VolumeStatus))
            if volume is None or volume.stale_backend is None:
                return
            if volume.stale_backend == volume.backend:
                _log_wrong_row(volume)
                available = VolumeStatus.AVAILABLE
                self._rows.change_status(
                    volume, available, intent=None, stale_backend=None
                )
                return
            if self._has_own_disk(volume):
                with self._backends[volume.stale_backend].for_job() as backend:
                    # Not its export. That is found by the volume's id, and now belongs
                    # to the backend that the volume is on.
                    backend.volumes.delete(volume_id)
            else:
                _log_only_disk(volume)
            self._rows.update(volume_id, stale_backend=None)
        self._wiper.wake(volume.stale_backend)

    def _has_own_disk(self, volume: Volume) -> bool:
        """Whether the volume has its disk where its row says."""
        with self._backends[volume.backend].for_job() as backend:
            try:
                backend.volumes.disk(volume.id)
            except UnknownDisk:
                return False
        return True

    def _require_type(self, ctx: RequestContext, ident: str) -> VolumeType:
        return existing(self._types.resolve(ctx, ident), "volume_type", ident)

    def _retype_here(self, volume: Volume, kind: VolumeType) -> None:
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, kind)
            if not status_changes.change_status(
                connection,
                volume,
                VolumeStatus.AVAILABLE,
                unattached=kind.multiattach != volume.multiattach,
                volume_type_id=kind.id,
                multiattach=kind.multiattach,
            ):
                raise _wrong_status(connection, volume, "retyped")
            self._check_quota(connection, volume, kind)
            project, counted = volume.project_id, (SNAPSHOTS, GIGABYTES)
            access.check_writers(connection, volumes.require_row(connection, volume.id))
            if snapshots.set_type(connection, volume.id, project, kind.id):
                self._quotas.check(connection, project, kind.id, *counted, totals=False)

    def _start(
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
        with self._rows.busy_if_changed(volume):
            self._check_target(volume, backend)
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, kind)
            if not status_changes.change_status(
                connection,
                volume,
                status,
                unattached=True,
                unsnapped=True,
                uncloned=True,
                intent={"backend": backend, **changes},
                migration_status="migrating",
            ):
                raise _wrong_status(connection, volume, "migrated")
            self._check_quota(connection, volume, kind)
        self._jobs.run_and_wait(
            self.finish_migration, volume.id, volume.backend, JobPool.COPIES
        )

    def _check_quota(
        self, connection: Connection, volume: Volume, kind: VolumeType | None
    ) -> None:
        """Check the quotas of the new type. The volume counts for it already."""
        if kind is not None:
            self._quotas.check(
                connection, volume.project_id, kind.id, VOLUMES, GIGABYTES, totals=False
            )

    def _check_target(self, volume: Volume, name: str) -> None:
        """Refuse before anything is created; overwrite no disk that exists."""
        with self._backends[volume.backend].for_request() as backend:
            kind = backend.volumes.disk(volume.id).kind
        with self._backends[name].for_request() as backend:
            if kind not in backend.volumes.abilities.fills:
                raise Invalid(
                    f"backend {name} cannot copy the bytes of a {kind} disk, such as"
                    f" those of backend {volume.backend}: create a new volume there and"
                    " copy them on a host"
                )
            try:
                disk = backend.volumes.disk(volume.id)
            except UnknownDisk:
                return
        raise Conflict(
            f"backend {name} already has a disk {disk.path}, and it is unknown whether"
            f" that is of volume {volume.id}: check whose it is, and remove it"
        )

    def _copy(self, volume: Volume, name: str) -> None:
        with (
            self._backends[volume.backend].for_job() as source,
            self._backends[name].for_job() as target,
        ):
            require_same_sectors(source.volumes, target.volumes, volume.id)
            source.target.remove(volume.id)
            disk = source.volumes.disk(volume.id)
            # Pools round sizes up, each in its own way.
            copy = DriverVolume(volume.id, max(size_bytes(volume.size), disk.size))
            self._create_target(volume, target, copy)
            target.volumes.fill(copy, disk)

    def _create_target(
        self, volume: Volume, target: Backend, copy: DriverVolume
    ) -> None:
        """Create the disk that gets the copy, once. A killed copy has bytes in it."""
        intent = volume.intent or {}
        if "is_created" in intent:
            return
        target.create(copy)
        self._rows.update(volume.id, intent={**intent, "is_created": True})


def _log_wrong_row(volume: Volume) -> None:
    """Log why no disk is deleted: an earlier lunshare wrote a wrong row."""
    LOG.error(
        "[%s] disk not deleted: volume=%s: its row says both that the disk is on this"
        " backend and that it will be deleted from it",
        volume.backend,
        volume.id,
    )


def _log_only_disk(volume: Volume) -> None:
    """Log why no disk is deleted: as after the restore of an older database."""
    LOG.error(
        "[%s] disk not deleted: volume=%s: the volume has no disk on backend %s, so"
        " this one may be all that is left of it. To use it, delete the volume, then"
        " recover the disk (lunshare recover)",
        volume.stale_backend,
        volume.id,
        volume.backend,
    )


def _check_free(volume: Volume) -> None:
    """Check that the volume's row allows a migration.

    :raises Invalid: its status.
    :raises Conflict: the disk of its last migration is not deleted yet.
    """
    if volume.own_status is not VolumeStatus.AVAILABLE:
        raise wrong_status(volume, "migrated", "available")
    if volume.stale_backend:
        raise Conflict(
            f"volume {volume.id} still has a disk on backend {volume.stale_backend}"
            " from its last migration: try again when that is deleted"
        )


def _wrong_status(connection: Connection, seen: Volume, what: str) -> AgentError:
    """Return why a volume was not changed although its own row allows it."""
    volume = volumes.require(connection, seen.id)
    if not status_changes.is_unchanged(seen, volume):
        return changed_meanwhile(volume.id)
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            f" attachments and cannot be {what} like this; delete those first"
        )
    return still_needed(connection, volume) or changed_meanwhile(volume.id)
