# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a volume's rows until Cinder has written the result of a driver's answer.

cinder-volume stores a connector some ms after the answer, and cinder-api deletes the
row of a detach. Either may take long, or not happen at all: a process is killed, or a
dump or a failover of the database allows no writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from cinder import exception
from lunshare.cinder.cinder_rows import CinderRows
from lunshare.cinder.unfinished import DirectOpening, Opening, Unfinished
from lunshare.cinder.wanted_access import AttachmentRow, VolumeHosts

LOG = logging.getLogger(__name__)

# Seconds between two reads: at first, in the first minute, and later.
_SHORTEST_WAIT, _LONGEST_WAIT, _RARE_WAIT = 0.05, 1.0, 10.0
# Seconds after which a connector is still not stored because its request failed, or
# because the database allows no writes.
_UNSTORED = 10.0
# Seconds for which a new row is watched: a deletion that started before it was stored
# has not closed its access.
_CONFIRMED = 5.0
# Seconds after which cinder-api has got no answer (rpc_response_timeout), and deletes
# no row any more.
_UNDELETED = 60.0
# Seconds for which a row is waited for while the database allows no writes.
_GIVEN_UP = 3600.0

#: Gets the rows and the seconds waited so far; returns whether it is finished.
_Step = Callable[[VolumeHosts, float], bool]
#: Makes the access of one host what it should be.
_ApplyHost = Callable[[Any, VolumeHosts, str], None]


