# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fence a host: take its access, or its writing, to every volume of the node.

The intent is one transaction: rows of host_fences, by which each later attach of the
host is refused. What they take is then written in every attachment that the host has,
some in each transaction. Both wait for no lock. The same step as a reconcile then
closes the access of each, under its volume's lock, so whatever was opening an access
meanwhile is closed after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends
from lunshare.agent.db import (
    attachments,
    host_accesses,
    host_fences,
    volumes,
)
from lunshare.agent.db.host_accesses import AccessOfHost
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import Conflict, Invalid, existing
from lunshare.agent.model.page_rows import ROW_BYTES, PageRows, fill
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
from lunshare.drivers.values import plain_name

LOG = log.getLogger(__name__)

#: Seconds that an answer waits for the target. A fence that takes longer is pending.
ANSWER_SECONDS = 5.0
_RUNS = "it has not been closed yet; repeat the request to wait for it"

#: Rows of one transaction; an unfence takes a millisecond or two for each.
_ROWS_AT_ONCE = 64
#: Fences whose attachments are read together.
_HOSTS_AT_ONCE = 128

Accesses = list[AccessOfHost]
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
        self._queues = VolumeQueues(locks, jobs, self._apply_and_forget)

    def opening(self) -> frozenset[str]:
        """The attachments whose fence has ended, and that are not open again yet."""
        return frozenset(self._opening)

    def list(
        self, ctx: RequestContext, limit: int = 1000, marker: str | None = None
    ) -> PageRows[HostFence]:
        """Return a page of the fences, by host, with their proof for each volume."""
        after = marker and fence_name(marker, "marker")
        with self._db.reading() as connection:
            stored = host_fences.after(connection, after, limit)
            fences = self._read(connection, stored)
            return fill(fences, limit, lambda fence: ROW_BYTES * len(fence.volumes))

    def show(self, ctx: RequestContext, host: str) -> HostFence:
        """Return the fence of a host.

        :raises NotFound: it is not fenced.
        """
        host = fence_name(host, "host")
        fence = self._read_one(host)
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
        host = fence_name(host, "host")
        if host != host.strip():  # it would be proven, and its host would go on
            raise Invalid(
                "host has a blank at an end: leave it out, or give the initiator"
            )
        kind = FenceKind.WRITES if writes_only else FenceKind.ALL
        with self._db.writing() as connection:
            names = _start(connection, host, kind)
        LOG.warning("[%s] host is being fenced: fence=%s", host, kind)
        jobs = self._apply_soon(self._write_taken(names), seconds)
        shown = self._read_one(host, jobs)
        LOG.warning("[%s] %s: volumes=%d", host, shown.status, len(shown.volumes))
        return shown

    def unfence(
        self, ctx: RequestContext, host: str, seconds: float = ANSWER_SECONDS
    ) -> HostFence:
        """Give a host back what its attachments ask for. Can be repeated.

        One that may not write any more, by the writers policy or a handover, is ro.

        :raises Invalid: no host has such a name.
        """
        host = fence_name(host, "host")
        with self._db.writing() as connection:
            # With its own: an unfence that has failed is repeated by this.
            names = {host, *_names(host_fences.of_host(connection, host))}
            host_fences.remove(connection, host)
        jobs = self._apply_soon(self._write_taken(names, opens=True), seconds)
        with self._db.reading() as connection:
            accesses = host_accesses.of_names(connection, sorted(names))
        shown = [
            _shown(access, _failure(jobs.get(access.row.id))) for access in accesses
        ]
        LOG.warning("[%s] host unfenced: volumes=%d", host, len(shown))
        return HostFence(host, None, None, sorted(names - {host}), shown)

    def finish(self) -> None:
        """Write in the attachments what a killed fence or unfence has left.

        A reconcile calls it, before it opens or closes anything.
        """
        with self._db.reading() as connection:
            ids = host_accesses.stale(connection, self._lax())
        self._write(ids)

    def _apply_and_forget(self, attachment_id: str) -> None:
        try:
            self.apply_locked(attachment_id)
        finally:
            self._opening.discard(attachment_id)

    def apply_locked(self, attachment_id: str) -> None:
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

    def _write_taken(self, names: Iterable[str], opens: bool = False) -> Accesses:
        """Write what fences take of the attachments of these names; return these."""
        with self._db.reading() as connection:
            accesses = host_accesses.of_names(connection, sorted(names))
        ids = [access.row.id for access in accesses]
        self._opening.update(ids if opens else ())
        try:
            self._write(ids)
        except Exception:
            self._opening.difference_update(ids)
            raise
        return accesses

    def _write(self, ids: Sequence[str]) -> None:
        """Write what fences take of these attachments, a few in each transaction.

        No other writer waits long for a host with many. Whatever a crash leaves is
        written by ``finish``, and no fence is proven before.
        """
        lax = self._lax()
        for start in range(0, len(ids), _ROWS_AT_ONCE):
            some = ids[start : start + _ROWS_AT_ONCE]
            with self._db.writing() as connection:
                for row in host_accesses.released(connection, some, lax):
                    _lower(connection, row)
                host_accesses.write_fences(connection, some, lax)

    def _lax(self) -> Sequence[str]:
        """Return the backends whose target lets no host only read."""
        return [
            name
            for name, backend in self._backends.items()
            if not backend.drivers.target.abilities.enforces_read_only
        ]

    def _apply_soon(self, accesses: Accesses, seconds: float) -> _Jobs:
        """Let the target follow the rows, and wait a little; return the jobs by row."""
        by_volume: dict[tuple[str, str], list[str]] = {}
        for access in accesses:
            where = (access.row.volume_id, access.backend)
            by_volume.setdefault(where, []).append(access.row.id)
        jobs: dict[str, Future[None]] = {}
        for (volume_id, backend), ids in by_volume.items():
            jobs |= self._queues.add(volume_id, backend, ids)
        with self._patient.place(0) as place, waiting():
            wait(jobs.values(), seconds if place else 0)
        return jobs

    def _read_one(self, host: str, jobs: _Jobs = _NO_JOBS) -> HostFence:
        with self._db.reading() as connection:
            stored = {host: host_fences.of_host(connection, host)}
            return next(self._read(connection, stored, jobs))

    def _read(
        self,
        connection: Connection,
        stored: Mapping[str, Sequence[Any]],
        jobs: _Jobs = _NO_JOBS,
    ) -> Iterator[HostFence]:
        """Yield the fences of these hosts; a statement is for many of them."""
        hosts = list(stored)
        for start in range(0, len(hosts), _HOSTS_AT_ONCE):
            some = hosts[start : start + _HOSTS_AT_ONCE]
            names = {name for host in some for name in _names(stored[host])}
            by_name = _by_name(connection, names)
            for host in some:
                yield self._fence_of(host, stored[host], by_name, jobs)

    def _fence_of(
        self,
        host: str,
        stored: Sequence[Any],
        by_name: Mapping[str, Accesses],
        jobs: _Jobs,
    ) -> HostFence:
        names, kind = set(_names(stored)), host_fences.strictest(stored)
        accesses = {a.row.id: a for name in names for a in by_name.get(name, ())}
        shown = [
            _shown(access, self._why_open(access, kind, names, jobs.get(access.row.id)))
            for access in sorted(
                accesses.values(), key=lambda host: (host.row.volume_id, host.row.id)
            )
        ]
        since = min((name.created_at for name in stored), default=None)
        return HostFence(host, kind, since, sorted(names - {host}), shown)

    def _why_open(
        self,
        access: AccessOfHost,
        kind: FenceKind | None,
        names: set[str],
        job: Future[None] | None,
    ) -> str | None:
        """Return why the host may still have access, None if it has not."""
        row = access.row
        takes = row.fence in (kind, FenceKind.ALL)
        if takes and row.fenced_at is not None and row.former_initiator not in names:
            return None
        backend = self._backends.find(access.backend)
        if backend is not None and not backend.drivers.target.abilities.fences:
            return refusals.ends_no_access(backend)
        return _failure(job) or f"a write may still land: {_RUNS}"


