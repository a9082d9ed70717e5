# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Let a volume grow, and show its hosts the new size."""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import status_changes
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Exhausted, Invalid
from lunshare.agent.records import RequestContext, Volume
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.job_runner import JobRunner
from lunshare.agent.service.node import Node
from lunshare.agent.service.scheduling.pools import Pools
from lunshare.agent.service.volumes.rows import (
    VolumeRows,
    changed_meanwhile,
    is_refusal,
    require,
    wrong_status,
)
from lunshare.agent.states import VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.values import GIB
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)


class VolumeExtender:
    """Extends of volumes, also of those that hosts have."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        access: Access,
        node: Node,
        jobs: JobRunner,
        pools: Pools,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._access, self._node, self._jobs = access, node, jobs
        self._pools, self._rows = pools, VolumeRows(db)

    def extend(
        self, ctx: RequestContext, volume_id: str, size: int, in_use: bool
    ) -> int:
        """Let it grow to ``size`` GiB; the number of hosts that have it.

        They see the new size when they look again. ``in_use``: also while hosts
        have it. Waits a little, as the creation of a volume does.

        :raises NotFound: the volume.
        :raises Invalid: the size, its status, or its driver cannot.
        :raises Exhausted: its pool has no room; it is as it was.
        :raises BackendFailed: whether it has grown is not known; the volume is
            error_extending, and both a repeat and the next reconcile retry.
        """
        volume = self._rows.get(volume_id)
        open_too = self._backends[volume.backend].driver.extends_open
        _check(volume, size)
        _check_hosts(volume, in_use, open_too)
        self._check_room(ctx, volume, size)
        with self._db.writing() as connection:
            now = require(connection, volume_id)
            if not status_changes.same(volume, now) or not status_changes.move(
                connection,
                volume,
                VolumeStatus.EXTENDING,
                unattached=not open_too,
                intent={"size": size},
            ):
                raise changed_meanwhile(volume_id)
        self._jobs.run_and_wait(self.finish_extend, volume_id, volume.backend)
        return len(volume.attachments)

    def finish_extend(self, volume_id: str) -> None:
        """Finish an extend. Repeat-safe; does nothing to a volume past it."""
        with self._locks.volume(volume_id, "its extension"):
            volume = self._rows.get_to_resume(
                volume_id, VolumeStatus.EXTENDING, VolumeStatus.ERROR_EXTENDING
            )
            if volume is None:
                return
            size = (volume.intent or {})["size"]
            try:
                with self._backends[volume.backend].for_job() as backend:
                    backend.volumes.extend(DriverVolume(volume_id, size * GIB))
                if volume.attachments:
                    self._access.settle_all(volume)
            except Exception as error:
                self._failed(volume, error)
                raise
            self._rows.change_status(
                volume, VolumeStatus.AVAILABLE, size=size, intent=None
            )
        self._node.count_volume(volume.backend, 0, size - volume.size)
        LOG.info("[%s] EXTENDED volume=%s size=%s", volume.backend, volume_id, size)

    def _failed(self, volume: Volume, error: Exception) -> None:
        if is_refusal(error):
            self._rows.change_status(
                volume, VolumeStatus.AVAILABLE, str(error), intent=None
            )
        else:
            self._rows.change_status(volume, VolumeStatus.ERROR_EXTENDING, str(error))

    def _check_room(self, ctx: RequestContext, volume: Volume, size: int) -> None:
        more = size - volume.size
        room = self._pools.free_space(ctx, volume.backend)
        if more > room:
            raise Exhausted(
                f"new_size {size} GiB is {more} GiB more, and backend {volume.backend}"
                f" has room for {room:.0f}: ask for less or free some"
            )


def _check(volume: Volume, size: int) -> None:
    failed = volume.own_status is VolumeStatus.ERROR_EXTENDING
    least = (volume.intent or {})["size"] if failed else volume.size + 1
    if size < least:
        known = f"may be {least} GiB already" if failed else f"has {volume.size} GiB"
        raise Invalid(
            f"os-extend.new_size: volume {volume.id} {known}; give {least} or more."
        )
    if not failed and volume.status not in (
        VolumeStatus.AVAILABLE,
        VolumeStatus.IN_USE,
    ):
        raise wrong_status(volume, "extended", "available or in-use")


def _check_hosts(volume: Volume, in_use: bool, open_too: bool) -> None:
    if volume.status is VolumeStatus.IN_USE and not in_use:
        raise Invalid(
            f"Invalid volume: volume {volume.id} is in-use; to extend it, use"
            " microversion 3.42 or later, or delete its attachments"
        )
    if volume.attachments and not open_too:
        raise Invalid(
            f"Invalid volume: volume {volume.id} has {len(volume.attachments)}"
            " attachments, and its backend extends no volume that a host may have;"
            " delete those first"
        )