class LaterRows:
    """Acts when Cinder has written its rows, or has not. One for each backend."""

    def __init__(
        self,
        backend: str,
        rows: CinderRows,
        locked: Callable[[str], AbstractContextManager[None]],
        unfinished: Unfinished,
        apply_host: _ApplyHost,
    ) -> None:
        self._backend, self._rows, self._locked = backend, rows, locked
        self._unfinished, self._apply_host = unfinished, apply_host

    def follow_opening(self, volume: Any, opening: Opening) -> None:
        """Give a new access the mode that Cinder stores, or close it without a row."""
        self._start(partial(self._finish_opening, volume, opening), volume)

    def follow_direct(self, volume: Any, opened: DirectOpening) -> None:
        """Close it if Cinder was connecting an attachment that is not there."""
        self._start(partial(self._finish_direct, volume, opened), volume)

    def follow_detach(self, volume: Any, row: AttachmentRow) -> None:
        """Report an attachment that was closed and that Cinder does not delete."""
        self._start(partial(self._finish_detach, volume, row), volume, 1.0)

    def follow_deletions(self, volume: Any, rows: Iterable[AttachmentRow]) -> None:
        """Close what Cinder deletes of these attachments; it does not say which."""
        pending = list(rows)
        if pending:
            self._start(partial(self._finish_deletions, volume, pending), volume)

    def apply_or_repeat(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        """Make the access of a host what it should be, now or as soon as possible."""
        self._now_or_later(partial(self._repeat, volume, initiator), volume, hosts)

    def undo_direct(self, volume: Any, hosts: VolumeHosts, initiator: str) -> None:
        """Close and forget a direct connection, now or as soon as possible."""
        self._now_or_later(partial(self._undo_direct, volume, initiator), volume, hosts)

    def repeat(self, volume: Any, initiator: str) -> None:
        """Make the access of a host what it should be, as soon as possible."""
        self._start(partial(self._repeat, volume, initiator), volume)

    def _now_or_later(self, step: _Step, volume: Any, hosts: VolumeHosts) -> None:
        try:
            step(hosts, 0.0)
        except Exception as error:
            LOG.error(
                "[%s] access not applied; it is tried again: volume=%s: %s",
                self._backend,
                volume.id,
                error,
            )
            self._start(step, volume)

    def _start(self, step: _Step, volume: Any, first: float = _SHORTEST_WAIT) -> None:
        threading.Thread(
            target=self._follow, args=(step, volume, first), daemon=True
        ).start()

    def _follow(self, step: _Step, volume: Any, wait: float) -> None:
        """Call the step under the volume's lock until it is finished."""
        waited = 0.0  # without the time in which the database does not answer
        while True:
            time.sleep(wait)
            waited += wait
            longest = _LONGEST_WAIT if waited < _UNDELETED else _RARE_WAIT
            wait = min(wait * 1.5, longest)
            try:
                with self._locked(volume.name_id):
                    if step(self._rows.of_volume(volume), waited):
                        return
            except exception.VolumeNotFound:
                # Its export is gone with it. After a migration, the disk of that name
                # may be another volume's, so nothing is closed here.
                self._unfinished.forget_volume(volume.name_id)
                LOG.info(
                    "[%s] volume deleted, its rows are not followed any more:"
                    " volume=%s",
                    self._backend,
                    volume.id,
                )
                return
            except Exception:
                LOG.exception(
                    "[%s] access not applied; it is tried again: volume=%s",
                    self._backend,
                    volume.id,
                )

    # The steps

    def _finish_opening(
        self, volume: Any, opening: Opening, hosts: VolumeHosts, waited: float
    ) -> bool:
        stored, deleted = opening.stored(hosts), opening.deleted(hosts)
        if not (stored or deleted or waited > _UNSTORED):
            return False
        initiator = opening.access.initiator
        was_open = self._unfinished.end_opening(opening)
        if stored and stored.connection in self._unfinished.detached_connections(hosts):
            return True
        if was_open or stored:
            access = self._unfinished.of_host(hosts, initiator)
            if not (was_open and access == opening.access):
                self.apply_or_repeat(volume, hosts, initiator)
        if stored:
            self._close_others(volume, opening.before, hosts)
            self._unfinished.add_unconfirmed(stored)
            confirm = partial(self._confirm, volume, stored)
            self._start(confirm, volume, _CONFIRMED)
        return bool(stored or deleted or waited > _GIVEN_UP)

    def _confirm(
        self, volume: Any, row: AttachmentRow, hosts: VolumeHosts, waited: float
    ) -> bool:
        """Close an access whose row was deleted while it was being stored."""
        attachment_id = self._unfinished.pop_unconfirmed(row.connection)
        if attachment_id and attachment_id not in {row.id for row in hosts.rows}:
            self.apply_or_repeat(volume, hosts, row.initiator)
        return True

    def _finish_direct(
        self, volume: Any, opened: DirectOpening, hosts: VolumeHosts, waited: float
    ) -> bool:
        if not opened.is_attachment:
            return opened.is_direct or waited > _UNSTORED
        initiator = opened.initiator
        stored = bool(hosts.rows_of(initiator))
        if not (stored or opened.deleted(hosts) or waited > _UNSTORED):
            return False
        self._rows.forget_direct(volume, [initiator])
        self.apply_or_repeat(volume, hosts.without_direct([initiator]), initiator)
        if stored:
            self._close_others(volume, opened.before.initiators, hosts)
        else:
            self._start(partial(self._finish_late, volume, initiator), volume)
        return True

    def _finish_late(
        self, volume: Any, initiator: str, hosts: VolumeHosts, waited: float
    ) -> bool:
        """Open the access of a row that the database has stored after all."""
        if hosts.rows_of(initiator):
            self._apply_host(volume, hosts, initiator)
            return True
        return waited > _GIVEN_UP

    def _close_others(
        self, volume: Any, before: Collection[str], hosts: VolumeHosts
    ) -> None:
        """Close hosts whose attachment is now another host's."""
        for initiator in set(before) - hosts.initiators:
            self.apply_or_repeat(volume, hosts, initiator)

    def _finish_detach(
        self, volume: Any, row: AttachmentRow, hosts: VolumeHosts, waited: float
    ) -> bool:
        if row.connection not in self._unfinished.detached_connections(hosts):
            return True
        if waited > _UNDELETED:
            LOG.warning(
                "[%s] attachment closed, but Cinder has not deleted it: delete it"
                " again: volume=%s attachment=%s",
                self._backend,
                volume.id,
                row.id,
            )
        return waited > _UNDELETED

    def _finish_deletions(
        self,
        volume: Any,
        pending: list[AttachmentRow],
        hosts: VolumeHosts,
        waited: float,
    ) -> bool:
        """Apply the hosts of what has been deleted since the last call."""
        ids = {row.id for row in hosts.rows}
        for row in [row for row in pending if row.id not in ids]:
            self._apply_host(volume, hosts, row.initiator)
            self._unfinished.note_closed(row)
            pending.remove(row)
        return not pending or waited > _GIVEN_UP

    def _repeat(
        self, volume: Any, initiator: str, hosts: VolumeHosts, waited: float
    ) -> bool:
        self._apply_host(volume, hosts, initiator)
        return True

    def _undo_direct(
        self, volume: Any, initiator: str, hosts: VolumeHosts, waited: float
    ) -> bool:
        try:
            self._rows.forget_direct(volume, [initiator])
        finally:  # also without a database
            self._apply_host(volume, hosts.without_direct([initiator]), initiator)
        return True
