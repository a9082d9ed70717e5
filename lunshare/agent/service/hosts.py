# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which host uses which volume: the attachments, compared with the live target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from lunshare.agent.backends import Backends, NodeBackend
from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import AgentError, BackendUnavailable, NotFound
from lunshare.agent.model.operator_records import HostAccess
from lunshare.agent.model.page_rows import PageRows, fill, json_bytes
from lunshare.agent.model.records import Attachment, NamedVolume, RequestContext
from lunshare.agent.service import verifier
from lunshare.agent.service.attachments import lease_terms, wanted_state
from lunshare.agent.threads.limit import Limit
from lunshare.drivers.values import LiveConnector, LiveExport, Registration

#: Live exports by volume id; and by backend why it could not be read.
Live = tuple[dict[str, LiveExport], dict[str, str]]

Lines = PageRows[HostAccess]

# So many threads may read the access of one host at once, for answers that can do
# without; others wait so many seconds for that.
_READERS, _PATIENCE = 2, 0.5


class Hosts:
    """The hosts of this node's volumes."""

    def __init__(
        self,
        db: Database,
        backends: Backends,
        verified_at: Callable[[str], datetime | None],
    ) -> None:
        """``verified_at`` returns when a volume's target was last found right."""
        self._db, self._backends, self._verified_at = db, backends, verified_at
        self._readers = {name: Limit(_READERS) for name in backends}

    def list(
        self,
        ctx: RequestContext,
        volume_id: str | None = None,
        limit: int = 1000,
        marker: str | None = None,
    ) -> Lines:
        """Return a page of the hosts of one volume, or of all, by volume.

        A line for each attachment, the oldest first. ``marker``: that of the line
        before. The lines of a backend that does not answer say so.

        :raises NotFound: the volume, or the marker.
        """
        live = self._read_live(volume_id)
        with self._db.reading() as connection:
            lines = self._lines(connection, live, volume_id, marker)
            return fill(_after(lines, marker), limit, _bytes)

    def of_attachment(self, row: Attachment) -> HostAccess | None:
        """Return the access of one attachment's host; None where it has no host yet.

        Its cost does not depend on what other hosts the volume has. Of a target that
        does not answer within a second ``problem`` says so. What an operation changes
        at this moment is no problem.
        """
        initiator = row.initiator
        if initiator is None:
            return None
        with self._db.reading() as connection:
            (volume,) = volumes.named_as(connection, [row.volume_id])
            rows = attachments.of_initiator(connection, volume.id, initiator)
        export, why = self._read_host(volume, initiator)
        lines = compare(volume, rows, export, why)
        line = next((line for line in lines if line.attachment_id == row.id), None)
        if line is None:  # it was deleted meanwhile
            return None
        if not why and not self._reports(volume.backend):
            line = _unreported(line)
        elif not why and verifier.unfinished(rows):
            line = replace(line, problem="")
        return replace(line, verified_at=self._verified_at(volume.id))

    def _read_host(self, volume: NamedVolume, initiator: str) -> tuple[LiveExport, str]:
        """Return what the target has of one host, and why that was not read, or ""."""
        name = volume.backend
        try:
            connector = self._observe_host(self._backends[name], volume.id, initiator)
        except AgentError as error:
            return LiveExport(volume.id, ()), _unanswered(name, error)
        return LiveExport(volume.id, (connector,) if connector else ()), ""

    def _observe_host(
        self, backend: NodeBackend, volume_id: str, initiator: str
    ) -> LiveConnector | None:
        if backend.problem is not None:
            raise BackendUnavailable(backend.problem)
        with self._readers[backend.name].place(_PATIENCE) as reader:
            if reader is None:
                raise BackendUnavailable("others wait for it already")
            with backend.for_job() as driver:
                return driver.target.observe_host(volume_id, initiator)

    def _reports(self, name: str) -> bool:
        """Whether the target of a backend reports what its hosts have."""
        backend = self._backends.find(name)
        return backend is None or backend.drivers.target.abilities.observes

    def _lines(
        self,
        connection: Connection,
        live: Live,
        volume_id: str | None,
        marker: str | None,
    ) -> Iterator[HostAccess]:
        """Yield the lines from the volume of the marker on, a volume at a time."""
        exports, unread = live
        ids = [volume_id] if volume_id else attachments.with_hosts(connection)
        first = (marker or "").partition(",")[0]
        for ident in sorted({*ids, *exports}):
            if ident < first:
                continue
            for volume in volumes.named_as(connection, [ident]):  # not of an orphan
                export = exports.get(ident)
                why = unread.get(volume.backend) or (export.unread if export else None)
                rows = attachments.with_initiator(connection, ident)
                verified = self._verified_at(ident)
                known = why or self._reports(volume.backend)
                for line in compare(volume, rows, export, why):
                    shown = line if known else _unreported(line)
                    yield replace(shown, verified_at=verified)

    def _read_live(self, volume_id: str | None) -> Live:
        live: dict[str, LiveExport] = {}
        unread: dict[str, str] = {}
        for name in self._names(volume_id):
            try:
                for export in _observe(self._backends[name], volume_id):
                    live[export.volume_id] = export
            except AgentError as error:
                unread[name] = _unanswered(name, error)
        return live, unread

    def _names(self, volume_id: str | None) -> Collection[str]:
        """Return the backends to read."""
        if volume_id is None:
            return [*self._backends]
        with self._db.reading(one_statement=True) as connection:
            return [volumes.require_row(connection, volume_id).backend]


