# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Make the live target equal to the rows. Access changes here and nowhere else.

Attach, detach, extend, reconcile and recovery all end in ``Access.apply``. The
caller has the volume's lock, and has committed what it wants before it calls.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oslo_log import log

from lunshare.agent.backends import Backends, translated
from lunshare.agent.db import attachments, host_fences, types, volumes, write_fences
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict
from lunshare.agent.model.records import (
    Attachment,
    HostConnector,
    Mode,
    Volume,
)
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.attachments import (
    connectors,
    refusals,
    wanted_state,
    writers_policy,
)
from lunshare.agent.service.attachments.admissions import Admissions
from lunshare.agent.service.attachments.wanted_state import Wanted
from lunshare.agent.service.driver_values import driver_volume
from lunshare.agent.service.instance_gate import Check
from lunshare.agent.service.reservation_keys import allows_reservations
from lunshare.agent.service.types import qos
from lunshare.drivers import writers
from lunshare.drivers.writers import WritersPolicy

LOG = log.getLogger(__name__)

_MAX_REASON = 1024  # characters
_NOT_OPEN = frozenset({AttachStatus.RESERVED, AttachStatus.ERROR_ATTACHING})
_DELETABLE = frozenset(AttachStatus) - {AttachStatus.RESERVED, AttachStatus.DETACHED}

_MAX_REMAINING = 100  # attachments in the answer to a detach


