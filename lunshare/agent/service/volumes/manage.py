# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Manage a disk that lunshare did not create, and unmanage a volume."""

from __future__ import annotations

import uuid

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import status_changes, volumes
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.errors import AgentError, Invalid
from lunshare.agent.model.records import (
    Manageable,
    ManageRequest,
    RequestContext,
    Volume,
    VolumeType,
)
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.driver_values import driver_volume
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes.create import VolumeDisks
from lunshare.agent.service.volumes.delete_rules import still_needed
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    check_has_project,
    check_safe,
    is_refusal,
    wrong_status,
)
from lunshare.agent.service.volumes.steps import Operation, VolumeSteps
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_MANAGE = Operation(
    "its manage", (VolumeStatus.MANAGING,), failed=VolumeStatus.ERROR_MANAGING
)
_UNMANAGE = Operation(
    "its unmanage",
    (VolumeStatus.UNMANAGING,),
    failed=VolumeStatus.ERROR_UNMANAGING,
    refused=VolumeStatus.AVAILABLE,
    done=None,
    retried=True,
)


class ManagedDisks:
    """Disks that become volumes, and volumes that become foreign disks again."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        volume_disks: VolumeDisks,
        types: Types,
        node: Node,
        jobs: JobRunner,
        pools: Pools,
        quotas: Quotas,
    ) -> None:
        self._db, self._backends = db, backends
        self._volume_disks, self._types, self._node = volume_disks, types, node
        self._jobs, self._pools, self._rows = jobs, pools, VolumeRows(db)
        self._steps, self._quotas = VolumeSteps(db, locks), quotas

    def list(self, ctx: RequestContext, host: str) -> list[Manageable]:
        """Return the disks of a backend that could be managed.

        :raises NotFound: the host.
        :raises Invalid: its driver does not support manage.
        :raises BackendFailed: its storage does not answer.
        """
        with self._backends[self._pools.backend_of(host)].for_request() as backend:
            return [*backend.volumes.manageable()]

    def manage(self, ctx: RequestContext, new: ManageRequest) -> Volume:
        """Make a foreign disk a volume; its bytes are preserved.

        A size that is not a multiple of 1 GiB is extended to the next one. Waits a
        little, as the creation of a volume does.

        :raises NotFound: the host, or the volume type.
        :raises Invalid: the disk does not exist, it cannot be managed, or its
            backend does not meet the type's extra specs.
        :raises Busy: the type has just changed.
        :raises Exhausted: a quota of the project.
        :raises BackendFailed: it is not managed; the disk is as it was.
        """
        check_has_project(ctx)
        self._pools.check_zone(new.availability_zone)
        volume_type = self._types.resolve(ctx, new.volume_type)
        volume = self._new_row(
            ctx, new, volume_type, self._require_manageable(ctx, new)
        )
        why = self._pools.unmet_specs(volume.backend, volume_type)
        if why is not None:
            raise Invalid(f"volume.volume_type: host {new.host}: {why}.")
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, volume_type)
            volumes.insert(connection, volume)
            self._quotas.check_new_volume(connection, volume)
        self._node.count_volume(volume.backend, 1, volume.size)
        try:
            self._jobs.run_and_wait(self.finish_manage, volume.id, volume.backend)
        except Exception:
            self._volume_disks.discard(volume)
            raise
        return self._rows.get(volume.id)

    def finish_manage(self, volume_id: str) -> None:
        """Manage the disk of a volume that is managing; others are ignored.

        Can be repeated.
        """
        with self._steps.run(volume_id, _MANAGE) as step:
            if step is None:
                return
            volume = step.volume
            reference = (volume.intent or {})["reference"]
            target = driver_volume(volume)
            with self._backends[volume.backend].for_job() as backend:
                disk = backend.volumes.manage(target, reference)
                if disk.size < target.size:
                    backend.volumes.extend(target)
        LOG.info(
            "[%s] volume managed: volume=%s old_name=%s",
            volume.backend,
            volume_id,
            reference,
        )

    def unmanage(self, ctx: RequestContext, volume_id: str) -> None:
        """Make the volume a foreign disk again, with its bytes; forget the volume.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: it has attachments or snapshots, a clone of it is not
            complete yet, its status does not allow it, or its driver cannot.
        :raises Busy: it has just changed.
        :raises BackendFailed: it is error_unmanaging. The next reconcile tries
            again. To ask again, or to reset it to available, is allowed.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            if (wrong_status := _wrong_status(volume)) is not None:
                raise wrong_status
            if not status_changes.change_status(
                connection,
                volume,
                VolumeStatus.UNMANAGING,
                unattached=True,
                unsnapped=True,
                uncloned=True,
            ):
                needed = still_needed(connection, volume, ctx)
                raise needed or changed_meanwhile(volume_id)
        self._jobs.run_and_wait(self.finish_unmanage, volume_id, volume.backend)

    def finish_unmanage(self, volume_id: str) -> None:
        """Unmanage a volume that is unmanaging; others are ignored. Can be repeated."""
        with self._steps.run(volume_id, _UNMANAGE) as step:
            if step is None:
                return
            volume = step.volume
            try:
                with self._backends[volume.backend].for_job() as backend:
                    backend.target.remove(volume_id)
                    backend.volumes.unmanage(volume_id)
            except AgentError as error:
                self._check_disk(volume, error)
                raise
        self._node.count_volume(volume.backend, -1, -volume.size)
        LOG.info("[%s] volume unmanaged: volume=%s", volume.backend, volume_id)

    def _check_disk(self, volume: Volume, error: AgentError) -> None:
        """Check that a volume whose unmanage was refused has its disk.

        This attempt changed nothing, but one before it may have.

        :raises BackendFailed: it has none, so it cannot be available again.
        """
        if is_refusal(error):
            with self._backends[volume.backend].for_job() as backend:
                backend.volumes.disk(volume.id)

    def _require_manageable(
        self, ctx: RequestContext, new: ManageRequest
    ) -> Manageable:
        for disk in self.list(ctx, new.host):
            if disk.reference == new.reference:
                check_safe(disk, "volume")
                return disk
        raise Invalid(
            f"volume.ref.source-name: host {new.host} has no disk {new.reference!r};"
            " give one that GET /manageable_volumes lists."
        )

    def _new_row(
        self,
        ctx: RequestContext,
        new: ManageRequest,
        volume_type: VolumeType | None,
        disk: Manageable,
    ) -> Volume:
        return Volume(
            id=str(uuid.uuid4()),
            size=disk.gib,
            own_status=VolumeStatus.MANAGING,
            backend=self._pools.backend_of(new.host),
            project_id=ctx.project_id,
            user_id=ctx.user_id,
            name=new.name,
            description=new.description,
            availability_zone=self._pools.zone,
            multiattach=volume_type.multiattach if volume_type else False,
            bootable=new.bootable,
            volume_type_id=volume_type.id if volume_type else None,
            metadata=new.metadata,
            created_at=now(),
            updated_at=now(),
            intent={"reference": disk.reference},
        )


def _wrong_status(volume: Volume) -> Invalid | None:
    if volume.own_status not in (VolumeStatus.AVAILABLE, VolumeStatus.ERROR_UNMANAGING):
        return wrong_status(volume, "unmanaged", "available")
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments and cannot be unmanaged; delete those first"
        )
    if volume.stale_backend:
        return Invalid(
            f"Invalid volume: volume {volume.id} still has a disk on backend"
            f" {volume.stale_backend} from its last migration; try again when that is"
            " deleted"
        )
    return None
