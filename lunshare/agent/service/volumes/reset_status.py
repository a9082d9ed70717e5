# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Set the status of a volume, or force a detach, as an administrator wants it.

The request alone is not trusted: the disk and the live target are read first, and at
the end the target has what the rows ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments, status_changes, transfers, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict, Invalid
from lunshare.agent.model.records import (
    Attachment,
    NewAttachment,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import (
    RESETTABLE,
    RUNNING,
    SETTABLE,
    AttachStatus,
    VolumeStatus,
)
from lunshare.agent.service.attachments import legacy, legacy_choice
from lunshare.agent.service.attachments.access import Access
from lunshare.agent.service.attachments.legacy_choice import is_unopened
from lunshare.agent.service.attachments.service import Attachments
from lunshare.agent.service.instance_gate import InstanceGate
from lunshare.agent.service.node import Node
from lunshare.agent.service.volumes.rows import VolumeRows, changed_meanwhile
from lunshare.agent.volume_locks import VolumeLocks
from lunshare.drivers.errors import UnknownDisk
from lunshare.drivers.values import GIB

LOG = log.getLogger(__name__)

_AVAILABLE = VolumeStatus.AVAILABLE
_RESERVATIONS = {
    VolumeStatus.RESERVED: None,
    VolumeStatus.ATTACHING: legacy.RESERVE,
}
_NEEDS_HOST = frozenset({VolumeStatus.IN_USE, VolumeStatus.DETACHING})
_ALLOWED = SETTABLE | _NEEDS_HOST | set(_RESERVATIONS) | {_AVAILABLE}


@dataclass(frozen=True, slots=True)
class Reset:
    """What os-reset_status asks for; None leaves that part as it is.

    ``migration_status`` "none" means that there was no migration.
    """

    status: str | None = None
    attach_status: str | None = None
    migration_status: str | None = None


class StatusResetter:
    """Ends errors that no retry has ended."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        locks: VolumeLocks,
        *,
        node: Node,
        access: Access,
        rows: Attachments,
        gate: InstanceGate,
    ) -> None:
        self._db, self._backends, self._locks = db, backends, locks
        self._node, self._access = node, access
        self._attachments, self._rows, self._gate = rows, VolumeRows(db), gate

    def reset(self, ctx: RequestContext, volume_id: str, asked: Reset) -> None:
        """Set the status of a volume, and bring its target in line with its rows.

        ``attach_status`` detached deletes every attachment, with its access. A volume
        in an error becomes available with the size of its disk.

        :raises NotFound: the volume.
        :raises Invalid: a value, or one that contradicts attachments or the error.
        :raises Conflict: an operation works on it, or its backend has no complete
            disk of it.
        :raises BackendFailed: its backend does not answer, or an access may still be
            open; repeat it.
        """
        refusal = self._attachments.refusal_of_second(ctx)
        with self._locks.volume(volume_id, "the reset of its status"):
            volume = self._rows.get(volume_id, ctx)
            status = _check(volume, asked)
            with self._db.reading() as connection:
                hosts = attachments.of_volume(connection, volume_id)
            for row in _to_delete(hosts, asked, status):
                self._access.delete(row.id)
            if status is not None:
                self._set(ctx, self._rows.get(volume_id, ctx), status, refusal)
            if asked.migration_status:
                text = asked.migration_status
                self._rows.update(
                    volume_id, migration_status=None if text == "none" else text
                )
            if hosts:
                self._access.apply(self._rows.get(volume_id))
        LOG.warning(
            "[%s] status reset: volume=%s to=%s", volume.backend, volume_id, asked
        )

    def force_detach(
        self, ctx: RequestContext, volume_id: str, attachment_id: str | None
    ) -> None:
        """Delete an attachment whatever its status, if its access is closed.

        Without an id it is the only one of the volume.

        :raises NotFound: the volume, or it has no such attachment.
        :raises Invalid: it has several attachments, and no id is given.
        :raises Conflict: the live target still has its access, or a server of Nova
            uses it.
        :raises BackendUnavailable: the target cannot be read.
        """
        row = self._row_of(self._rows.get(volume_id, ctx), attachment_id)
        if row is None:
            return
        check = self._gate.check_detach(ctx, row)
        with self._locks.volume(volume_id, "a forced detach"):
            try:
                self._access.delete(row.id, check)
            except BackendFailed:
                self._check_closed(row.id)
                with self._db.writing() as connection:
                    failed = AttachStatus.ERROR_DETACHING
                    attachments.remove(connection, [row.id], {failed})
        LOG.warning(
            "[%s] attachment detached by force: attachment=%s",
            row.attached_host,
            row.id,
        )

    def _row_of(self, volume: Volume, attachment_id: str | None) -> Attachment | None:
        chosen = legacy_choice.to_detach(volume, attachment_id, "os-force_detach")
        if chosen is None:
            return None
        with self._db.reading() as connection:
            return attachments.get(connection, chosen)

    def _set(
        self,
        ctx: RequestContext,
        volume: Volume,
        wanted: VolumeStatus,
        refusal: AgentError | None,
    ) -> None:
        if wanted in SETTABLE:
            return self._set_status_only(volume, wanted)
        if volume.own_status is not _AVAILABLE:
            self._make_available(volume)
        with self._db.writing() as connection:
            current = volumes.require(connection, volume.id)
            if wanted in _RESERVATIONS and not current.attachments:
                new = NewAttachment(volume.id, legacy=_RESERVATIONS[wanted])
                row = self._attachments.reserve(connection, ctx, new, refusal)[1]
                attachments.set_values(connection, row.id, answered=True)
            elif wanted is VolumeStatus.DETACHING:
                attached = _attached(current)
                if not attached:
                    raise changed_meanwhile(volume.id)
                for row in attached:
                    attachments.set_values(connection, row.id, announced=True)
        return None

    def _set_status_only(self, volume: Volume, wanted: VolumeStatus) -> None:
        """Write a status that starts no operation, and store the former one."""
        former = _former(volume)
        with self._db.writing() as connection:
            transfers.remove_of_volume(connection, volume.id)
            self._change(
                connection,
                volume,
                wanted,
                reset_from=None if wanted is former else former,
                intent=volume.intent,
            )

    def _make_available(self, volume: Volume) -> None:
        size = volume.size
        values: dict[str, Any] = {}
        if _former(volume) is not _AVAILABLE:
            size = self._disk_size(volume)
            values = {"size": size, "intent": None}
        with self._db.writing() as connection:
            transfers.remove_of_volume(connection, volume.id)
            self._change(connection, volume, _AVAILABLE, **values)
        self._node.count_volume(volume.backend, 0, size - volume.size)

    def _change(
        self, connection: Connection, volume: Volume, new: VolumeStatus, **values: Any
    ) -> None:
        current = volumes.require(connection, volume.id)
        if not status_changes.is_unchanged(
            volume, current
        ) or not status_changes.change_status(
            connection, volume, new, forced=True, **values
        ):
            raise changed_meanwhile(volume.id)

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

    def _check_closed(self, attachment_id: str) -> None:
        # As it is under the lock: another host may have got it before.
        with self._db.reading() as connection:
            row = attachments.require(connection, attachment_id)
        volume = self._rows.get(row.volume_id)
        with self._backends[volume.backend].for_request() as backend:
            live = backend.target.observe_volume(volume.id)
        accesses = live.connectors if live else ()
        open_to = {access.initiator for access in accesses}
        for initiator in {row.initiator, row.former_initiator} & open_to:
            raise Conflict(
                f"attachment {row.id}: the target still has an access of {initiator}:"
                " nothing was deleted; end it there, or restart the node"
            )


def _former(volume: Volume) -> VolumeStatus:
    """Return the status to which the volume can go back."""
    if volume.own_status is VolumeStatus.AWAITING_TRANSFER:
        return _AVAILABLE
    return volume.reset_from or volume.own_status


def _attached(volume: Volume) -> list[Attachment]:
    return [r for r in volume.attachments if r.status is AttachStatus.ATTACHED]


def _to_delete(
    hosts: list[Attachment], asked: Reset, wanted: VolumeStatus | None
) -> list[Attachment]:
    """Return the attachments that the reset ends: all, or unused reservations.

    :raises Invalid: the volume is to be available and has hosts.
    """
    if asked.attach_status == "detached":
        return hosts
    if wanted is not _AVAILABLE:
        return []
    used = [row for row in hosts if not is_unopened(row)]
    if used:
        raise Invalid(
            f"os-reset_status.status: the volume has {len(used)} attachments; detach"
            " them, or give attach_status detached as well."
        )
    return hosts


def _check(volume: Volume, asked: Reset) -> VolumeStatus | None:
    """Return the status that is asked for.

    :raises Invalid: it is unknown, or contradicts the volume's hosts or its error.
    :raises Conflict: an operation works on the volume.
    """
    if volume.own_status in RUNNING and volume.reset_from is None:
        raise Conflict(
            f"volume {volume.id} is {volume.status}: wait until that operation ends, or"
            " delete the volume"
        )
    hosts = [] if asked.attach_status == "detached" else _attached(volume)
    if asked.attach_status == "attached" and not hosts:
        raise Invalid("os-reset_status.attach_status: no host is attached.")
    if asked.status is None:
        if not asked.attach_status and not asked.migration_status:
            raise Invalid("os-reset_status.status: give a status.")
        return None
    if asked.status not in {str(status) for status in _ALLOWED}:
        raise Invalid(
            f"os-reset_status.status: give one of {', '.join(sorted(_ALLOWED))}."
        )
    new = VolumeStatus(asked.status)
    if new in _NEEDS_HOST and not hosts:
        raise Invalid(f"os-reset_status.status: {new}, and no host is attached.")
    if new not in SETTABLE:
        _check_error(volume)
    return new


def _check_error(volume: Volume) -> None:
    """Check that the volume can be available.

    :raises Invalid: its disk may be incomplete.
    """
    former = _former(volume)
    reverter = "snapshot_id" in (volume.intent or {})
    failed = former in RESETTABLE and (former is not VolumeStatus.ERROR or reverter)
    if former is not _AVAILABLE and not failed:
        raise Invalid(
            f"os-reset_status.status: volume {volume.id} is {former}; only"
            f" {', '.join(sorted(RESETTABLE))} can be reset, error only after a revert."
        )