class Access:
    """Attaches hosts to volumes, and detaches them."""

    def __init__(self, db: Database, backends: Backends) -> None:
        self._db, self._backends = db, backends
        self.admissions = Admissions(db, backends)

    def apply(
        self, volume: Volume, only: str | None = None, wanted: Wanted | None = None
    ) -> tuple[Wanted, tuple[str, ...]]:
        """Make the live export what the volume's rows ask for. Can be repeated.

        ``only`` is an initiator name: no other initiator is read or changed, so an
        attach costs the same however many hosts the volume has. A volume without
        wanted access is not exported any more. ``wanted`` is what ``read_wanted`` gave
        in the transaction that committed the intent; else it is read here. Returns
        what was wanted, and what changed as sentences for a log.

        :raises BackendFailed: access is at most what the rows ask for.
        :raises BackendUnavailable: the access is unknown. What should close gets
            no new I/O.
        """
        if wanted is None:
            with self._db.reading() as connection:
                wanted = read_wanted(connection, volume.id, only)
        accesses, backend = wanted.accesses, self._backends[volume.backend]
        allows = bool(accesses) and allows_reservations(self._db, volume)
        exported = driver_volume(volume, allows)
        with backend.for_access(only, accesses) as drivers:
            changed = drivers.apply(exported, accesses, wanted.only)
        return wanted, changed

    def check_support(
        self, volume: Volume, mode: Mode | None, former_initiator: str | None = None
    ) -> None:
        """Check that the target of the volume's backend can do this.

        :raises Conflict: it does not enforce the mode, or cannot end the access of
            the initiator that is ``former_initiator``.
        """
        backend = self._backends[volume.backend]
        target = backend.drivers.target.abilities
        if mode is Mode.RO and not target.enforces_read_only:
            raise refusals.not_enforced(backend)
        if former_initiator is not None and not target.fences:
            raise refusals.not_fenced(backend, former_initiator)

    def check_initiator(self, volume: Volume, connector: HostConnector) -> None:
        """Check that the host has named its initiator, if the target needs it.

        :raises Invalid: it has not.
        """
        if not connector.sent.get("initiator"):
            target = self._backends[volume.backend].drivers.target
            connectors.check_unnamed(target.PROTOCOL)

    def check_address(self, volume: Volume, connector: HostConnector) -> None:
        """Check that the host has named its address, if it reaches no portal else.

        :raises Invalid: it has not.
        """
        if self._backends[volume.backend].drivers.target.needs_addresses:
            connectors.check_address(connector, volume.backend)

    def attach(
        self,
        volume: Volume,
        row: Attachment,
        wanted: Wanted,
        replaced: Attachment | None = None,
    ) -> Attachment:
        """Attach the host of a row that is attaching; store its connection_info.

        ``wanted``: that of its initiator, as for ``apply``. The host that its
        connector replaced, that of the row ``replaced``, is closed before.

        :raises BackendFailed: the access is closed again, or the row says that it
            may be open.
        """
        try:
            row = self.detach_replaced(row, replaced)
            self.admissions.update(volume.backend, row)
            self.apply(volume, row.initiator, wanted)
            (info,) = self.connection_infos(volume, [(row, wanted)])
            stored: dict[str, Any] = {"connection_info": info, "attach_time": now()}
            with self._db.writing() as connection:
                attachments.set_values(connection, row.id, **stored)
        except Exception as error:
            self._record_failed_open(row, error)
            raise
        connectors.log_change("attachment connected", [row])
        return replace(row, **stored)

    def detach_replaced(
        self, row: Attachment, replaced: Attachment | None = None
    ) -> Attachment:
        """Detach the initiator that the row's connector replaced, if any.

        ``replaced`` is the row as it was: the portals are closed to its address. Where
        it is not known any more, the next reconcile does that. Return the row without
        it. Can be repeated.

        :raises BackendFailed: it may still be open, and the row still names it.
        """
        if row.former_initiator is None:
            return row
        with self._db.reading() as connection:
            volume = volumes.require_row(connection, row.volume_id)
        self.apply(volume, only=row.former_initiator)
        if replaced is not None:
            self.end_admission(volume, replaced)
        with self._db.writing() as connection:
            attachments.set_values(connection, row.id, former_initiator=None)
        return replace(row, former_initiator=None)

    def delete(
        self, attachment_id: str, check: Check | None = None
    ) -> list[Attachment]:
        """Detach the host and delete the row. Can be repeated.

        Returns up to a hundred attachments that the volume still has, in brief.
        ``check`` may refuse the row, in the transaction that ends it.

        :raises NotFound: the attachment does not exist, or is deleted.
        :raises BackendFailed: it may still be open; the row says error_detaching.
        """
        return self.delete_all({attachment_id: check})

    def delete_all(self, checks: Mapping[str, Check | None]) -> list[Attachment]:
        """Do the same for attachments of one volume, each with its check.

        :raises NotFound: one of them; none is begun.
        :raises BackendFailed: some may still be open; all say error_detaching.
        """
        with self._db.writing() as connection:
            rows = attachments.require_all(connection, checks)
            for row in rows:
                if (check := checks[row.id]) is not None:
                    check(row)
            unused = [row for row in rows if _is_unused(row)]
            remaining = _delete_rows(connection, unused, _NOT_OPEN)
            leaving = [row for row in rows if not _is_unused(row)]
            started = _start_delete(connection, leaving) if leaving else None
        if started is not None:
            self._detach(started[0], leaving, started[1])
            old = frozenset({AttachStatus.DETACHING})
            with self._db.writing() as connection:
                remaining = _delete_rows(connection, leaving, old)
        connectors.log_change("attachment detached", rows)
        return remaining

    def start_delete(self, attachment_id: str) -> None:
        """Commit that the access is not wanted; the next reconcile finishes it.

        :raises NotFound: the attachment does not exist, or is deleted.
        """
        with self._db.writing() as connection:
            _start_delete(connection, [attachments.require(connection, attachment_id)])

    def _detach(self, volume: Volume, rows: list[Attachment], wanted: Wanted) -> None:
        """Detach what the rows may have open; what fails is in each of them."""
        try:
            if initiators := {name for row in rows for name in row.initiators}:
                only = initiators.pop() if len(rows) == 1 else None
                self.apply(volume, only, wanted)
        except Exception as error:
            old, new = AttachStatus.DETACHING, AttachStatus.ERROR_DETACHING
            self._record_failure(rows, old, new, str(error))
            if isinstance(error, BackendFailed):
                raise refusals.still_open(rows, error) from error
            raise
        self.end_admission(volume, *rows)
        if self._backends[volume.backend].drivers.target.abilities.fences:
            return
        for row in rows:
            LOG.warning(
                "[%s] session not ended: attachment=%s volume=%s: its target ends no"
                " session, so the host may still have the volume open",
                row.attached_host,
                row.id,
                row.volume_id,
            )

    def move_admission(self, old: Attachment, new: Attachment) -> None:
        """Admit a host at the address that it has now, and not at its former one.

        Can be repeated: the rows may have the new address, and the portals not yet.

        :raises BackendFailed: it is not admitted there.
        """
        with self._db.reading() as connection:
            volume = volumes.require_row(connection, new.volume_id)
        self.admissions.update(volume.backend, new)
        if (old.connector or {}).get("ip") != (new.connector or {}).get("ip"):
            self.end_admission(volume, old)

    def end_admission(self, volume: Volume, *rows: Attachment) -> None:
        """Close the portals to hosts, unless other rows want them there.

        Their access is closed already; if this fails, the next reconcile repeats it.
        """
        try:
            self.admissions.update(volume.backend, *rows)
        except AgentError as error:
            LOG.warning(
                "[%s] the portals are still open to %s: attachment=%s: %s",
                rows[0].attached_host,
                f"{len(rows)} hosts" if rows[1:] else "this host",
                rows[0].id,
                error,
            )

    def detach_failed(self, row: Attachment) -> None:
        """Detach what a failed attach may have opened. Can be repeated.

        :raises BackendFailed: it may still be open, and the row still names it.
        """
        if not row.initiators:
            return
        with self._db.reading() as connection:
            volume = volumes.require_row(connection, row.volume_id)
        for initiator in row.initiators:
            self.apply(volume, only=initiator)
        self.end_admission(volume, row)
        with self._db.writing() as connection:
            attachments.set_values(
                connection, row.id, initiator=None, former_initiator=None
            )

    def connection_infos(
        self, volume: Volume, hosts: Iterable[tuple[Attachment, Wanted]]
    ) -> list[dict[str, Any]]:
        """Return connection_info of rows as it is stored: without credentials.

        Each row comes with what its own initiator wants.
        """
        specs = {"qos_specs": qos.of_volume(self._db, volume)}
        drivers = self._backends[volume.backend].drivers
        with translated():
            return [
                connectors.connection_info(drivers, volume, row, wanted) | specs
                for row, wanted in hosts
            ]

    def _record_failed_open(self, row: Attachment, why: Exception) -> None:
        """Note that the access is not wanted any more, and close it at once."""
        old, new = AttachStatus.ATTACHING, AttachStatus.ERROR_ATTACHING
        try:
            self._record_failure([row], old, new, str(why))
            self.detach_failed(row)
        except Exception as error:
            # The row still has its initiators. Reconcile retries until it is closed.
            LOG.error(
                "[%s] cleanup of a failed attach failed: attachment=%s: %s",
                row.attached_host,
                row.id,
                error,
            )

    def _record_failure(
        self,
        rows: Iterable[Attachment],
        old: AttachStatus,
        new: AttachStatus,
        why: str,
    ) -> None:
        reason = why[:_MAX_REASON]
        which: dict[str, dict[str, Any]] = {row.id: {} for row in rows}
        with self._db.writing() as connection:
            attachments.change_all(connection, which, {old}, new, status_reason=reason)


