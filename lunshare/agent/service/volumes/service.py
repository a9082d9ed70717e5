# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Create, show, rename and delete volumes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from lunshare.agent.db import attachments, status_changes, totals, volumes
from lunshare.agent.db.sqlite.engine import Database, now
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.project_records import VolumeSummary
from lunshare.agent.model.records import (
    NamedVolume,
    NewVolume,
    Page,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import VolumeStatus
from lunshare.agent.service.attachments.legacy_choice import is_unopened
from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner
from lunshare.agent.service.messages import Messages
from lunshare.agent.service.node import Node
from lunshare.agent.service.quotas import Quotas
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.scheduling.scheduler import Scheduler
from lunshare.agent.service.sharing import SharingRules
from lunshare.agent.service.types.types import Types
from lunshare.agent.service.volumes.create import VolumeDisks
from lunshare.agent.service.volumes.create_plan import CreatePlan, CreatePlanner
from lunshare.agent.service.volumes.delete_rules import (
    DELETABLE,
    delete_error,
    may_be_forced,
    remove_unplaced,
    start_snapshot_deletes,
)
from lunshare.agent.service.volumes.metadata import (
    check_not_in_maintenance,
    check_writers,
)
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    check_has_project,
    wrong_status,
)


class Volumes:
    """The volumes of this node."""

    def __init__(
        self,
        db: Database,
        *,
        volume_disks: VolumeDisks,
        types: Types,
        node: Node,
        jobs: JobRunner,
        pools: Pools,
        scheduler: Scheduler,
        quotas: Quotas,
        sharing: SharingRules,
        messages: Messages,
    ) -> None:
        self._db, self._rows = db, VolumeRows(db)
        self._volume_disks, self._jobs = volume_disks, jobs
        self._types, self._node, self._pools = types, node, pools
        self._quotas, self._sharing, self._messages = quotas, sharing, messages
        self._planner = CreatePlanner(db, types, scheduler)

    def get(self, ctx: RequestContext, volume_id: str) -> Volume:
        """Return one volume with its attachments.

        :raises NotFound: the volume does not exist, or is deleted.
        """
        return self._rows.get(volume_id, ctx)

    def list(self, ctx: RequestContext, page: Page) -> PageRows[Volume]:
        """Return a page of volumes with their attachments.

        :raises NotFound: the marker of the page does not exist.
        """
        with self._db.reading() as connection:
            return volumes.page(connection, page)

    def names(self, ctx: RequestContext, page: Page) -> PageRows[NamedVolume]:
        """Return a page of volumes without detail.

        :raises NotFound: the marker of the page does not exist.
        """
        with self._db.reading() as connection:
            return volumes.names(connection, page)

    def count(self, ctx: RequestContext, page: Page) -> int:
        """Count the volumes that match the page's filters, on all pages."""
        with self._db.reading() as connection:
            return volumes.count(connection, page)

    def summary(
        self, ctx: RequestContext, every_project: bool, metadata: bool
    ) -> VolumeSummary:
        """Return how many volumes there are, their GiB, and their ``metadata``."""
        with self._db.reading() as connection:
            project = None if every_project else ctx.project_id
            return totals.summary(connection, project, metadata)

    def create(self, ctx: RequestContext, new: NewVolume) -> Volume:
        """Choose a backend and create the disk there.

        Where no pool can hold it, the volume is in error from the start: it has no
        backend and no disk, and a user message has the reason of each pool.
        Otherwise waits a little for the disk, so that the error of a backend that is
        full or broken is raised here, and nothing is left. Slow work continues
        without the request; if it fails, the status is error.

        :raises Invalid: the request.
        :raises NotFound: the volume type, or the source.
        :raises Forbidden: several hosts could use it, and the policy.
        :raises Busy: the source or the type has just changed.
        :raises Exhausted: a quota of the project, or the chosen backend has no space.
        :raises BackendFailed: the disk could not be created; nothing is left.
        """
        check_has_project(ctx)
        self._pools.check_zone(new.availability_zone)
        plan = self._planner.plan(ctx, new)
        self._sharing.check_new(ctx, plan.multiattach)
        volume = self._new_row(ctx, new, plan)
        with self._db.writing() as connection:
            self._types.check_unchanged(connection, plan.volume_type)
            self._planner.lock_source(connection, ctx, new, plan)
            volumes.insert(connection, volume)
            self._quotas.check_new_volume(connection, volume)
            if plan.problem:
                self._messages.record_no_backend(
                    connection, ctx, volume.id, plan.problem
                )
        if volume.backend:
            self._create_disk(volume)
        return self.get(ctx, volume.id)

    def _create_disk(self, volume: Volume) -> None:
        self._node.count_volume(volume.backend, 1, volume.size)
        copies = bool(volume.snapshot_id or volume.source_volid)
        pool = JobPool.COPIES if copies else JobPool.DISKS
        try:
            self._jobs.run_and_wait(
                self._volume_disks.finish_create, volume.id, volume.backend, pool
            )
        except Exception:
            self._volume_disks.discard(volume)
            raise

    def update(
        self, ctx: RequestContext, volume_id: str, changes: Mapping[str, Any]
    ) -> Volume:
        """Change name, description or metadata.

        :raises NotFound: the volume.
        :raises Invalid: it is in maintenance, or its writers policy has no meaning.
        :raises Conflict: hosts may write that this policy would exclude.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            check_not_in_maintenance(volume)
            volumes.update(connection, volume_id, changes)
            if "metadata" in changes:
                check_writers(connection, volume, changes["metadata"] or {})
        return self.get(ctx, volume_id)

    def delete(
        self,
        ctx: RequestContext,
        volume_id: str,
        force: bool = False,
        cascade: bool = False,
    ) -> None:
        """Accept the deletion of a volume without attachments; a job does the work.

        With ``cascade`` its snapshots are deleted first. A disk whose manage failed
        is unmanaged. ``force`` also deletes a volume that is still creating.

        :raises NotFound: the volume.
        :raises Invalid: it has attachments or snapshots, or with ``cascade`` one of
            another project; a clone of it is not complete yet, its status does not
            allow it, or its backend is frozen.
        :raises Busy: it has just changed.
        """
        allowed = DELETABLE | ({VolumeStatus.CREATING} if force else set())
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            self._node.check_not_frozen(connection, volume.backend)
            if volume.own_status not in allowed:
                raise delete_error(connection, ctx, volume)
            if cascade:
                start_snapshot_deletes(connection, ctx, volume_id)
            if not status_changes.change_status(
                connection,
                volume,
                VolumeStatus.DELETING,
                unattached=True,
                unsnapped=not cascade,
                uncloned=True,
            ):
                raise delete_error(connection, ctx, volume)
            remove_unplaced(connection, volume)
        self._delete_disk(volume)

    def force_delete(self, ctx: RequestContext, volume_id: str) -> None:
        """Accept the deletion of a volume in any status that no operation works on.

        Reservations end with it. A creation that hangs is cancelled.

        :raises NotFound: the volume.
        :raises Invalid: a host has it, it has snapshots, is offered to another
            project, or an operation works on it.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            if not may_be_forced(volume):
                raise wrong_status(volume, "deleted by force", "in no operation")
            for row in attachments.of_volume(connection, volume_id):
                if is_unopened(row):
                    attachments.remove(connection, [row.id], {row.status})
            if not status_changes.change_status(
                connection,
                volume,
                VolumeStatus.DELETING,
                unattached=True,
                unsnapped=True,
                uncloned=True,
                forced=True,
            ):
                raise delete_error(
                    connection, ctx, volumes.require(connection, volume_id)
                )
            remove_unplaced(connection, volume)
        self._delete_disk(volume)

    def _delete_disk(self, volume: Volume) -> None:
        if volume.backend:
            self._jobs.run_later(
                self._volume_disks.finish_delete, volume.id, volume.backend
            )

    def _new_row(self, ctx: RequestContext, new: NewVolume, plan: CreatePlan) -> Volume:
        return Volume(
            id=str(uuid.uuid4()),
            size=plan.size,
            own_status=VolumeStatus.CREATING if plan.backend else VolumeStatus.ERROR,
            status_reason=plan.problem,
            backend=plan.backend,
            project_id=ctx.project_id,
            user_id=ctx.user_id,
            name=new.name,
            description=new.description,
            availability_zone=self._pools.zone,
            multiattach=plan.multiattach,
            bootable=plan.image.bootable if plan.image else False,
            image_metadata=plan.image.image_metadata if plan.image else {},
            volume_type_id=plan.type_id,
            metadata=new.metadata,
            created_at=now(),
            updated_at=now(),
            snapshot_id=new.snapshot_id,
            source_volid=new.source_volid,
            intent=plan.intent if plan.backend else None,
        )
