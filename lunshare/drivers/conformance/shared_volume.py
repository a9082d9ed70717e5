# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume that hosts share, for the tests of targets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from lunshare.drivers.base import TargetDriver
from lunshare.drivers.conformance.fixtures import Host, Session
from lunshare.drivers.errors import TargetFailed
from lunshare.drivers.values import (
    Auth,
    Connector,
    Disk,
    Export,
    LiveExport,
    Mode,
    Volume,
)

PAGE = 4096
HostFactory = Callable[[str], Host]


class SharedVolume:
    """One volume and its target. A host is named by one letter."""

    def __init__(
        self, volume: Volume, disk: Disk, target: TargetDriver, host: HostFactory
    ) -> None:
        self.volume, self.disk, self.target, self._host = volume, disk, target, host
        self._sessions: list[Session] = []

    def connector(self, letter: str, mode: Mode, auth: Auth | None = None) -> Connector:
        """The host of that letter, in that mode."""
        return Connector(name(letter), mode, f"attachment-{letter}", auth)

    def export(self, **modes: Mode) -> Export:
        """The wanted state: ``export(a=RW, b=RO)``."""
        return self.export_to(self.connector(k, mode) for k, mode in modes.items())

    def export_to(self, connectors: Iterable[Connector]) -> Export:
        """The wanted state with these connectors."""
        return Export(self.volume.id, self.disk, tuple(connectors))

    def apply(self, only: str | None = None, **modes: Mode) -> tuple[str, ...]:
        """Apply the wanted state. ``only``: letters of the hosts to consider."""
        scope = None if only is None else {name(letter) for letter in only}
        return self.target.apply(self.export(**modes), only=scope)

    def login(self, letter: str, auth: Auth | None = None) -> Session:
        """Log the host in. The address of the target does not depend on its mode."""
        connection = self.target.connection_info(
            self.volume, self.connector(letter, Mode.RO, auth)
        )
        session = self._host(name(letter)).login(connection)
        self._sessions.append(session)
        return session

    def write_once(self, letter: str) -> bytes:
        """Export the volume, read and write as that host, and remove the export.

        Returns the first page as it was before.
        """
        self.apply(**{letter: Mode.RW})
        session = self.login(letter)
        found = session.read(0, PAGE)
        session.write(0, data(letter))
        session.close()
        self.target.remove(self.volume.id)
        return found

    def live(self) -> dict[str, Mode | None]:
        """From the letter of a host to its live mode; empty without an export."""
        return {
            connector.initiator[-1]: connector.mode
            for export in self.target.observe()
            if export.volume_id == self.volume.id
            for connector in export.connectors
        }

    def close(self) -> None:
        """Log every host out and remove the export."""
        for session in self._sessions:
            session.close()
        self.target.remove(self.volume.id)


def name(letter: str) -> str:
    """The initiator name of a host, in a form that LIO and rtslib accept."""
    return f"iqn.1994-05.com.example:kit-{letter}"


def data(letter: str) -> bytes:
    """A page with the letter of the host that writes it."""
    return letter.encode() * PAGE


def login_is_refused(
    shared: SharedVolume, letter: str, auth: Auth | None = None
) -> bool:
    """Whether the target refuses a login of that host."""
    try:
        shared.login(letter, auth).close()
    except (PermissionError, TargetFailed):
        return True
    return False


def can_write(session: Session, letter: str, at: int = 0, pages: int = 1) -> bool:
    """Whether a write succeeds; a refused write must not change a byte.

    It writes that many ``pages`` from byte ``at``.
    """
    before, wanted = session.read(at, pages * PAGE), data(letter) * pages
    try:
        session.write(at, wanted)
    except PermissionError:
        assert session.read(at, pages * PAGE) == before
        return False
    assert session.read(at, pages * PAGE) == wanted
    return True


def write_until(over: threading.Event, session: Session) -> int:
    """Write the second page until ``over`` is set, then once more; return how often."""
    count = 0
    while True:
        last = over.is_set()
        session.write(PAGE, data("b"))
        count += 1
        if last:
            return count


def grants(export: LiveExport) -> set[tuple[str, Mode | None, str]]:
    """Initiator, mode and attachment of each connector, without its sessions."""
    return {(c.initiator, c.mode, c.attachment_id) for c in export.connectors}