def read_wanted(connection: Connection, volume_id: str, only: str | None) -> Wanted:
    """Return the access that the volume's rows ask for, of one initiator or of all."""
    if only is None:
        rows = attachments.with_initiator(connection, volume_id)
        return wanted_state.of_volume(rows)
    return read_parts(connection, volume_id, [only])[only]


def read_parts(
    connection: Connection, volume_id: str, initiators: Sequence[str]
) -> dict[str, Wanted]:
    """Return what each of these initiators wants alone."""
    rows_of = attachments.of_initiators(connection, volume_id, initiators)
    is_wanted = functools.cache(partial(attachments.any_wanted, connection, volume_id))
    return {
        name: wanted_state.of_initiator(name, rows, others=is_wanted)
        for name, rows in rows_of.items()
    }


def allowed_mode(
    connection: Connection,
    volume: Volume,
    row: Attachment,
    mode: Mode,
    *,
    asked: bool,
) -> Mode:
    """Return what ``ModeDecision.allowed_mode`` does, for one row; raise the same."""
    return ModeDecision(connection, volume).allowed_mode(row, mode, asked=asked)


class ModeDecision:
    """Which modes a volume's writers policy leaves, read once in a transaction."""

    def __init__(self, connection: Connection, volume: Volume) -> None:
        self._connection, self._volume = connection, volume
        self._policy = read_policy(connection, volume)

    def allowed_mode(self, row: Attachment, mode: Mode, *, asked: bool) -> Mode:
        """Return the mode that the policy leaves of ``mode`` for a row.

        ``asked``: a client has named the mode for this row; else it is a default.

        :raises Conflict: it is rw, and the policy does not allow what has been asked
            for, or a handover is pending.
        """
        if policy := self._policy:
            why = partial(writers_policy.refusal, policy, row, lambda: self._present)
            mode = wanted_state.lower_mode(mode, why, asked=asked)
        if mode is not Mode.RO and self._is_handed_over:
            raise refusals.handover_pending(self._volume.id)
        return mode

    def add(self, row: Attachment) -> None:
        """Count a row that this transaction inserts later."""
        if self._policy is not None and row.mode is not Mode.RO:
            self._present.append(row)

    @functools.cached_property
    def _present(self) -> list[Attachment]:
        return unfenced_writers(self._connection, self._volume.id)

    @functools.cached_property
    def _is_handed_over(self) -> bool:
        state = write_fences.handover(self._connection, self._volume.id)
        return write_fences.is_open(state)


