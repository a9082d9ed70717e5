# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fence a host: take its access, or its writing, to every volume of the node.

The intent is one transaction: rows of host_fences, by which each later attach of the
host is refused, and the fence in every attachment that the host has. It waits for no
lock. The same step as a reconcile then closes the access of each, under its volume's
lock, so whatever was opening an access meanwhile is closed after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends, NodeBackend
from lunshare.agent.db import (
    attachments,
    host_accesses,
    host_fences,
    volumes,
    write_fences,
)
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import Conflict, existing
from lunshare.agent.model.records import Attachment, Mode, RequestContext
from lunshare.agent.model.states import FenceKind
from lunshare.agent.service.attachments import mode_change, refusals
from lunshare.agent.service.attachments.access import (
    Access,
    allowed_mode,
    read_wanted,
)
from lunshare.agent.service.attachments.connectors import host_name, is_initiator
from lunshare.agent.service.attachments.volume_queues import VolumeQueues
from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.agent.threads.limit import Limit
from lunshare.agent.threads.turn import waiting
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

#: Seconds that an answer waits for the target. A fence that takes longer is pending.
ANSWER_SECONDS = 5.0
_RUNS = "it has not been closed yet; repeat the request to wait for it"

Rows = list[Attachment]
_Jobs = Mapping[str, Future[None]]
_NO_JOBS: _Jobs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FencedAccess:
    """An attachment of a fenced host; ``reason``: why it is not closed, or not open."""

    row: Attachment
    generation: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class HostFence:
    """A host that is fenced, or was (``fence`` None); ``names``: its initiators."""

    host: str
    fence: FenceKind | None
    since: datetime | None
    names: list[str]
    volumes: list[FencedAccess]

    @property
    def status(self) -> str:
        """Whether the target has closed, or opened, all of it."""
        is_whole = not any(access.reason for access in self.volumes)
        if self.fence is None:
            return "unfenced" if is_whole else "pending"
        return "fenced" if is_whole else "fence pending"


