# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Bring the live target in line with the rows: the one way access changes.

Attach, detach and restart all end in ``settle`` or ``settle_all``. The caller
holds the volume's lock and has committed what it wants before it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import BackendFailed, NotFound
from lunshare.agent.records import Attachment, Snapshot, Volume
from lunshare.agent.service.attachments import target_support, wanted_state
from lunshare.agent.states import WANTED, AttachStatus
from lunshare.drivers.values import GIB, Connector, Mode
from lunshare.drivers.values import Snapshot as DriverSnapshot
from lunshare.drivers.values import Volume as DriverVolume

LOG = log.getLogger(__name__)

_SECRETS = ("auth_username", "auth_password")
_MIXED = "mixed"
_MOST = 1024  # characters of a reason
_ENDED = frozenset({AttachStatus.RESERVED, AttachStatus.ERROR_ATTACHING})
_RELEASABLE = frozenset(AttachStatus) - {AttachStatus.RESERVED, AttachStatus.DETACHED}


class Access:
    """The rows of a volume, made live."""

    def __init__(self, db: Database, backends: Backends) -> None:
        self._db, self._backends = db, backends

    def settle(self, volume: Volume, initiator: str) -> dict[str, Any] | None:
        """Make one initiator's access what its rows ask for.

        Returns connection_info when it is open, None when it is closed. The
        last access of a volume takes its export away. Repeat-safe.

        :raises BackendFailed: access is at most what the rows ask for.
        :raises BackendUnavailable: not known; what closes is closed to new I/O.
        """
        with self._db.reading() as connection:
            rows = attachments.of_initiator(connection, volume.id, initiator)
            wanted = wanted_state.connector(rows)
            exported = wanted or attachments.any_wanted(connection, volume.id)
        with self._backends[volume.backend].for_request() as backend:
            if wanted is not None:
                info = backend.initialize_connection(driver_volume(volume), wanted)
                modes = {row.mode for row in rows if row.status in WANTED}
                return {**info, "access_mode": wanted.mode, _MIXED: len(modes) > 1}
            if exported:
                closing = Connector(initiator, Mode.RO)
                backend.terminate_connection(driver_volume(volume), closing)
            else:
                backend.apply(driver_volume(volume), ())
        return None

    def settle_all(self, volume: Volume) -> tuple[str, ...]:
        """Make the whole export what the volume's rows ask for; say what changed.

        Raises as ``settle`` does.
        """
        with self._db.reading() as connection:
            rows = attachments.of_volume(connection, volume.id)
        wanted = wanted_state.connectors(rows)
        with self._backends[volume.backend].for_request() as backend:
            return backend.apply(driver_volume(volume), wanted)

    def need(
        self, volume: Volume, mode: str | None, leaving: str | None = None
    ) -> None:
        """Refuse what the target of its backend cannot do.

        :raises Conflict: it does not enforce the mode, or cannot end the access of
            the initiator that is ``leaving``.
        """
        backend = self._backends[volume.backend]
        target_support.need_mode(backend, mode)
        if leaving is not None:
            target_support.need_fence(backend, leaving)

    def open(self, volume: Volume, row: Attachment) -> Attachment:
        """Open an attachment whose intent is committed; note what the host is told.

        When it raises, the access is closed again, or the row says that it
        may be open.
        """
        try:
            info = self.settle(volume, str(row.initiator)) or {}
            told: dict[str, Any] = {
                "connection_info": _told(row, info),
                "attach_time": now(),
            }
            with self._db.writing() as connection:
                attachments.note(connection, row.id, **told)
        except Exception as error:
            self._give_up(row, error)
            raise
        LOG.info(
            "[%s] CONNECTED attachment=%s volume=%s initiator=%s mode=%s",
            row.attached_host,
            row.id,
            row.volume_id,
            row.initiator,
            row.mode,
        )
        return replace(row, **told)

    def replace(self, volume: Volume, row: Attachment) -> None:
        """Close the initiator whose place the row's new connector has taken."""
        try:
            if row.leaving is not None:
                self.settle(volume, row.leaving)
            self.note_left(row)
        except Exception as error:
            self._give_up(row, error)
            raise

    def note_left(self, row: Attachment) -> None:
        """The initiator that the row had before is closed."""
        with self._db.writing() as connection:
            attachments.note(connection, row.id, leaving=None)

    def release(self, row: Attachment) -> None:
        """Close the access and forget the row. Repeat-safe.

        :raises BackendFailed: it may still be open; the row says error_detaching.
        """
        if not _initiators(row) and row.status in _ENDED:
            return self._forget(row, _ENDED)
        with self._db.writing() as connection:
            attachments.move(connection, row.id, _RELEASABLE, AttachStatus.DETACHING)
            volume = _volume(connection, row)
        try:
            for initiator in _initiators(row):
                self.settle(volume, initiator)
        except Exception as error:
            old, new = AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING
            self._failed(row, old, new, str(error))
            if isinstance(error, BackendFailed):
                raise _still_open(row, error) from error
            raise
        if not self._backends[volume.backend].driver.target.abilities.fences:
            LOG.warning(
                "[%s] UNFENCED attachment=%s volume=%s: its target ends no session, so"
                " the host may still have the volume open",
                row.attached_host,
                row.id,
                row.volume_id,
            )
        return self._forget(row, frozenset({AttachStatus.DETACHING}))

    def abandon(self, row: Attachment) -> None:
        """Want the row gone; the next reconcile closes its access and forgets it."""
        with self._db.writing() as connection:
            attachments.move(connection, row.id, _RELEASABLE, AttachStatus.DETACHING)

    def clean(self, row: Attachment) -> None:
        """Close what a failed attach may have left open. Repeat-safe."""
        if not _initiators(row):
            return
        with self._db.reading() as connection:
            volume = _volume(connection, row)
        for initiator in _initiators(row):
            self.settle(volume, initiator)
        with self._db.writing() as connection:
            attachments.note(connection, row.id, initiator=None, leaving=None)

    def _give_up(self, row: Attachment, why: Exception) -> None:
        """A row that failed to open is not wanted any more; close it at once."""
        old, new = AttachStatus.ATTACHING, AttachStatus.ERROR_ATTACHING
        try:
            self._failed(row, old, new, str(why))
            self.clean(row)
        except Exception as error:
            # The row keeps its initiators: reconcile tries again until it is shut.
            LOG.error("[%s] UNDO attachment=%s: %s", row.attached_host, row.id, error)

    def _failed(
        self, row: Attachment, old: AttachStatus, new: AttachStatus, why: str
    ) -> None:
        with self._db.writing() as connection:
            attachments.move(connection, row.id, {old}, new, status_reason=why[:_MOST])

    def _forget(self, row: Attachment, old: frozenset[AttachStatus]) -> None:
        with self._db.writing() as connection:
            attachments.remove(connection, row.id, old)
        LOG.info(
            "[%s] DETACHED attachment=%s volume=%s",
            row.attached_host,
            row.id,
            row.volume_id,
        )