def _after(lines: Iterator[HostAccess], marker: str | None) -> Iterator[HostAccess]:
    """Return the lines behind the marker.

    :raises NotFound: no line has it any more.
    """
    if marker is not None and not any(line.marker == marker for line in lines):
        raise NotFound("marker: host", marker)
    return lines


def _bytes(line: HostAccess) -> int:
    return json_bytes(line.addresses, line.reservation_keys, line.problem)


def _unanswered(backend: str, error: AgentError) -> str:
    return f"backend {backend} does not answer: {error}"


def _unreported(line: HostAccess) -> HostAccess:
    """What is known of a host where the target reports none, as NFS."""
    return replace(line, sessions=None, addresses=None, problem="")


def _observe(backend: NodeBackend, volume_id: str | None) -> tuple[LiveExport, ...]:
    if backend.problem is not None:
        raise BackendUnavailable(backend.problem)
    with backend.for_request() as driver:
        if volume_id is None:
            return driver.target.observe()
        export = driver.target.observe_volume(volume_id)
        return (export,) if export else ()


def compare(
    volume: NamedVolume,
    rows: Iterable[Attachment],
    export: LiveExport | None,
    unread: str | None,
) -> Iterator[HostAccess]:
    """Return a line for each attachment, then for each access without one. Pure."""
    rows = [row for row in rows if row.initiator]
    modes = {
        access.initiator: access.mode for access in wanted_state.list_accesses(rows)
    }
    accesses = export.connectors if export else ()
    live = {access.initiator: access for access in accesses}
    keys: dict[str, list[Registration]] = {}
    for key in export.registrations if export else ():
        keys.setdefault(key.initiator, []).append(key)
    for row in rows:
        initiator = str(row.initiator)
        line = _live_line(volume, initiator, live.get(initiator), unread)
        line = _with_keys(line, keys.get(initiator, ()))
        mode = modes.get(initiator)
        yield replace(
            line,
            host=row.attached_host,
            attachment_id=row.id,
            mode=row.mode,
            status=row.status,
            lease=lease_terms.state(row),
            fence=_fence(row),
            problem=unread or _disagreement(mode, line.allowed, export),
        )
    for initiator in sorted(live.keys() - {row.initiator for row in rows}):
        problem = "no attachment asks for this access; the next reconcile closes it"
        line = _live_line(volume, initiator, live[initiator], unread)
        yield replace(line, problem=problem)
    for initiator, why in export.remains if export else ():
        if why and initiator not in live:
            line = _live_line(volume, initiator, None, unread)
            yield replace(line, problem=why)


def _disagreement(
    mode: str | None, allowed: str | None, export: LiveExport | None
) -> str:
    if mode is None:
        return "" if allowed is None else f"still open ({allowed}) in the target"
    if allowed != mode:
        return f"the database says {mode}, the target allows {allowed or 'nothing'}"
    if export is not None and not export.enabled:
        return "the target is disabled: no host can log in"
    return ""


def _fence(row: Attachment) -> str | None:
    if row.is_fencing:
        return "fence pending"
    return "fenced" if row.is_fenced else None


def _with_keys(line: HostAccess, own: Iterable[Registration]) -> HostAccess:
    return replace(
        line,
        reservation_keys=tuple(key.key for key in own),
        reservation=next((key.holds for key in own if key.holds), None),
    )


def _live_line(
    volume: NamedVolume, initiator: str, seen: LiveConnector | None, unread: str | None
) -> HostAccess:
    return HostAccess(
        volume_id=volume.id,
        volume_name=volume.name,
        backend=volume.backend,
        initiator=initiator,
        allowed=seen.mode if seen else None,
        sessions=None if unread else seen.sessions if seen else 0,
        addresses=None if unread else seen.addresses if seen else (),
        refused_mib=seen.refused_mib if seen else None,
    )