def check_writers(connection: Connection, volume: Volume) -> None:
    """Check that a volume's policy, as it is now, allows the access that hosts have.

    :raises Conflict: names the attachments in the way.
    """
    policy = read_policy(connection, volume)
    if policy is None:
        return
    present = unfenced_writers(connection, volume.id)
    rows = writers_policy.excluded(policy, present)
    if rows:
        raise refusals.writers_in_the_way(volume.id, rows)


def unfenced_writers(connection: Connection, volume_id: str) -> list[Attachment]:
    """Return the attachments of a volume whose hosts may be writing."""
    rows = attachments.writers(connection, volume_id)
    return [row for row in rows if not row.is_fenced]


def available_volume(connection: Connection, row: Attachment) -> Volume:
    """Return the volume of an attachment.

    :raises NotFound: the volume.
    :raises Conflict: an operation works on it, or its status is an error.
    """
    volume = volumes.require_row(connection, row.volume_id)
    if volume.own_status is not VolumeStatus.AVAILABLE:
        raise Conflict(f"volume {volume.id} is {volume.status}; it must be available")
    return volume


def check_not_fenced(
    connection: Connection, field: str, initiator: str | None, host: str | None
) -> None:
    """Check that a host may have access.

    :raises Conflict: it is fenced; the sentence begins with ``field``.
    """
    for fence in host_fences.find(connection, initiator, host):
        raise refusals.host_fenced(field, host or initiator, fence)


def read_policy(connection: Connection, volume: Volume) -> WritersPolicy | None:
    """Return the writers policy of a volume, None if it has none."""
    type_id = volume.volume_type_id
    specs = types.get_specs(connection, type_id) if type_id else {}
    return writers.policy(volume.metadata, specs)


def _is_unused(row: Attachment) -> bool:
    """Whether the target can have nothing of this row."""
    return not row.initiators and row.status in _NOT_OPEN


def _start_delete(
    connection: Connection, rows: Sequence[Attachment]
) -> tuple[Volume, Wanted]:
    """Write that no access is wanted. Return what these initiators still want."""
    which: dict[str, dict[str, Any]] = {row.id: {} for row in rows}
    attachments.change_all(connection, which, _DELETABLE, AttachStatus.DETACHING)
    volume = volumes.require_row(connection, rows[0].volume_id)
    initiators = dict.fromkeys(name for row in rows for name in row.initiators)
    parts = read_parts(connection, volume.id, list(initiators))
    return volume, wanted_state.of_initiators(parts)


def _delete_rows(
    connection: Connection, rows: Sequence[Attachment], old: frozenset[AttachStatus]
) -> list[Attachment]:
    """Delete rows of one volume; return attachments that it still has."""
    if not rows:
        return []
    attachments.remove(connection, [row.id for row in rows], old)
    return attachments.brief_of_volume(connection, rows[0].volume_id, _MAX_REMAINING)