def _initiators(row: Attachment) -> list[str]:
    """Those that may have an access through this row, the one it had before first."""
    return [each for each in (row.leaving, row.initiator) if each is not None]


def driver_volume(volume: Volume) -> DriverVolume:
    """The volume as drivers know it."""
    return DriverVolume(volume.id, volume.size * GIB)


def driver_snapshot(snapshot: Snapshot) -> DriverSnapshot:
    """The snapshot as drivers know it."""
    return DriverSnapshot(snapshot.id, snapshot.volume_id, snapshot.size * GIB)


def with_secrets(row: Attachment) -> Attachment:
    """The attachment as its own host is told of it: with its CHAP credentials."""
    info = row.connection_info
    if info is None or "auth_method" not in info:
        return row
    secrets = {name: getattr(row, name) for name in _SECRETS}
    return replace(row, connection_info={**info, **secrets})


def _volume(connection: Any, row: Attachment) -> Volume:
    volume = volumes.bare(connection, row.volume_id)
    if volume is None:
        raise NotFound("volume", row.volume_id)
    return volume


def _told(row: Attachment, info: Mapping[str, Any]) -> dict[str, Any]:
    """connection_info as it is kept: the driver's words and ours, no credentials."""
    connector = row.connector or {}
    told = {key: value for key, value in info.items() if key not in _SECRETS}
    if told.pop(_MIXED, False):
        told["mixed_modes"] = (
            "widened: this initiator has an attachment of each mode, so the target"
            " lets this host write"
        )
    return {
        **told,
        "access_mode": row.mode,
        "attachment_id": row.id,
        "cacheable": False,
        "encrypted": False,
        "enforce_multipath": bool(connector.get("enforce_multipath", False)),
        "qos_specs": None,
    }


def _still_open(row: Attachment, error: BackendFailed) -> BackendFailed:
    """What an operator has to know of a detach that failed."""
    return type(error)(
        f"attachment {row.id} of volume {row.volume_id} is error_detaching, and host"
        f" {row.attached_host} may still have access; each reconcile tries again, or"
        f" repeat the DELETE: {error}",
        **error.fields,
    )
