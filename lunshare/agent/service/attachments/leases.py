# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Leases of write access: renewed by a request, and ended by the clock.

The end is a change of mode to ro, and a handover if the next writer is to follow. It is
decided on the row that its transaction has read, as a renewal is: whichever commits
first, the other one sees it. So a renewal waits for no lock and for no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from oslo_log import log

from lunshare.agent import boot_clock
from lunshare.agent.db import attachments, due_attachments, volumes, write_fences
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import BackendFailed, Busy, Conflict, DatabaseFailed
from lunshare.agent.model.lease_records import NEXT, NewLease
from lunshare.agent.model.records import Attachment, Mode, RequestContext, Volume
from lunshare.agent.model.states import WANTED, VolumeStatus
from lunshare.agent.service.attachments import (
    handover,
    lease_terms,
    mode_change,
    refusals,
)
from lunshare.agent.service.attachments.access import (
    Access,
    check_not_fenced,
    read_policy,
)
from lunshare.agent.service.attachments.connectors import with_secrets
from lunshare.agent.service.attachments.handover import Handovers
from lunshare.agent.service.attachments.mode_change import ModeChanges
from lunshare.agent.service.jobs.job_runner import JobPool, JobRunner
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

#: Seconds between two looks for leases that have ended.
CHECK_SECONDS = 0.25

Rows = list[Attachment]


