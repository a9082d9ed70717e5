# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Take over a disk that somebody else made, and give one of ours away."""

from __future__ import annotations

import uuid

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import status_changes, volumes
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import Invalid
from lunshare.agent.records import Context, ForeignDisk, NewManaged, Volume, VolumeType
from lunshare.agent.service.attachments.access import driver_volume
from lunshare.agent.service.job_runner import Jobs
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling.pools import Places
from lunshare.agent.service.types import Types
from lunshare.agent.service.volumes.create import Making
from lunshare.agent.service.volumes.rows import (
    Rows,
    changed,
    found,
    needed,
    refused,
    unfit,
)
from lunshare.agent.states import VolumeStatus
from lunshare.agent.volume_locks import Locks
from lunshare.drivers.values import GIB

LOG = log.getLogger(__name__)


class Handing:
    """Disks that come to be ours, or cease to."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: Locks,
        *,
        making: Making,
        types: Types,
        node: Node,
        jobs: Jobs,
        places: Places,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._making, self._types, self._node = making, types, node
        self._jobs, self._places, self._rows = jobs, places, Rows(db)

    def list(self, ctx: Context, host: str) -> list[ForeignDisk]:
        """The disks of a backend that are not ours, but could be.

        :raises NotFound: the host.
        :raises Invalid: its driver takes none over.
        """
        with self._backends[self._places.backend(host)].working() as backend:
            there = backend.volumes.manageable()
        return [ForeignDisk(d.reference, -(-d.size // GIB), d.why_not) for d in there]

    def manage(self, ctx: Context, new: NewManaged) -> Volume:
        """Make somebody's disk a volume of ours; it keeps its bytes.

        A disk that is not of whole GiB grows to the next. Waits a little, as the
        creation of a volume does.

        :raises NotFound: the host, or the volume type.
        :raises Invalid: there is no such disk, it cannot be taken over, or its
            backend has not what the type asks for.
        :raises BackendFailed: it could not be taken; it is its owner's still.
        """
        self._places.check_zone(new.availability_zone)
        kind = self._types.resolve(new.volume_type)
        volume = self._row(ctx, new, kind, self._offered(ctx, new))
        why = self._places.lacks(ctx, volume.backend, kind)
        if why is not None:
            raise Invalid(f"volume.volume_type: host {new.host}: {why}.")
        with self._db.writing() as connection:
            self._types.unchanged(connection, kind)
            volumes.insert(connection, volume)
        self._node.promise(volume.backend, 1, volume.size)
        try:
            self._jobs.attempt(self.take, volume.id, volume.backend)
        except Exception:
            self._making.drop(volume)
            raise
        return self._rows.get(volume.id)

    def take(self, volume_id: str) -> None:
        """Finish a taking over. Repeat-safe; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its taking over"):
            volume = self._rows.when(volume_id, {VolumeStatus.MANAGING})
            if volume is None:
                return
            reference, wanted = (
                (volume.intent or {})["reference"],
                driver_volume(volume),
            )
            try:
                with self._backends[volume.backend].working_alone() as backend:
                    disk = backend.volumes.manage(wanted, reference)
                    if disk.size < wanted.size:
                        backend.volumes.extend(wanted)
            except Exception as error:
                self._rows.move(volume, VolumeStatus.ERROR_MANAGING, str(error))
                raise
            self._rows.move(volume, VolumeStatus.AVAILABLE, intent=None)
        LOG.info("[%s] TAKEN volume=%s was=%s", volume.backend, volume_id, reference)

    def unmanage(self, ctx: Context, volume_id: str) -> None:
        """Give the disk away, with its bytes, and forget the volume.

        Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: it has attachments or snapshots, a clone of it is not
            whole yet, its status does not allow it, or its driver cannot.
        :raises BackendFailed: it is error_unmanaging; reconcile tries again, and to
            ask again, or to reset it to available, is allowed.
        """
        with self._db.writing() as connection:
            volume = found(connection, volume_id)
            if (unfit := _unfit(volume)) is not None:
                raise unfit
            if not status_changes.move(
                connection,
                volume,
                VolumeStatus.UNMANAGING,
                unattached=True,
                unsnapped=True,
                uncloned=True,
            ):
                raise needed(connection, volume) or changed(volume_id)
        self._jobs.attempt(self.release, volume_id, volume.backend)

    def release(self, volume_id: str) -> None:
        """Finish a giving away. Repeat-safe; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its giving away"):
            volume = self._rows.under_way(
                volume_id, VolumeStatus.UNMANAGING, VolumeStatus.ERROR_UNMANAGING
            )
            if volume is None:
                return
            try:
                with self._backends[volume.backend].working_alone() as backend:
                    backend.target.remove(volume_id)
                    backend.volumes.unmanage(volume_id)
            except Exception as error:
                back = VolumeStatus.AVAILABLE
                failed = VolumeStatus.ERROR_UNMANAGING
                self._rows.move(volume, back if refused(error) else failed, str(error))
                raise
            self._rows.remove(volume_id)
            self._node.promise(volume.backend, -1, -volume.size)
        LOG.info("[%s] GIVEN volume=%s", volume.backend, volume_id)

    def _offered(self, ctx: Context, new: NewManaged) -> ForeignDisk:
        for disk in self.list(ctx, new.host):
            if disk.reference == new.reference:
                if disk.why_not:
                    raise Invalid(
                        f"volume.ref.source-name: {new.reference!r} cannot become a"
                        f" volume: {disk.why_not}."
                    )
                return disk
        raise Invalid(
            f"volume.ref.source-name: host {new.host} has no disk {new.reference!r};"
            " give one that GET /manageable_volumes lists."
        )

    def _row(
        self, ctx: Context, new: NewManaged, kind: VolumeType | None, disk: ForeignDisk
    ) -> Volume:
        return Volume(
            id=str(uuid.uuid4()),
            size=disk.size,
            own_status=VolumeStatus.MANAGING,
            backend=self._places.backend(new.host),
            project_id=ctx.project_id,
            user_id=ctx.user_id,
            name=new.name,
            description=new.description,
            availability_zone=self._places.zone,
            multiattach=kind.multiattach if kind else False,
            bootable=new.bootable,
            volume_type_id=kind.id if kind else None,
            metadata=new.metadata,
            created_at=now(),
            updated_at=now(),
            intent={"reference": disk.reference},
        )


def _unfit(volume: Volume) -> Invalid | None:
    if volume.own_status not in (VolumeStatus.AVAILABLE, VolumeStatus.ERROR_UNMANAGING):
        return unfit(volume, "given away", "available")
    if volume.attachments:
        return Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments and cannot be given away; delete those first"
        )
    if volume.leaving:
        return Invalid(
            f"Invalid volume: volume {volume.id} still has a disk on backend"
            f" {volume.leaving} from its last move; try again when that is deleted"
        )
    return None
