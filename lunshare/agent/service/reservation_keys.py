# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Refuse a detach that would drop the key of a persistent reservation.

With the key of a host its cluster may lose what keeps another host out. Who fences a
host, makes it ro, or forces a handover asks for that, and is not refused. A host can
register a key at any moment, also after this has looked.
"""

from __future__ import annotations

from collections.abc import Collection

from lunshare.agent.backends import Backends
from lunshare.agent.db import attachments, types, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import Conflict
from lunshare.agent.model.records import RESERVATIONS, YES, Attachment, Volume
from lunshare.agent.model.states import ENDING, WANTED
from lunshare.drivers.values import Registration


class ReservationKeys:
    """The keys that the hosts of a volume have in the target."""

    def __init__(self, db: Database, backends: Backends) -> None:
        self._db, self._backends = db, backends

    def check_detach(self, volume_id: str, attachment_ids: Collection[str]) -> None:
        """Check that no host leaves a key; the caller has the volume's lock.

        Only of volumes whose type allows reservations something is read.

        :raises Conflict: names a key, and how to drop it.
        :raises BackendFailed: the target does not say which keys there are.
        """
        with self._db.reading() as connection:
            volume = volumes.require_row(connection, volume_id)
        allows = allows_reservations(self._db, volume)
        leaving = self._leaving(attachment_ids) if allows else None
        if not leaving:
            return
        with self._backends[volume.backend].for_request() as driver:
            registrations = driver.target.registrations(volume_id)
        for registration in registrations:
            if row := leaving.get(registration.initiator):
                raise _holds_key(row, registration)

    def _leaving(self, attachment_ids: Collection[str]) -> dict[str, Attachment]:
        """Return by initiator who loses access, of what is not being closed already."""
        with self._db.reading() as connection:
            rows = [attachments.require(connection, ident) for ident in attachment_ids]
            return {
                initiator: row
                for row in rows
                if row.status not in ENDING
                for initiator in row.initiators
                if not _stays(connection, row, initiator, attachment_ids)
            }


def allows_reservations(db: Database, volume: Volume) -> bool:
    """Whether the volume's type lets its hosts use SCSI reservations."""
    if volume.volume_type_id is None:
        return False
    with db.reading() as connection:
        spec = types.get_spec(connection, volume.volume_type_id, RESERVATIONS)
    return spec == YES


def _stays(
    connection: Connection, row: Attachment, initiator: str, leaving: Collection[str]
) -> bool:
    """Whether another attachment keeps the access of the initiator."""
    same = attachments.of_initiator(connection, row.volume_id, initiator)
    return any(r.status in WANTED and r.id not in leaving for r in same)


def _holds_key(row: Attachment, key: Registration) -> Conflict:
    holding = f" and holds the reservation ({key.holds})" if key.holds else ""
    return Conflict(
        f"force: host {row.attached_host} has the reservation key {key.key} of volume"
        f" {row.volume_id}{holding}, and a detach drops it: unregister the key on the"
        f" host, or delete attachment {row.id} with force=true",
        attachment_id=row.id,
    )
