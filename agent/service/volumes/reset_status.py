# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Reset the status of a volume, or force a detach, after an error.

The request alone is not trusted: the disk and the live target are read first.
"""

from __future__ import annotations

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments
from lunshare.agent.db.engine import Database
from lunshare.agent.errors import Conflict, Invalid, NotFound
from lunshare.agent.records import Attachment, RequestContext, Volume
from lunshare.agent.service.node import Node
from lunshare.agent.service.volumes.rows import VolumeRows, changed_meanwhile
from lunshare.agent.states import RESETTABLE, AttachStatus, VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import GIB

LOG = log.getLogger(__name__)


class StatusResetter:
    """Ends errors that no retry has ended."""

    def __init__(
        self, db: Database, backends: Backends, locks: VolumeLocks, node: Node
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._node, self._rows = node, VolumeRows(db)

    def reset(self, ctx: RequestContext, volume_id: str) -> None:
        """Make a volume in an error available again, with the size of its disk.

        :raises NotFound: the volume.
        :raises Invalid: its status cannot be reset.
        :raises Conflict: its backend has no complete disk of it.
        """
        with self._locks.volume(volume_id, "the reset of its status"):
            volume = self._rows.get(volume_id, ctx)
            _check_status(volume)
            size = self._disk_size(volume)
            available = VolumeStatus.AVAILABLE
            if not self._rows.change_status(volume, available, size=size, intent=None):
                raise changed_meanwhile(volume_id)
        self._node.count_volume(volume.backend, 0, size - volume.size)
        LOG.warning(
            "[%s] status reset: volume=%s size=%s", volume.backend, volume_id, size
        )

    def force_detach(
        self, ctx: RequestContext, volume_id: str, attachment_id: str
    ) -> None:
        """Delete an attachment whose detach fails, if its access is closed.

        :raises NotFound: the volume has no such attachment.
        :raises Invalid: its detach has not failed.
        :raises Conflict: the live target still has its access.
        :raises BackendUnavailable: the target cannot be read.
        """
        with self._locks.volume(volume_id, f"the forced detach of {attachment_id}"):
            self._rows.get(volume_id, ctx)
            with self._db.reading() as connection:
                row = attachments.get(connection, attachment_id)
            if row is None or row.volume_id != volume_id:
                raise NotFound("attachment", attachment_id)
            if row.status is not AttachStatus.ERROR_DETACHING:
                raise Invalid(
                    f"os-force_detach.attachment_id: attachment {row.id} is"
                    f" {row.status}; only error_detaching can be forced: delete it."
                )
            self._check_closed(row)
            with self._db.writing() as connection:
                attachments.remove(connection, row.id, {row.status})
        LOG.warning(
            "[%s] attachment detached by force: attachment=%s",
            row.attached_host,
            row.id,
        )

    def _disk_size(self, volume: Volume) -> int:
        """Return the size of the disk in GiB."""
        with self._backends[volume.backend].for_request() as backend:
            try:
                size = backend.volumes.disk(volume.id).size // GIB
            except UnknownDisk:
                size = 0
        if size < volume.size:
            raise Conflict(
                f"volume {volume.id} has no disk of {volume.size} GiB on backend"
                f" {volume.backend}: delete it, or unmanage it again"
            )
        return size

    def _check_closed(self, row: Attachment) -> None:
        volume = self._rows.get(row.volume_id)
        with self._backends[volume.backend].for_request() as backend:
            live = backend.target.observe_volume(volume.id)
        open_to = {each.initiator for each in live.connectors} if live else set()
        for initiator in {row.initiator, row.leaving} & open_to:
            raise Conflict(
                f"attachment {row.id}: the target still has an access of {initiator}:"
                " nothing was deleted; end it there, or restart the node"
            )


def _check_status(volume: Volume) -> None:
    reverter = "snapshot_id" in (volume.intent or {})
    failed = volume.own_status in RESETTABLE
    if not failed or (volume.own_status is VolumeStatus.ERROR and not reverter):
        raise Invalid(
            f"os-reset_status.status: volume {volume.id} is {volume.status}; only"
            f" {', '.join(sorted(RESETTABLE))} can be reset, error only after a revert."
        )