class Leases:
    """Renews leases, and ends them."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        *,
        changes: ModeChanges,
        handovers: Handovers,
        jobs: JobRunner,
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        """``counted`` is called for each lease whose time was over."""
        self._counted = counted
        self._db, self._access, self._locks = db, access, locks
        self._changes, self._handovers, self._jobs = changes, handovers, jobs
        self._ending: dict[str, Future[None]] = {}

    def renew(
        self, ctx: RequestContext, attachment_id: str, ttl: int | None = None
    ) -> Attachment:
        """Let a lease last ``ttl`` seconds from now, by default as long as before.

        :raises NotFound: the attachment.
        :raises Conflict: it has no lease, or one that has ended; or its host is fenced.
        """
        with self._db.writing() as connection:
            row = attachments.require(connection, attachment_id, ctx)
            lease = lease_terms.state(row)
            if lease is None or lease.status != "running":
                raise refusals.lease_ended(row)
            check_not_fenced(connection, "lease", row.initiator, row.attached_host)
            new = NewLease(ttl or lease.ttl, lease.then == NEXT)
            return with_secrets(mode_change.lend(connection, row, new))

    def end_due(self) -> None:
        """Let a job end the leases whose time is over, one a volume. A timer calls it.

        While the database does not answer, nothing can be ended; its probe says so.
        """
        with suppress(DatabaseFailed):
            self._end_due()

    def _end_due(self) -> None:
        with self._db.reading() as connection:
            due = due_attachments.ended(connection, boot_clock.seconds())
            backends = {
                volume_id: volumes.require_row(connection, volume_id).backend
                for volume_id in {row.volume_id for row in due} - self._in_progress()
            }
        for volume_id, backend in backends.items():
            job = self._jobs.run_later(self.end, volume_id, backend, JobPool.ACCESS)
            self._ending[volume_id] = job

    def _in_progress(self) -> set[str]:
        """Return the volumes whose job has not ended: it looks at all their leases."""
        self._ending = {v: job for v, job in self._ending.items() if not job.done()}
        return {*self._ending}

    def end_all(self) -> None:
        """Commit the end of each lease that has ended, also those of another boot.

        A start does it before it opens anything. The target follows with the volume.
        """
        with self._db.reading() as connection:
            leased = due_attachments.ended(connection, math.inf)
            rows = [attachments.require(connection, row.id) for row in leased]
        for row in filter(lease_terms.is_due, rows):
            with (
                suppress(Busy),  # left to the timer
                self._locks.volume(row.volume_id, "the end of a lease", timeout=0),
            ):
                self._commit_end(row.id)

    def end(self, volume_id: str) -> None:
        """End the leases of a volume whose time is over. A job runs it.

        :raises BackendFailed: a write may still land, or the next writer could not be
            let in; each reconcile goes on.
        """
        with self._locks.volume(volume_id, "the end of a lease"):
            with self._db.reading() as connection:
                now = boot_clock.seconds()
                due = due_attachments.ended_of_volume(connection, volume_id, now)
            ends = [self._commit_end(row.id) for row in due]
            errors = []
            for ended, follower in ends:
                try:
                    self._finish(volume_id, ended, follower)
                except BackendFailed as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _finish(self, volume_id: str, ended: Rows, follower: Attachment | None) -> None:
        """:raises BackendFailed: as ``end``."""
        if follower is None:
            self._fence(ended)
        else:
            self._handovers.finish(volume_id)

    def _commit_end(self, attachment_id: str) -> tuple[Rows, Attachment | None]:
        """Write that the host of a lease that has ended may not write any more.

        Return its attachments, and that of who follows. The caller has the lock.
        """
        with self._db.writing() as connection:
            row = attachments.get(connection, attachment_id)
            if row is None or not lease_terms.is_due(row):
                return [], None  # it was renewed, or has lost its write access
            ended = [_lower(connection, same) for same in _of_same(connection, row)]
            follower = self._start_handover(connection, row, ended)
        self._counted()
        LOG.warning(
            "[%s] lease ended: attachment=%s volume=%s next=%s",
            row.attached_host,
            row.id,
            row.volume_id,
            follower and follower.id,
        )
        return ended, follower

    def _fence(self, ended: Rows) -> None:
        """Wait for the writes of a host whose lease has ended.

        :raises BackendFailed: they may still land.
        """
        for row in ended:
            if row.initiator not in (None, row.former_initiator):
                with self._db.reading() as connection:
                    volume = volumes.require_row(connection, row.volume_id)
                self._access.apply(volume, row.initiator)
            self._access.detach_replaced(row)

    def _start_handover(
        self, connection: Connection, holder: Attachment, ended: Rows
    ) -> Attachment | None:
        """Write that the next writer follows, if that is asked for and there is one.

        Not while another handover is pending, and not where a connector was being
        replaced: a handover waits for one initiator of each attachment.
        """
        is_whole = all(row.former_initiator == row.initiator for row in ended)
        latest = write_fences.handover(connection, holder.volume_id)
        if not (holder.lease or {}).get("then") or write_fences.is_open(latest):
            return None
        ids = [row.id for row in ended]
        follower = self._next(connection, holder, ids) if is_whole else None
        if follower is not None:
            handover.begin(connection, holder.volume_id, follower.id, ids)
        return follower

    def _next(
        self, connection: Connection, holder: Attachment, ids: list[str]
    ) -> Attachment | None:
        """Return the first reader after the holder, in the order of the list."""
        volume = volumes.require_row(connection, holder.volume_id)
        policy = read_policy(connection, volume)
        if policy is None or not policy.lists:
            return None

        def place(row: Attachment) -> int:
            return policy.place(row.instance_uuid, row.attached_host, row.initiator)

        after, count = place(holder) + 1, len(policy.lists[0])
        rows = attachments.of_volume(connection, volume.id)
        named = [row for row in rows if row.id not in ids and place(row) >= 0]
        named.sort(key=lambda row: (place(row) - after) % count)
        may = (row for row in named if self._may_follow(connection, volume, row, ids))
        return next(may, None)

    def _may_follow(
        self, connection: Connection, volume: Volume, row: Attachment, ids: list[str]
    ) -> bool:
        if row.mode is not Mode.RO or row.initiator is None:
            return False
        if volume.own_status is not VolumeStatus.AVAILABLE:
            return row.status in WANTED  # the handover waits for the volume
        try:
            self._changes.check_promotion(connection, row, ids)
        except Conflict:
            return False
        return True


def _of_same(connection: Connection, row: Attachment) -> Rows:
    """Return the attachments by which the host of ``row`` writes: it has one mode."""
    if row.initiator is None:
        return [row]
    rows = attachments.of_initiator(connection, row.volume_id, row.initiator)
    return [same for same in rows if same.mode is not Mode.RO or same.id == row.id]


def _lower(connection: Connection, row: Attachment) -> Attachment:
    former = row.former_initiator or row.initiator
    return mode_change.write(connection, row, Mode.RO, former)
