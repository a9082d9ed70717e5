# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Access whose rows Cinder writes only after the driver's answer.

Cinder stores a new connector, and sometimes its mode, after it has called
``initialize_connection``, and deletes an attachment after it has called
``terminate_connection``. Until then the rows say what was, not what will be. This
remembers the difference, in memory: a start finds rows that are complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts, of_host, wanted
from lunshare.drivers.values import Connector, Mode

#: Seconds after which Cinder's API has got no answer (``rpc_response_timeout``), and
#: will not delete the row of a release any more.
LATEST = 60.0


@dataclass(slots=True)
class _Released:
    """So many of these attachments are being deleted; Cinder does not say which."""

    ids: frozenset[str]
    count: int
    until: float


class Unfinished:
    """The openings and releases in progress. Its caller has the volume's lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._opening: dict[tuple[str, str], Connector] = {}
        self._released: dict[tuple[str, str], _Released] = {}

    def open(self, volume_id: str, connector: Connector) -> None:
        """Note that this access is being opened."""
        self._opening[volume_id, connector.initiator] = connector

    def opening(self, volume_id: str, initiator: str) -> Connector | None:
        """Return the access that is being opened, or None."""
        return self._opening.get((volume_id, initiator))

    def opened(self, volume_id: str, initiator: str) -> None:
        """Note that the rows say it now, or that it is not opened."""
        self._opening.pop((volume_id, initiator), None)

    def release(
        self, volume_id: str, initiator: str, rows: Iterable[AttachmentRow]
    ) -> None:
        """Note that one of these attachments of the host is being deleted."""
        key, until = (volume_id, initiator), self._clock() + LATEST
        ids, before = frozenset(row.id for row in rows), self._released.get(key)
        count = 1 + (self._pending(before, ids) if before else 0)
        self._released[key] = _Released(ids, count, until)

    def release_all(self, hosts: VolumeHosts) -> None:
        """Note that every attachment of the volume is being deleted."""
        for name in {c.initiator for c in wanted(hosts).values()}:
            rows = hosts.rows_of(name)
            ids = frozenset(row.id for row in rows)
            until = self._clock() + LATEST
            self._released[hosts.volume_id, name] = _Released(ids, len(ids), until)
        for key in [key for key in self._opening if key[0] == hosts.volume_id]:
            del self._opening[key]

    def keep(self, volume_id: str, initiator: str) -> None:
        """Note that a host wants its attachments again."""
        self._released.pop((volume_id, initiator), None)

    def of_host(self, hosts: VolumeHosts, initiator: str) -> Connector | None:
        """Return the access that a host should have, or None."""
        found = of_host(hosts, initiator, self._leaving(hosts, initiator))
        opening = self._opening.get((hosts.volume_id, initiator))
        if found is None or opening is None:
            return found or opening
        writes = Mode.RW in (found.mode, opening.mode)
        mode = Mode.RW if writes else Mode.RO
        return replace(found, mode=mode, auth=opening.auth)  # what the answer has

    def of_volume(self, hosts: VolumeHosts) -> dict[str, Connector]:
        """Return every access that the volume should have, by initiator."""
        names = set(wanted(hosts)) | {
            initiator
            for volume_id, initiator in self._opening
            if volume_id == hosts.volume_id
        }
        found = (self.of_host(hosts, name) for name in sorted(names))
        return {each.initiator: each for each in found if each is not None}

    def _leaving(self, hosts: VolumeHosts, initiator: str) -> frozenset[str]:
        """Return the ids of attachments that do not count any more."""
        key = (hosts.volume_id, initiator)
        released = self._released.get(key)
        if released is None:
            return frozenset()
        left = released.ids & {row.id for row in hosts.rows_of(initiator)}
        pending = self._pending(released, left)
        if not pending:
            del self._released[key]
            return frozenset()
        return released.ids if pending >= len(left) else frozenset()

    def _pending(self, released: _Released, left: frozenset[str]) -> int:
        """Return how many of them are not deleted yet; ``left`` still exist."""
        if self._clock() > released.until:
            return 0
        return max(0, released.count - len(released.ids - left))
