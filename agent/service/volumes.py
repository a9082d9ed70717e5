# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Create, show, rename and delete volumes: intent row, effect, closing row."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, TimeoutError
from typing import Any

from oslo_log import log

from agent.backends import Backends
from agent.db import volumes
from agent.db.engine import Database, now
from agent.errors import AgentError, Busy, Invalid, NotFound
from agent.locks import Locks
from agent.records import Context, NewVolume, Page, Volume, VolumeType
from agent.service.access import driver_volume
from agent.service.node import Node
from agent.service.scheduler import Scheduler
from agent.service.types import Types
from agent.states import VolumeStatus

LOG = log.getLogger(__name__)

_DELETABLE = frozenset(
    {VolumeStatus.AVAILABLE, VolumeStatus.ERROR, VolumeStatus.ERROR_DELETING}
)


class Volumes:
    """The volumes of this node."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: Locks,
        *,
        types: Types,
        node: Node,
        scheduler: Scheduler,
        workers: Executor,
        zone: str,
        create_wait: float,
    ) -> None:
        """``workers`` make and remove disks; ``create_wait`` is in seconds."""
        self._db, self._backends, self._locks = db, backends, locks
        self._types, self._node, self._workers = types, node, workers
        self._zone, self._create_wait = zone, create_wait
        self._scheduler = scheduler
        self._mutex = threading.Lock()
        self._jobs: dict[tuple[str, str], Future[None]] = {}

    def get(self, ctx: Context, volume_id: str) -> Volume:
        """One volume with its attachments.

        :raises NotFound: there is none, or not any more.
        """
        with self._db.reading() as connection:
            volume = volumes.get(connection, volume_id)
        if volume is None:
            raise NotFound("volume", volume_id)
        return volume

    def list(self, ctx: Context, page: Page, detail: bool = True) -> list[Volume]:
        """A page of volumes; attachments and metadata only with ``detail``."""
        with self._db.reading() as connection:
            return volumes.page(connection, page, detail)

    def count(self, ctx: Context, page: Page) -> int:
        """How many volumes the page's filters let through, on all pages."""
        with self._db.reading() as connection:
            return volumes.count(connection, page)

    def create(self, ctx: Context, new: NewVolume) -> Volume:
        """Choose a backend and make the disk there.

        Waits a little for the disk, so that a backend that is full or broken is
        an error here and leaves nothing; a slow one goes on by itself, and its
        failure shows as status error.

        :raises Invalid: the request, or no backend can do what it asks for.
        :raises NotFound: the volume type.
        :raises Exhausted: no backend has room.
        :raises BackendFailed: the disk could not be made; nothing is left.
        """
        kind = self._types.resolve(new.volume_type)
        zone = new.availability_zone
        pool = self._scheduler.place(ctx, new.size, kind, zone)
        volume = self._row(ctx, new, kind, pool.backend)
        with self._db.writing() as connection:
            self._types.unchanged(connection, kind)
            volumes.insert(connection, volume)
        self._node.promise(pool.backend, 1, volume.size)
        try:
            made = self._start(self.make, volume.id)
            made.result(timeout=self._create_wait)
        except TimeoutError:
            made.add_done_callback(_log_failure)
        except Exception:
            self._drop(volume)
            raise
        return self.get(ctx, volume.id)

    def resume(self, volume: Volume) -> Future[None]:
        """Go on with a creation or a removal, unless that is under way already."""
        creating = volume.own_status is VolumeStatus.CREATING
        return self._start(self.make if creating else self.unmake, volume.id)

    def _start(self, step: Callable[[str], None], volume_id: str) -> Future[None]:
        key = (step.__name__, volume_id)
        with self._mutex:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = self._workers.submit(step, volume_id)
                job.add_done_callback(lambda _: self._jobs.pop(key, None))
            return job

    def make(self, volume_id: str) -> None:
        """Finish a creation. Repeat-safe; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its creation"):
            volume = self._in(volume_id, VolumeStatus.CREATING)
            if volume is None:
                return
            try:
                with self._backends[volume.backend].working_alone() as backend:
                    backend.create(driver_volume(volume))
            except Exception as error:
                self._move(volume, VolumeStatus.ERROR, str(error))
                raise
            self._move(volume, VolumeStatus.AVAILABLE)
            LOG.info("[%s] CREATED volume=%s", volume.backend, volume_id)

    def update(
        self, ctx: Context, volume_id: str, changes: Mapping[str, Any]
    ) -> Volume:
        """Change name, description or metadata."""
        self.get(ctx, volume_id)
        with self._db.writing() as connection:
            volumes.update(connection, volume_id, changes)
        return self.get(ctx, volume_id)

    def delete(
        self,
        ctx: Context,
        volume_id: str,
        force: bool = False,
        cascade: bool = False,
    ) -> None:
        """Accept the removal of a volume that nobody has; the disk goes on its own.

        :raises Invalid: it has attachments, or its status does not allow it.
        """
        volume = self.get(ctx, volume_id)
        allowed = _DELETABLE | ({VolumeStatus.CREATING} if force else set())
        with self._db.writing() as connection:
            accepted = volumes.move(
                connection, volume_id, allowed, VolumeStatus.DELETING, unattached=True
            )
        if not accepted:
            raise _undeletable(volume)
        self._start(self.unmake, volume_id).add_done_callback(_log_failure)

    def unmake(self, volume_id: str) -> None:
        """Finish a removal. Repeat-safe; does nothing to a volume not deleting."""
        with self._locks.volume(volume_id, "its deletion"):
            volume = self._in(volume_id, VolumeStatus.DELETING)
            if volume is None:
                return
            try:
                with self._backends[volume.backend].working_alone() as backend:
                    backend.delete(volume_id)
            except Exception as error:
                self._move(volume, VolumeStatus.ERROR_DELETING, str(error))
                raise
            with self._db.writing() as connection:
                volumes.remove(connection, volume_id)
            self._node.promise(volume.backend, -1, -volume.size)
            LOG.info("[%s] DELETED volume=%s", volume.backend, volume_id)

    def _row(
        self, ctx: Context, new: NewVolume, kind: VolumeType | None, backend: str
    ) -> Volume:
        return Volume(
            id=str(uuid.uuid4()),
            size=new.size,
            own_status=VolumeStatus.CREATING,
            backend=backend,
            project_id=ctx.project_id,
            user_id=ctx.user_id,
            name=new.name,
            description=new.description,
            availability_zone=self._zone,
            multiattach=kind.multiattach if kind else False,
            volume_type_id=kind.id if kind else None,
            metadata=new.metadata,
            created_at=now(),
            updated_at=now(),
        )

    def _in(self, volume_id: str, status: VolumeStatus) -> Volume | None:
        with self._db.reading() as connection:
            volume = volumes.get(connection, volume_id)
        return volume if volume and volume.own_status is status else None

    def _move(
        self, volume: Volume, new: VolumeStatus, reason: str | None = None
    ) -> None:
        with self._db.writing() as connection:
            volumes.move(connection, volume.id, {volume.own_status}, new, reason=reason)

    def _drop(self, volume: Volume) -> None:
        """Forget a creation that failed; what the driver left goes with it."""
        with self._db.writing() as connection:
            volumes.move(
                connection, volume.id, {VolumeStatus.ERROR}, VolumeStatus.DELETING
            )
        try:
            self.unmake(volume.id)
        except Exception as error:
            LOG.error("[%s] DROP volume=%s: %s", volume.backend, volume.id, error)
            # Nobody was told its id: the next reconcile tries again.
            with self._db.writing() as connection:
                volumes.move(
                    connection,
                    volume.id,
                    {VolumeStatus.ERROR_DELETING},
                    VolumeStatus.DELETING,
                )


def _undeletable(volume: Volume) -> AgentError:
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments and cannot be deleted; delete those first"
        )
    if volume.own_status in _DELETABLE:
        return Busy(f"volume {volume.id} has just changed: try again")
    return Invalid(
        f"Invalid volume: volume {volume.id} is {volume.status} and cannot be"
        f" deleted; it must be one of {', '.join(sorted(_DELETABLE))}"
    )


def _log_failure(job: Future[None]) -> None:
    error = job.exception()
    if isinstance(error, AgentError):
        LOG.error("JOB failed: %s", error)
    elif error is not None:
        LOG.error("JOB failed unexpectedly", exc_info=error)