def fence_name(host: str, field: str) -> str:
    """Return the name by which a host is fenced, which has no case.

    :raises Invalid: no host has such a name.
    """
    return plain_name(host_name(host, field))


def _start(connection: Connection, host: str, kind: FenceKind) -> set[str]:
    """Write what is taken from now on; return the names of the host."""
    stored = host_fences.of_host(connection, host)
    since = min((name.created_at for name in stored), default=now())
    if host_fences.strictest(stored) is FenceKind.ALL:
        kind = FenceKind.ALL
    names = {host, *_names(stored), *_initiators_now(connection, host)}
    host_fences.write(connection, host, names, kind, since)
    return names


def _shown(access: AccessOfHost, reason: str | None) -> FencedAccess:
    return FencedAccess(access.row, access.generation, reason)


def _by_name(connection: Connection, names: Iterable[str]) -> dict[str, Accesses]:
    """Return the attachments of these names by each name that they have."""
    by_name: dict[str, Accesses] = {}
    for access in host_accesses.of_names(connection, sorted(names)):
        for name in access.names:
            by_name.setdefault(name, []).append(access)
    return by_name


def _names(stored: Iterable[Any]) -> list[str]:
    return [row.name for row in stored]


def _initiators_now(connection: Connection, host: str) -> set[str]:
    """Return the initiators by which a host of this name has, or may have, access.

    An initiator has no other, though a client may have named a host like it.
    """
    if is_initiator(host):
        return set()
    names: set[str | None] = {*host_accesses.initiators_sent_by(connection, host)}
    for row in (each.row for each in host_accesses.of_names(connection, [host])):
        if plain_name(row.attached_host or "") == host:
            names.add(row.initiator or row.former_initiator)
        if plain_name(row.former_host or "") == host:
            names.add(row.former_initiator)
    return set(filter(None, names))


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
