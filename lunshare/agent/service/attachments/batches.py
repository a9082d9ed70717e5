# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attach many hosts to a volume, or detach them: all of them, or none.

The rows of a batch are one commit, their access is one ``apply``, and that it is open
is one commit again. A failure, or the next start after a kill, takes back all rows, as
it takes back the row of one host.

A request that is repeated has to find the rows of the first one. So their ids are not
random: they begin with a hash of the request's key, and end with one of its content.
Nothing else is stored, and a key is known as long as its rows are, deleted ones too.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import orjson
from oslo_log import log

from lunshare.agent.db import attachments, host_fences, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError, Conflict, Invalid
from lunshare.agent.model.records import (
    Attachment,
    HostConnector,
    NewAttachment,
    NewBatch,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import AttachStatus
from lunshare.agent.service.attachments import connectors, wanted_state
from lunshare.agent.service.attachments.access import (
    Access,
    ModeDecision,
    check_not_fenced,
    read_parts,
)
from lunshare.agent.service.attachments.connectors import with_secrets
from lunshare.agent.service.attachments.service import Attachments, claim, new_row
from lunshare.agent.service.attachments.wanted_state import Wanted
from lunshare.agent.service.instance_gate import InstanceGate
from lunshare.agent.service.reservation_keys import ReservationKeys
from lunshare.agent.service.sharing import check_visible
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_INDEX_BITS, _CONTENT_BITS = 12, 50
_VARIANT = 0b10 << (_INDEX_BITS + _CONTENT_BITS)  # RFC 9562, version 8

Rows = list[Attachment]


class Batches:
    """Many hosts of one volume at once."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        *,
        single: Attachments,
        gate: InstanceGate,
        keys: ReservationKeys,
    ) -> None:
        """``single`` decides about each host, as about one that comes alone."""
        self._db, self._access, self._locks = db, access, locks
        self._single, self._gate, self._keys = single, gate, keys

    def attach(self, ctx: RequestContext, new: NewBatch) -> Rows:
        """Open the volume to all hosts; return their attachments with credentials.

        The same request again returns the same, and changes nothing.

        :raises NotFound: the volume.
        :raises Invalid: a connector, the volume, or too many attachments.
        :raises Conflict: a host may not have it so, or the key is of another request.
        :raises BackendFailed: nothing is open, or the rows say error_detaching.
        """
        check_visible(self._db, ctx, new.volume_id)
        _check_once(new.hosts)
        refusal = self._single.refusal_of_second(ctx)
        purpose = f"the attach of {len(new.hosts)} hosts"
        with self._locks.volume(new.volume_id, purpose):
            with self._db.writing() as connection:
                earlier = _find_earlier(connection, ctx, new)
                if earlier is None:
                    volume, rows = self._start(connection, ctx, new, refusal)
                    names = [str(row.initiator) for row in rows]
                    accesses = read_parts(connection, volume.id, names)
            if earlier is None:
                earlier = self._open(volume, rows, accesses)
        return [with_secrets(row) for row in earlier]

    def detach(
        self,
        ctx: RequestContext,
        volume_id: str,
        attachment_ids: Sequence[str],
        force: bool = False,
    ) -> Rows:
        """Close the access of these attachments, and delete them.

        With ``force`` also of hosts that have the key of a reservation. Returns what is
        left, as ``Attachments.delete``.

        :raises NotFound: the volume, or it has no such attachment; nothing is begun.
        :raises Conflict: a server of Nova uses one, or its host has such a key; nothing
            is begun.
        :raises BackendFailed: some may still be open; they are error_detaching.
        """
        with self._db.reading() as connection:
            volumes.require_row(connection, volume_id, ctx)
            rows = attachments.require_all(connection, attachment_ids, volume_id)
        checks = {row.id: self._gate.check_detach(ctx, row) for row in rows}
        with self._locks.volume(volume_id, f"the detach of {len(rows)} hosts"):
            if not force:
                self._keys.check_detach(volume_id, checks)
            return self._access.delete_all(checks)

    def _start(
        self,
        connection: Connection,
        ctx: RequestContext,
        new: NewBatch,
        refusal: AgentError | None,
    ) -> tuple[Volume, Rows]:
        """Write the rows."""
        volume = claim(connection, ctx, new.volume_id, refusal)
        decision, ids = ModeDecision(connection, volume), _keyed_ids(ctx, new)
        reserved, rows = NewAttachment(volume.id, mode=new.mode), list[Attachment]()
        names = [host.initiator for host in new.hosts]
        rows_of = attachments.of_initiators(connection, volume.id, names)
        fences = host_fences.find(
            connection, *names, *(host.host for host in new.hosts)
        )
        for index, host in enumerate(new.hosts):
            with _named(index, host):
                if fences:
                    check_not_fenced(connection, "connector", host.initiator, host.host)
                row = new_row(ctx, volume, reserved, ids.id(index))
                same = rows_of[host.initiator]
                row = self._single.intend(volume, row, host, decision, same)
            decision.add(row)
            rows.append(row)
        attachments.insert(connection, *rows)
        if len(rows) > 1:  # what a second host may, any further one may
            claim(connection, ctx, volume.id, refusal)
        return volume, rows

    def _open(self, volume: Volume, rows: Rows, accesses: Mapping[str, Wanted]) -> Rows:
        """Open the access of all rows, or of none."""
        try:
            self._access.admissions.update(volume.backend, *rows)
            self._access.apply(volume, wanted=wanted_state.of_initiators(accesses))
            hosts = [(row, accesses[str(row.initiator)]) for row in rows]
            infos = self._access.connection_infos(volume, hosts)
            opened = [
                replace(
                    row,
                    status=AttachStatus.ATTACHED,
                    connection_info=info,
                    attach_time=now(),
                    answered=True,  # the key finds it
                )
                for row, info in zip(rows, infos, strict=True)
            ]
            with self._db.writing() as connection:
                _write_open(connection, opened)
        except Exception:
            self._take_back(rows)
            raise
        connectors.log_change("attachment connected", opened)
        return opened

    def _take_back(self, rows: Rows) -> None:
        try:
            self._access.delete_all({row.id: None for row in rows})
        except AgentError as error:
            # Each row is error_detaching, and reconcile retries until it is closed.
            LOG.error(
                "[%s] cleanup of a failed attach of %s hosts failed: volume=%s: %s",
                rows[0].id,
                len(rows),
                rows[0].volume_id,
                error,
            )


@dataclass(frozen=True, slots=True)
class _KeyedIds:
    """The ids that the rows of a request have."""

    key: int
    content: int

    def id(self, index: int) -> str:
        """Return that of one host, by its place in the request."""
        low = _VARIANT | index << _CONTENT_BITS | self.content
        # 48 bits, the version, and 12 more.
        high = (self.key >> 12) << 16 | 0x8000 | self.key & 0xFFF
        return str(uuid.UUID(int=high << 64 | low))

    @property
    def range(self) -> tuple[str, str]:
        """The first and last id that rows of this key can have."""
        last = _KeyedIds(self.key, (1 << _CONTENT_BITS) - 1)
        return _KeyedIds(self.key, 0).id(0), last.id((1 << _INDEX_BITS) - 1)


def _keyed_ids(ctx: RequestContext, new: NewBatch) -> _KeyedIds:
    return _KeyedIds(
        _hash([ctx.project_id, new.volume_id, new.key], 60),
        _hash([new.mode, [host.sent for host in new.hosts]], _CONTENT_BITS),
    )


def _hash(value: object, bits: int) -> int:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.sha256(text).digest(), "big") >> (256 - bits)


def _find_earlier(
    connection: Connection, ctx: RequestContext, new: NewBatch
) -> Rows | None:
    """Return the attachments of this request, if it was carried out before.

    What has never been open is forgotten: the request has failed, or was killed.

    :raises Conflict: the key is of another request, or they are not as they were.
    """
    ids = _keyed_ids(ctx, new)
    stored = attachments.in_range(connection, *ids.range)
    if not stored:
        return None
    if not any(row.attach_time for row in stored):
        if any(row.status is not AttachStatus.DETACHED for row in stored):
            raise _not_taken_back(new)
        attachments.forget(connection, [row.id for row in stored])
        return None
    if [row.id for row in stored] != [ids.id(i) for i in range(len(new.hosts))]:
        raise Conflict(
            f"lunshare:attach.key: {new.key} was the key of another request; give each"
            " list of hosts a key of its own"
        )
    for row in stored:
        if row.status is not AttachStatus.ATTACHED:
            raise Conflict(
                f"lunshare:attach.key: attachment {row.id} of the request with the key"
                f" {new.key} is {row.status} since; give a new key to attach these"
                " hosts again"
            )
    return attachments.require_all(connection, [row.id for row in stored])


def _not_taken_back(new: NewBatch) -> Conflict:
    return Conflict(
        f"lunshare:attach.key: the request with the key {new.key} has failed, and not"
        " all of its hosts are known to be closed; each reconcile tries again, and then"
        " this request can be repeated"
    )


def _write_open(connection: Connection, rows: Rows) -> None:
    changed = {
        row.id: {
            "connection_info": row.connection_info,
            "attach_time": row.attach_time,
            "answered": row.answered,
        }
        for row in rows
    }
    old, new = {AttachStatus.ATTACHING}, AttachStatus.ATTACHED
    attachments.change_all(connection, changed, old, new)


def _check_once(hosts: Sequence[HostConnector]) -> None:
    """:raises Invalid: an initiator is named twice."""
    places: dict[str, int] = {}
    for index, host in enumerate(hosts):
        first = places.setdefault(host.initiator, index)
        if first != index:
            raise Invalid(
                f"lunshare:attach.hosts.{index}: its initiator {host.initiator} is that"
                f" of hosts.{first} too; name each host once"
            )


@contextmanager
def _named(index: int, host: HostConnector) -> Iterator[None]:
    """Say in an error which host it is about."""
    try:
        yield
    except AgentError as error:
        error.begin_with(f"lunshare:attach.hosts.{index}, host {host.host}")
        raise
