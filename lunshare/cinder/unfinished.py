# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Access whose rows Cinder writes only after the driver's answer.

Cinder stores a new connector, and sometimes its mode, after it has called
``initialize_connection``, and deletes an attachment after it has called
``terminate_connection``. Until then the rows are out of date. This remembers the
difference, in memory: a start finds rows that are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts, of_host, wanted
from lunshare.drivers.values import Connector, Mode


@dataclass(eq=False, frozen=True, slots=True)
class Opening:
    """An access that is being opened.

    ``connection`` is the name that its row will have. ``owners`` are the ids of the
    attachments of which one is being connected; Cinder does not say which. ``before``
    are the hosts that had attachments: one of them may lose its to this host.
    """

    volume_id: str
    access: Connector
    connection: str
    owners: frozenset[str]
    before: frozenset[str] = frozenset()

    def stored(self, hosts: VolumeHosts) -> AttachmentRow | None:
        """Return its row, if it has the connector and the mode."""
        rows = (
            row
            for row in hosts.rows
            if row.connection == self.connection and row.attach_mode is not None
        )
        return next(rows, None)

    def deleted(self, hosts: VolumeHosts) -> bool:
        """Return whether its attachment has been deleted."""
        return self.owners.isdisjoint(row.id for row in hosts.rows)


@dataclass(eq=False, frozen=True, slots=True)
class DirectOpening:
    """A connection that is opened without an attachment.

    Cinder may have wanted one: it was deleted in between, or is still that of another
    host. ``before`` are the rows at that time. ``answer`` is what the driver returned.
    """

    initiator: str
    before: VolumeHosts
    answer: Mapping[str, Any]

    @property
    def is_direct(self) -> bool:
        """Whether a client's action or cinder-volume itself has opened it.

        Of the callers in Cinder 27.0.0 to 29.0.0, manager.initialize_connection adds
        this key to the data. False does not say much: the base class of the drivers,
        which copies encrypted images, adds nothing.
        """
        return "enforce_multipath" in self.answer.get("data", ())

    @property
    def is_attachment(self) -> bool:
        """Whether it is for an attachment: their caller takes the data out.

        That is manager._connection_create, right after the driver's answer.
        """
        return "data" not in self.answer

    def deleted(self, hosts: VolumeHosts) -> bool:
        """Return whether the attachment has been deleted."""
        return {row.id for row in self.before.rows}.isdisjoint(
            row.id for row in hosts.rows
        )


class Unfinished:
    """The openings and detaches in progress. Its caller has the volume's lock."""

    def __init__(self) -> None:
        self._opening: dict[str, Opening] = {}
        self._detached: dict[str, set[str]] = {}
        # Attachments by connections that were stored just now.
        self._unconfirmed: dict[str, str] = {}

    def start_opening(self, opening: Opening) -> None:
        """Note that this access is being opened."""
        self._opening[opening.connection] = opening

    def end_opening(self, opening: Opening) -> bool:
        """Note that it has ended; return False if it had ended before."""
        return self._opening.pop(opening.connection, None) is not None

    def cancel_openings(
        self, volume_id: str, initiator: str, connection: str | None
    ) -> None:
        """Note that a detach has ended this opening, or every one of its host."""
        for opening in list(self._opening.values()):
            same_host = (opening.volume_id, opening.access.initiator) == (
                volume_id,
                initiator,
            )
            if same_host and connection in (None, opening.connection):
                self.end_opening(opening)

    def add_unconfirmed(self, row: AttachmentRow) -> None:
        """Note a stored connection; another request may be deleting its row."""
        self._unconfirmed[row.connection] = row.id

    def pop_unconfirmed(self, connection: str) -> str | None:
        """Forget such a connection; return its attachment, None if it was closed."""
        return self._unconfirmed.pop(connection, None)

    def note_closed(self, row: AttachmentRow) -> None:
        """Note that the access of an attachment has been closed."""
        for connection, attachment_id in list(self._unconfirmed.items()):
            if attachment_id == row.id:
                del self._unconfirmed[connection]

    def openings(self, hosts: VolumeHosts, initiator: str = "") -> list[Connector]:
        """Return the accesses that are being opened, to one host or to all."""
        return [
            opening.access
            for opening in self._opening.values()
            if opening.volume_id == hosts.volume_id
            and initiator in ("", opening.access.initiator)
            and not opening.deleted(hosts)
        ]

    def start_detach(self, volume_id: str, row: AttachmentRow) -> None:
        """Note that this attachment is being deleted.

        It does not count any more until it is connected again. A repeated detach
        changes nothing: cinder-api may have been killed before it deleted the row.
        """
        self._detached.setdefault(volume_id, set()).add(row.connection)
        self._opening.pop(row.connection, None)
        self.note_closed(row)

    def cancel_detach(self, volume_id: str, row: AttachmentRow) -> None:
        """Note that the attachment stays, because closing its access has failed."""
        self._detached.get(volume_id, set()).discard(row.connection)

    def forget_volume(self, volume_id: str) -> None:
        """Note that the volume is deleted."""
        self._detached.pop(volume_id, None)
        for opening in list(self._opening.values()):
            if opening.volume_id == volume_id:
                self.end_opening(opening)

    def of_host(self, hosts: VolumeHosts, initiator: str) -> Connector | None:
        """Return the access that a host should have, or None."""
        stored = of_host(hosts, initiator, self.detached_connections(hosts))
        opening = self.openings(hosts, initiator)
        if not opening:
            return stored
        modes = [access.mode for access in (stored, *opening) if access is not None]
        mode = Mode.RW if Mode.RW in modes else Mode.RO
        auth = opening[-1].auth  # what the answer has
        return replace(stored or opening[-1], mode=mode, auth=auth)

    def of_volume(self, hosts: VolumeHosts) -> dict[str, Connector]:
        """Return every access that the volume should have, by initiator."""
        names = set(wanted(hosts))
        names |= {access.initiator for access in self.openings(hosts)}
        accesses = (self.of_host(hosts, name) for name in sorted(names))
        return {access.initiator: access for access in accesses if access is not None}

    def detached_connections(self, hosts: VolumeHosts) -> frozenset[str]:
        """Return the detached connections whose rows exist, and forget the others."""
        detached = self._detached.get(hosts.volume_id)
        if detached is None:
            return frozenset()
        detached &= {row.connection for row in hosts.rows}
        if not detached:
            del self._detached[hosts.volume_id]
        return frozenset(detached)