class Fences:
    """Fences hosts, and ends that."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        *,
        backends: Backends,
        jobs: JobRunner,
        patient: int,
    ) -> None:
        """``patient``: how many requests may wait for the target at the same time."""
        self._db, self._access, self._backends = db, access, backends
        self._patient = Limit(patient)
        self._opening: set[str] = set()
        self._queues = VolumeQueues(locks, jobs, self._settle_and_forget)

    def opening(self) -> frozenset[str]:
        """The attachments whose fence has ended, and that are not open again yet."""
        return frozenset(self._opening)

    def list(self, ctx: RequestContext) -> list[HostFence]:
        """Return every fence, with its proof for each volume."""
        with self._db.reading() as connection:
            hosts = host_fences.hosts(connection)
            return [self._read(connection, host) for host in hosts]

    def show(self, ctx: RequestContext, host: str) -> HostFence:
        """Return the fence of a host.

        :raises NotFound: it is not fenced.
        """
        host = host_name(host, "host")
        with self._db.reading() as connection:
            fence = self._read(connection, host)
        return existing(fence if fence.fence else None, "fence", host)

    def fence(
        self,
        ctx: RequestContext,
        host: str,
        writes_only: bool = False,
        seconds: float = ANSWER_SECONDS,
    ) -> HostFence:
        """Take the access of a host, or its writing; return what the target has closed.

        Also of a host that has none, which then gets none. Can be repeated, and then
        proves it anew; a fence is not weakened by another one.

        :raises Invalid: no host has such a name.
        """
        host = host_name(host, "host")
        kind = FenceKind.WRITES if writes_only else FenceKind.ALL
        with self._db.writing() as connection:
            rows = self._start(connection, host, kind)
        LOG.warning("[%s] host is being fenced: fence=%s", host, kind)
        jobs = self._settle(rows, seconds)
        with self._db.reading() as connection:
            shown = self._read(connection, host, jobs)
        LOG.warning("[%s] %s: volumes=%d", host, shown.status, len(shown.volumes))
        return shown

    def unfence(
        self, ctx: RequestContext, host: str, seconds: float = ANSWER_SECONDS
    ) -> HostFence:
        """Give a host back what its attachments ask for. Can be repeated.

        One that may not write any more, by the writers policy or a handover, is ro.

        :raises Invalid: no host has such a name.
        """
        host = host_name(host, "host")
        with self._db.writing() as connection:
            # With its own: an unfence that has failed is repeated by this.
            names = {host, *_names(host_fences.of_host(connection, host))}
            host_fences.remove(connection, host)
            rows = self._write_taken(connection, names)
            self._opening.update(row.id for row in rows)
        jobs = self._settle(rows, seconds)
        with self._db.reading() as connection:
            shown = [
                FencedAccess(
                    row,
                    write_fences.generation(connection, row.volume_id),
                    _failure(jobs.get(row.id)),
                )
                for row in _of_names(connection, names)
            ]
        LOG.warning("[%s] host unfenced: volumes=%d", host, len(shown))
        return HostFence(host, None, None, sorted(names - {host}), shown)

    def _settle_and_forget(self, attachment_id: str) -> None:
        try:
            self.settle_locked(attachment_id)
        finally:
            self._opening.discard(attachment_id)

    def settle_locked(self, attachment_id: str) -> None:
        """Make the access of an attachment what its row says.

        The caller has the lock of the volume. The time is noted at which the target
        has closed what is fenced: never where it ends no access.

        :raises BackendFailed: it is not; each reconcile tries again.
        """
        with self._db.reading() as connection:
            row = attachments.get(connection, attachment_id)
            if row is None:
                return
            volume = volumes.require_row(connection, row.volume_id)
            # Read together with the fence that it proves.
            access = read_wanted(connection, volume.id, row.initiator or "")
        if row.fence is None:
            self._access.admissions.update(volume.backend, row)
        elif not self._ends_access(volume.backend):
            return
        fence, row = row.fence, self._access.detach_replaced(row)
        if row.initiator is not None:
            self._access.apply(volume, row.initiator, access)
        if fence is not None:
            self._access.end_admission(volume, row)
            with self._db.writing() as connection:
                attachments.set_fenced(connection, row.id, fence)

    def _ends_access(self, name: str) -> bool:
        backend = self._backends.find(name)
        return backend is None or backend.drivers.target.abilities.fences

    def _start(self, connection: Connection, host: str, kind: FenceKind) -> Rows:
        """Write what is taken; return the attachments."""
        stored = host_fences.of_host(connection, host)
        since = min((name.created_at for name in stored), default=now())
        if host_fences.strictest(stored) is FenceKind.ALL:
            kind = FenceKind.ALL
        names = {host, *_names(stored), *_initiators_now(connection, host)}
        host_fences.write(connection, host, names, kind, since)
        return self._write_taken(connection, names)

    def _write_taken(self, connection: Connection, names: Iterable[str]) -> Rows:
        """Write what fences take of the attachments of these names; return these."""
        rows = _of_names(connection, names)
        for row in rows:
            kind = self._taken(connection, row)
            if kind is None and row.fence is not None:
                _lower(connection, row)
            if kind is not None or row.fence is not None:
                values = {"fence": kind, "fenced_at": None}
                attachments.set_values(connection, row.id, **values)
        return rows

    def _taken(self, connection: Connection, row: Attachment) -> FenceKind | None:
        """Return what fences take of an attachment.

        All of it where the target lets no host only read.
        """
        fences = host_fences.find(connection, row.initiator, row.attached_host)
        kind = host_fences.strictest(fences)
        backend = self._backend_of(connection, row)
        enforces = (
            backend is None or backend.drivers.target.abilities.enforces_read_only
        )
        return kind if enforces else kind and FenceKind.ALL

    def _backend_of(
        self, connection: Connection, row: Attachment
    ) -> NodeBackend | None:
        volume = volumes.require_row(connection, row.volume_id)
        return self._backends.find(volume.backend)

    def _settle(self, rows: Iterable[Attachment], seconds: float) -> _Jobs:
        """Let the target follow the rows, and wait a little; return the jobs by row."""
        by_volume: dict[str, list[str]] = {}
        for row in rows:
            by_volume.setdefault(row.volume_id, []).append(row.id)
        with self._db.reading() as connection:
            backends = {
                volume_id: volumes.require_row(connection, volume_id).backend
                for volume_id in by_volume
            }
        jobs: dict[str, Future[None]] = {}
        for volume_id, ids in by_volume.items():
            jobs |= self._queues.add(volume_id, backends[volume_id], ids)
        with self._patient.place(0) as place, waiting():
            wait(jobs.values(), seconds if place else 0)
        return jobs

    def _read(
        self, connection: Connection, host: str, jobs: _Jobs = _NO_JOBS
    ) -> HostFence:
        stored = host_fences.of_host(connection, host)
        names = set(_names(stored))
        shown = [
            FencedAccess(
                row,
                write_fences.generation(connection, row.volume_id),
                self._why_open(connection, row, names, jobs.get(row.id)),
            )
            for row in _of_names(connection, names)
        ]
        since = min((name.created_at for name in stored), default=None)
        kind = host_fences.strictest(stored)
        return HostFence(host, kind, since, sorted(names - {host}), shown)

    def _why_open(
        self,
        connection: Connection,
        row: Attachment,
        names: set[str],
        job: Future[None] | None,
    ) -> str | None:
        """Return why the host may still have access, None if it has not."""
        if row.fenced_at is not None and row.former_initiator not in names:
            return None
        backend = self._backend_of(connection, row)
        if backend is not None and not backend.drivers.target.abilities.fences:
            return refusals.ends_no_access(backend)
        return _failure(job) or f"a write may still land: {_RUNS}"


def _names(stored: Iterable[Any]) -> list[str]:
    return [row.name for row in stored]


def _initiators_now(connection: Connection, host: str) -> set[str]:
    """Return the initiators by which a host of this name has, or may have, access.

    An initiator has no other, though a client may have named a host like it.
    """
    if is_initiator(host):
        return set()
    names = set()
    for row in host_accesses.of_host(connection, host):
        if row.attached_host == host:
            names.add(row.initiator or row.former_initiator)
        if row.former_host == host:
            names.add(row.former_initiator)
    names |= set(host_accesses.initiators_sent_by(connection, host))
    return set(filter(None, names))


def _of_names(connection: Connection, names: Iterable[str]) -> list[Attachment]:
    """Return the attachments by which these hosts have, or may have, access."""
    rows = {
        row.id: row
        for name in names
        for row in host_accesses.of_host(connection, name)
        if row.initiators
    }
    return sorted(rows.values(), key=lambda row: (row.volume_id, row.id))


def _lower(connection: Connection, row: Attachment) -> None:
    """Make an attachment ro whose host may not write any more, after its fence."""
    if row.mode is None or row.mode is Mode.RO:
        return
    volume = volumes.require_row(connection, row.volume_id)
    try:
        mode = allowed_mode(connection, volume, row, row.mode, asked=False)
    except Conflict:  # a handover is pending
        mode = Mode.RO
    if mode is Mode.RO:
        former = row.former_initiator or row.initiator
        mode_change.write(connection, row, Mode.RO, former)


def _failure(job: Future[None] | None) -> str | None:
    """Return why a job has not done its work, None if it has, or has not begun."""
    if job is None or job.cancelled():
        return None
    if not job.done():
        return _RUNS
    error = job.exception()
    if error is None:
        return None
    return f"{error}; each reconcile tries again, or repeat the request"
