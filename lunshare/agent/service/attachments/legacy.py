# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The actions of a volume that attached hosts before there were attachments.

os-reserve makes an attachment without a host, os-initialize_connection opens it,
os-attach completes it, and so on: each action is a change of rows of the same model.
No action names an attachment except os-detach, so each has a rule which one it means,
and does nothing where that would be a guess about another host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oslo_log import log

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError, BackendFailed, Conflict, Invalid
from lunshare.agent.model.records import (
    Attachment,
    HostConnector,
    Mode,
    NewAttachment,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import AttachStatus, VolumeStatus
from lunshare.agent.service.attachments import (
    connectors,
    legacy_choice,
    plain_volumes,
    refusals,
    wanted_state,
)
from lunshare.agent.service.attachments.access import (
    Access,
    allowed_mode,
    check_not_fenced,
    read_wanted,
)
from lunshare.agent.service.attachments.connectors import with_secrets
from lunshare.agent.service.attachments.service import Attachments
from lunshare.agent.service.instance_gate import Check, InstanceGate
from lunshare.agent.service.reservation_keys import ReservationKeys
from lunshare.agent.service.sharing import check_visible
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

RESERVE, CONNECT, ATTACH = "os-reserve", "os-initialize_connection", "os-attach"

_ATTACHED = AttachStatus.ATTACHED
_ATTACHING = AttachStatus.ATTACHING


class LegacyActions:
    """Attaches and detaches hosts by actions of a volume."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        *,
        rows: Attachments,
        gate: InstanceGate,
        keys: ReservationKeys,
    ) -> None:
        self._db, self._access, self._locks = db, access, locks
        self._rows, self._gate, self._keys = rows, gate, keys

    def reserve(self, ctx: RequestContext, volume_id: str) -> None:
        """Keep the volume for a host that will follow; its status is attaching.

        :raises NotFound: the volume.
        :raises Invalid: its status allows no attachment, or no second one.
        """
        new = NewAttachment(volume_id, legacy=RESERVE)
        row = self._rows.commit_reservation(ctx, new)
        self._rows.unanswered.answer_sent(row)

    def unreserve(self, ctx: RequestContext, volume_id: str) -> None:
        """Give up a reservation; does nothing where there is none.

        :raises NotFound: the volume.
        """
        check_visible(self._db, ctx, volume_id)
        with self._locks.volume(volume_id, "the end of a reservation"):
            with self._db.reading() as connection:
                volume = volumes.require(connection, volume_id, ctx)
                rows = attachments.legacy(connection, volume_id)
            row = legacy_choice.to_unreserve(rows, volume.multiattach)
            if row is not None:
                self._access.delete(row.id)

    def initialize(
        self, ctx: RequestContext, volume_id: str, connector: HostConnector
    ) -> Attachment:
        """Open the volume to a host. The same host again changes its address only.

        It uses a reservation, and makes an attachment where there is none. A host
        that has a plain volume by the attachments API gets its connection.

        :raises NotFound: the volume.
        :raises Invalid: its status allows no attachment, or no second one.
        :raises Conflict: the initiator has it in the other mode.
        :raises BackendFailed: it is not open; repeat, or unreserve.
        """
        check_visible(self._db, ctx, volume_id)
        refusal = self._rows.refusal_of_second(ctx)
        with self._locks.volume(volume_id, f"the attach of host {connector.host}"):
            with self._db.reading() as connection:
                volume = volumes.require(connection, volume_id, ctx)
                rows = attachments.legacy(connection, volume_id)
                if not rows and not volume.multiattach:
                    rows = _open_rows(connection, volume_id, connector)
            row = legacy_choice.to_connect(rows, connector.initiator)
            if row is not None and connectors.is_open(row, connector):
                return self._rows.refresh(row, connector)
            if row is not None:
                self._access.detach_replaced(row)
            with self._db.writing() as connection:
                volume, row = self._row_to_connect(
                    connection, ctx, volume_id, connector, refusal
                )
                confirmed = replace(row, answered=True)  # opened again, not repeated
                row = self._rows.start_attach(connection, volume, confirmed, connector)
                wanted = read_wanted(connection, volume.id, row.initiator)
            try:
                return with_secrets(self._access.attach(volume, row, wanted, confirmed))
            except Exception:
                if row.legacy == CONNECT:
                    self._rows.delete_failed(row)
                raise

    def attach(
        self,
        ctx: RequestContext,
        volume_id: str,
        mountpoint: str,
        *,
        instance: str | None,
        host: str | None,
        mode: Mode | None,
    ) -> None:
        """Note that a host or a server uses the volume, and where. Can be repeated.

        An access in another mode is changed to ``mode`` before that.

        :raises NotFound: the volume.
        :raises Invalid: its status allows no attachment; it is readonly and the mode
            rw; ``host`` is no name; or several hosts are being attached and ``host`` is
            none of them.
        :raises Conflict: the initiator has it in the other mode, or the writers policy
            does not allow rw.
        :raises BackendFailed: the mode could not be changed; nothing is open.
        """
        if host is not None:
            host = connectors.host_name(host, "os-attach.host_name")
        check_visible(self._db, ctx, volume_id)
        refusal = self._rows.refusal_of_second(ctx)
        with self._locks.volume(volume_id, f"the attach at {mountpoint}"):
            with self._db.reading() as connection:
                volume = volumes.require(connection, volume_id, ctx)
                rows = attachments.legacy(connection, volume_id)
            if legacy_choice.is_attached(rows, instance, host):
                return
            chosen = legacy_choice.to_attach(rows, host, volume.multiattach)
            if chosen is not None:
                self._access.detach_replaced(chosen)
            with self._db.writing() as connection:
                volume, row = self._row_to_attach(
                    connection, ctx, volume_id, (instance, host), refusal
                )
                attached_host = host or row.attached_host
                check_not_fenced(
                    connection, "os-attach.host_name", row.initiator, attached_host
                )
                wanted_state.check_writable(volume, mode)
                named = replace(
                    row,
                    instance_uuid=instance or row.instance_uuid,
                    attached_host=attached_host,
                )
                new_mode = allowed_mode(
                    connection,
                    volume,
                    named,
                    wanted_state.choose_open_mode(volume, mode, row.mode),
                    asked=mode is not None,
                )
                self._access.check_support(volume, new_mode)
                wanted = None
                if row.initiator is not None and row.mode is not new_mode:
                    row = self._change_mode(connection, volume, row, new_mode)
                    wanted = read_wanted(connection, volume.id, row.initiator)
            if wanted is not None:
                self._access.attach(volume, row, wanted)
            with self._db.writing() as connection:
                is_changed = attachments.change_status(
                    connection,
                    row.id,
                    {_ATTACHING},
                    _ATTACHED,
                    mode=new_mode,
                    mountpoint=mountpoint,
                    instance_uuid=instance or row.instance_uuid,
                    attached_host=attached_host,
                    attach_time=now(),
                    answered=True,
                )
            if not is_changed:  # os-force_delete ends a reservation without this lock
                raise refusals.changed_meanwhile(volume_id)

    def begin_detaching(self, ctx: RequestContext, volume_id: str) -> None:
        """Announce a detach: the volume is detaching, and its host still has it.

        Of several attached hosts it is unknown which one is meant, and the volume
        stays in-use.

        :raises NotFound: the volume.
        :raises Invalid: it is not in-use.
        """
        with self._db.writing() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            if volume.status is not VolumeStatus.IN_USE:
                raise Invalid(
                    f"Invalid volume: volume {volume_id} is {volume.status} and cannot"
                    " be detached; it must be in-use"
                )
            attached = [r for r in volume.attachments if r.status is _ATTACHED]
            if len(attached) == 1:
                attachments.set_values(connection, attached[0].id, announced=True)

    def roll_detaching(self, ctx: RequestContext, volume_id: str) -> None:
        """Withdraw the announcement; does nothing where there is none.

        :raises NotFound: the volume.
        """
        with self._db.writing() as connection:
            for row in volumes.require(connection, volume_id, ctx).attachments:
                if row.announced:
                    attachments.set_values(connection, row.id, announced=False)

    def terminate(
        self, ctx: RequestContext, volume_id: str, connector: HostConnector | None
    ) -> None:
        """Detach a host; its attachment stays until os-detach.

        None is the only host, if there is one. Another attachment of the same
        initiator keeps its access. Can be repeated.

        :raises NotFound: the volume.
        :raises Invalid: several hosts have it, and none is named.
        :raises Conflict: the host has it by an attachment of the attachments API, or
            a server of Nova uses it, or it has the key of a reservation.
        :raises BackendFailed: it may still be open. Repeat it; each reconcile also
            tries again.
        """
        initiator = self._initiator(ctx, volume_id, connector)
        attachment = initiator and self._to_terminate(ctx, volume_id, initiator)
        if not initiator or not attachment:
            return
        check = self._gate.check_detach(ctx, attachment)
        with self._locks.volume(volume_id, f"the end of host {initiator}"):
            row = self._to_terminate(ctx, volume_id, initiator)
            if row is None:
                return
            self._keys.check_detach(volume_id, [row.id])
            if row.legacy == CONNECT and row.status is not _ATTACHED:
                self._access.delete(row.id, check)
            else:
                self._detach(row, initiator, check)

    def _initiator(
        self, ctx: RequestContext, volume_id: str, connector: HostConnector | None
    ) -> str | None:
        """Return that of the connector, or without one the only one of the volume."""
        with self._db.reading() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            rows = [] if connector else attachments.of_volume(connection, volume_id)
        if connector is not None:
            self._access.check_initiator(volume, connector)
            return connector.initiator
        return legacy_choice.only_initiator(rows, volume_id)

    def _to_terminate(
        self, ctx: RequestContext, volume_id: str, initiator: str
    ) -> Attachment | None:
        with self._db.reading() as connection:
            volumes.require(connection, volume_id, ctx)
            rows = attachments.legacy(connection, volume_id)
            same = attachments.of_initiator(connection, volume_id, initiator)
        row = legacy_choice.to_terminate(rows, initiator)
        if row is None:
            _check_unknown(same)
        return row

    def detach(
        self, ctx: RequestContext, volume_id: str, attachment_id: str | None
    ) -> None:
        """Detach the host and delete the attachment, as DELETE /attachments does.

        Without an id it is the only one. A volume without any is left as it is.

        :raises NotFound: the volume, or it has no such attachment.
        :raises Invalid: it has several, and no id is given.
        :raises Conflict: a server of Nova uses it, or its host has the key of a
            reservation.
        :raises BackendFailed: the access may still be open; repeat it.
        """
        with self._db.reading() as connection:
            volume = volumes.require(connection, volume_id, ctx)
            chosen = legacy_choice.to_detach(volume, attachment_id, "os-detach")
            row = attachments.get(connection, chosen) if chosen else None
        if row is None:
            return
        check = self._gate.check_detach(ctx, row)
        with self._locks.volume(volume_id, "a detach"):
            self._keys.check_detach(volume_id, [row.id])
            self._access.delete(row.id, check)

    def _row_to_connect(
        self,
        connection: Connection,
        ctx: RequestContext,
        volume_id: str,
        connector: HostConnector,
        refusal: AgentError | None,
    ) -> tuple[Volume, Attachment]:
        rows = attachments.legacy(connection, volume_id)
        row = legacy_choice.to_connect(rows, connector.initiator)
        if row is None:
            new = NewAttachment(volume_id, legacy=CONNECT)
            return self._rows.reserve(connection, ctx, new, refusal)
        volume = _require_available(connection, ctx, volume_id)
        plain_volumes.check_single(connection, volume, row)
        return volume, row

    def _row_to_attach(
        self,
        connection: Connection,
        ctx: RequestContext,
        volume_id: str,
        of: tuple[str | None, str | None],
        refusal: AgentError | None,
    ) -> tuple[Volume, Attachment]:
        instance, host = of
        rows = attachments.legacy(connection, volume_id)
        volume = volumes.require(connection, volume_id, ctx)
        row = legacy_choice.to_attach(rows, host, volume.multiattach)
        if row is None:
            new = NewAttachment(volume_id, instance, legacy=ATTACH)
            return self._rows.reserve(connection, ctx, new, refusal)
        return _require_available(connection, ctx, volume_id), row

    def _change_mode(
        self, connection: Connection, volume: Volume, row: Attachment, mode: Mode
    ) -> Attachment:
        """Write the mode that os-attach names for an access in the other one.

        A host that loses write access counts as a writer until its writes have landed.
        """
        same = attachments.of_initiator(connection, volume.id, str(row.initiator))
        other = wanted_state.find_other_mode(same, row.id, mode)
        if other is not None:
            raise refusals.mixed_modes(other, mode)
        values: dict[str, Any] = {
            "mode": mode,
            "former_initiator": row.initiator if mode is Mode.RO else None,
        }
        attachments.change_status(
            connection, row.id, {_ATTACHING}, _ATTACHING, **values
        )
        return replace(row, **values)

    def _detach(self, row: Attachment, initiator: str, check: Check) -> None:
        """Commit that the initiator leaves the row, then detach it."""
        before = row
        if row.initiator == initiator:
            row = self._access.detach_replaced(row)
            values: dict[str, Any] = {
                "initiator": None,
                "former_initiator": initiator,
                "connector": None,
                "connection_info": None,
                "announced": row.status is _ATTACHED,
            }
            with self._db.writing() as connection:
                check(row)
                attachments.set_values(connection, row.id, **values)
            row = replace(row, **values)
        try:
            self._access.detach_replaced(row, before)
        except BackendFailed as error:
            LOG.error(
                "[%s] access not closed: attachment=%s: %s",
                row.attached_host,
                row.id,
                error,
            )
            raise


def _open_rows(
    connection: Connection, volume_id: str, connector: HostConnector
) -> list[Attachment]:
    """Return the attachments by which the host has the volume now."""
    same = attachments.of_initiator(connection, volume_id, connector.initiator)
    return [row for row in same if connectors.is_open(row, connector)]


def _require_available(
    connection: Connection, ctx: RequestContext, volume_id: str
) -> Volume:
    volume = volumes.require(connection, volume_id, ctx)
    if volume.own_status is not VolumeStatus.AVAILABLE:
        raise Invalid(
            f"Invalid volume: volume {volume.id} is {volume.status} and cannot be"
            " attached; it must be available"
        )
    return volume


def _check_unknown(same: Iterable[Attachment]) -> None:
    """Check that the initiator has no attachment that these actions did not make."""
    for row in same:
        if row.legacy is not None:
            continue
        raise Conflict(
            f"os-terminate_connection.connector: the host has this volume by"
            f" attachment {row.id}: delete that attachment",
            attachment_id=row.id,
        )
