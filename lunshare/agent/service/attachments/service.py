# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Requests about attachments: create, connect, complete, delete.

Each operation commits what it will do, does it, and commits that it is done. When
the daemon is killed in between, lunshare.agent.service.reconcile finds the intent in
the row and finishes it with the same functions of service/attachments/access.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from oslo_log import log

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.sqlite.engine import Connection, Database, now
from lunshare.agent.model.errors import AgentError
from lunshare.agent.model.page_rows import PageRows
from lunshare.agent.model.records import (
    Attachment,
    HostConnector,
    Mode,
    NewAttachment,
    Page,
    RequestContext,
    Volume,
)
from lunshare.agent.model.states import WANTED, AttachStatus
from lunshare.agent.service.attachments import (
    connectors,
    plain_volumes,
    refusals,
    wanted_state,
)
from lunshare.agent.service.attachments.access import (
    Access,
    ModeDecision,
    allowed_mode,
    available_volume,
    check_not_fenced,
    read_wanted,
)
from lunshare.agent.service.attachments.connectors import with_secrets
from lunshare.agent.service.attachments.unanswered import UnansweredRequests
from lunshare.agent.service.instance_gate import InstanceGate
from lunshare.agent.service.reservation_keys import ReservationKeys
from lunshare.agent.service.sharing import SharingRules, check_second, check_visible
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_CONNECTABLE = WANTED | {AttachStatus.RESERVED, AttachStatus.ERROR_ATTACHING}
_COMPLETABLE = WANTED | {AttachStatus.RESERVED}
#: What ``intend`` may change, besides the status.
_OF_INTENT = (
    "mode",
    "attached_host",
    "mountpoint",
    "connector",
    "connection_info",
    "initiator",
    "former_initiator",
    "former_host",
    "auth_username",
    "auth_password",
    "answered",
    "announced",
    "status_reason",
    "fence",
    "fenced_at",
)

Rows = list[Attachment]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Attachments:
    """Attachments of this node's volumes."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        unanswered: UnansweredRequests,
        *,
        sharing: SharingRules,
        gate: InstanceGate,
        keys: ReservationKeys,
        widen: bool,
    ) -> None:
        """``widen``: an initiator that asks for both modes gets rw, not a 409."""
        self._db, self._access, self._locks = db, access, locks
        self.unanswered, self._widen = unanswered, widen
        self._sharing, self._gate, self._keys = sharing, gate, keys

    def get(
        self, ctx: RequestContext, attachment_id: str, secrets: bool = True
    ) -> Attachment:
        """Return one attachment; with ``secrets`` the credentials of its host.

        :raises NotFound: the attachment does not exist, or is deleted.
        """
        row = self._require(attachment_id, ctx)
        return with_secrets(row) if secrets else row

    def list(self, ctx: RequestContext, page: Page) -> PageRows[Attachment]:
        """Return a page of attachments, without credentials.

        :raises NotFound: the marker of the page does not exist.
        """
        with self._db.reading() as connection:
            return attachments.page(connection, page)

    def create(self, ctx: RequestContext, new: NewAttachment) -> Attachment:
        """Reserve the volume; with a connector, open it to that host as well.

        A retry of a request that the daemon did not answer before it was killed
        gets the attachment of the first one.

        :raises NotFound: the volume.
        :raises Invalid: its status allows no attachment, or no second one.
        :raises Forbidden: it is bootable and has a host, and the policy.
        :raises Conflict: the initiator has it in the other mode.
        :raises BackendFailed: nothing is open and nothing is reserved.
        """
        if new.connector is None:
            row = self.commit_reservation(ctx, new)
        else:
            row = self._attach(ctx, new, new.connector)
        self.unanswered.answer_sent(row)
        return with_secrets(row)

    def _attach(
        self, ctx: RequestContext, new: NewAttachment, connector: HostConnector
    ) -> Attachment:
        """Commit which access is wanted, then open it, under the volume's lock."""
        check_visible(self._db, ctx, new.volume_id)
        refusal = self.refusal_of_second(ctx)
        with self._locks.volume(new.volume_id, f"the attach of host {connector.host}"):
            with self._db.writing() as connection:
                _check_connector(connection, connector)
                volume, duplicate = self._claim(connection, ctx, new, refusal)
                row = duplicate or self.start_attach(
                    connection,
                    volume,
                    new_row(ctx, volume, new),
                    connector,
                    is_new=True,
                )
                wanted = read_wanted(connection, volume.id, row.initiator)
            self.unanswered.add(row)
            try:
                return self._access.attach(volume, row, wanted)
            except Exception:
                self.delete_failed(row)
                raise

    def commit_reservation(self, ctx: RequestContext, new: NewAttachment) -> Attachment:
        """Reserve the volume as ``reserve`` does, in a transaction of its own."""
        row, refusal = None, self.refusal_of_second(ctx)
        try:
            with self._db.writing() as connection:
                row = self.reserve(connection, ctx, new, refusal)[1]
                self.unanswered.add(row)  # before the others see it
        except Exception:
            if row is not None:
                self.unanswered.forget(row)
            raise
        return row

    def refusal_of_second(self, ctx: RequestContext) -> AgentError | None:
        """See SharingRules.refusal_of_second; the result is for ``reserve``."""
        return self._sharing.refusal_of_second(ctx)

    def reserve(
        self,
        connection: Connection,
        ctx: RequestContext,
        new: NewAttachment,
        refusal: AgentError | None,
    ) -> tuple[Volume, Attachment]:
        """Insert the row of a new attachment, or return that of an unanswered request.

        The caller commits. The connector is not used here. ``refusal`` is what
        ``refusal_of_second`` has returned before the transaction.

        :raises NotFound: the volume.
        :raises Invalid: its status allows no attachment, or no second one.
        """
        volume, duplicate = self._claim(connection, ctx, new, refusal)
        row = duplicate or new_row(ctx, volume, new)
        self._access.check_support(volume, row.mode)
        if duplicate is None:
            attachments.insert(connection, row)
        return volume, row

    def _claim(
        self,
        connection: Connection,
        ctx: RequestContext,
        new: NewAttachment,
        refusal: AgentError | None,
    ) -> tuple[Volume, Attachment | None]:
        """Reserve the volume for a row, or find the row of an earlier request."""
        duplicate = self.unanswered.find_duplicate(connection, ctx, new)
        if duplicate is not None:
            return volumes.require_row(connection, new.volume_id, ctx), duplicate
        volume = claim(connection, ctx, new.volume_id, refusal, new.instance_uuid)
        return volume, None

    def start_attach(
        self,
        connection: Connection,
        volume: Volume,
        row: Attachment,
        connector: HostConnector,
        is_new: bool = False,
    ) -> Attachment:
        """Write which access is wanted; the caller commits it before it is opened.

        :raises Invalid: the connector does not name what the target needs.
        :raises Conflict: its status, the other mode of the initiator, the target or
            the volume's writers policy does not allow it.
        """
        decision = ModeDecision(connection, volume)
        _check_connector(connection, connector)
        same = attachments.of_initiator(connection, volume.id, connector.initiator)
        intent = self.intend(volume, row, connector, decision, same)
        if is_new:
            attachments.insert(connection, intent)
            return intent
        values = {name: getattr(intent, name) for name in _OF_INTENT}
        if not attachments.change_status(
            connection, row.id, _CONNECTABLE, intent.status, **values
        ):
            raise refusals.not_connectable(row)
        return intent

    def intend(
        self,
        volume: Volume,
        row: Attachment,
        connector: HostConnector,
        decision: ModeDecision,
        same: Rows,
    ) -> Attachment:
        """Return the row with the access that is wanted; raise as ``start_attach``.

        ``same``: the attachments of its initiator, whose host is not fenced.
        """
        self._access.check_initiator(volume, connector)
        self._access.check_address(volume, connector)
        initiator = connector.initiator
        former_initiator = None if row.initiator == initiator else row.initiator
        username, password = wanted_state.credentials(same)
        mode = wanted_state.choose_open_mode(volume, row.mode, connector.mode)
        intent = replace(
            row,
            status=AttachStatus.ATTACHING,
            mode=mode,
            attached_host=connector.host,
            mountpoint=connector.mountpoint,
            connector=connector.sent,
            connection_info=None,
            initiator=initiator,
            former_initiator=former_initiator,
            former_host=row.attached_host if former_initiator else None,
            auth_username=username,
            auth_password=password,
            announced=False,
            status_reason=None,
            fence=None,
            fenced_at=None,
        )
        is_asked = _has_asked(row, connector, mode)
        mode = decision.allowed_mode(intent, mode, asked=is_asked)
        self._access.check_support(volume, mode, former_initiator)
        other = wanted_state.find_other_mode(same, row.id, mode)
        if other is not None and not self._widen:
            raise refusals.mixed_modes(other, mode)
        return intent if mode is intent.mode else replace(intent, mode=mode)

    def delete_failed(self, row: Attachment) -> None:
        """Delete a row whose id no client knows, when nothing is open."""
        self.unanswered.forget(row)
        try:
            if self._require(row.id).initiator is None:
                self._access.delete(row.id)
            else:
                self._access.start_delete(row.id)
        except AgentError as error:
            LOG.error(
                "[%s] cleanup of a failed attach failed: attachment=%s: %s",
                row.attached_host,
                row.id,
                error,
            )

    def connect(
        self, ctx: RequestContext, attachment_id: str, connector: HostConnector
    ) -> Attachment:
        """Open the volume to a host; the same connector again changes nothing.

        Another connector replaces the first one, whose access is closed before the
        new one is opened.

        :raises NotFound: the attachment.
        :raises Invalid: the volume takes one host, and another one has it.
        :raises Conflict: the initiator has the volume in the other mode, or the
            status of the attachment or of its volume does not allow it, or a server
            of Nova uses it by another initiator.
        :raises BackendFailed: the row names what may be open; repeat, or delete.
        """
        row = self._require(attachment_id, ctx)
        check = self._gate.check_connect(ctx, row, connector.initiator)
        with self._locks.volume(row.volume_id, f"the attach of host {connector.host}"):
            row = self._require(attachment_id, ctx)
            if connectors.is_open(row, connector):
                named = {
                    "attached_host": connector.host,
                    "mountpoint": connector.mountpoint,
                    "answered": True,  # its client names it
                }
                return self.refresh(row, connector, named)
            if row.initiator not in (None, connector.initiator):
                self._keys.check_detach(row.volume_id, [attachment_id])
            # Its row can name two initiators, and the new connector is a third.
            row = self._access.detach_replaced(row)
            with self._db.writing() as connection:
                check(row)
                volume = available_volume(connection, row)
                plain_volumes.check_single(connection, volume, row)
                confirmed = replace(row, answered=True)  # its client names it
                intent = self.start_attach(connection, volume, confirmed, connector)
                wanted = read_wanted(connection, volume.id, intent.initiator)
            return with_secrets(self._access.attach(volume, intent, wanted, row))

    def complete(self, ctx: RequestContext, attachment_id: str) -> None:
        """Note that the host uses the volume. Can be repeated.

        :raises NotFound: the attachment.
        :raises Conflict: the attachment is detaching, or in an error; or it is a
            reservation for a host that the volume's writers policy keeps from writing.
        """
        volume_id = self._require(attachment_id, ctx).volume_id
        with (
            self._locks.volume(volume_id, f"the completion of {attachment_id}"),
            self._db.writing() as connection,
        ):
            _check_completion(connection, attachment_id)
            is_changed = attachments.change_status(
                connection,
                attachment_id,
                _COMPLETABLE,
                AttachStatus.ATTACHED,
                answered=True,
            )
        if not is_changed:
            raise refusals.not_completable(self._require(attachment_id))

    def delete(
        self, ctx: RequestContext, attachment_id: str, force: bool = False
    ) -> Rows:
        """Detach the host, end its session, delete the attachment.

        With ``force`` also a host that has the key of a reservation.
        Returns up to a hundred of the attachments that the volume has left, in brief.
        When it does, no write of that host is in progress and it cannot log in.

        :raises NotFound: the attachment does not exist, or is deleted.
        :raises Conflict: a server of Nova uses it, or its host has such a key.
        :raises BackendFailed: the access may still be open. The attachment is
            error_detaching. A retry and the next reconcile try again.
        """
        row = self._require(attachment_id, ctx)
        check = self._gate.check_detach(ctx, row)
        with self._locks.volume(row.volume_id, f"the detach of {attachment_id}"):
            if not force:
                self._keys.check_detach(row.volume_id, [attachment_id])
            return self._access.delete(attachment_id, check)

    def refresh(
        self,
        row: Attachment,
        connector: HostConnector,
        named: Mapping[str, Any] = _NOTHING,
    ) -> Attachment:
        """Store what else the initiator of an open row sent, and where it is now.

        ``named``: other columns that this request sets. The caller has the volume's
        lock. What the row asks for is applied: after a fence it may not be open yet.
        Can be repeated.

        :raises Conflict: the host is fenced.
        :raises BackendFailed: the host is not admitted at its address, or let in, yet.
        """
        with self._db.writing() as connection:
            _check_connector(connection, connector)
            # A fence and its end write rows without the lock.
            row = attachments.require(connection, row.id)
            volume = volumes.require_row(connection, row.volume_id)
            values: dict[str, Any] = {**named, "connector": connector.sent}
            if row.connection_info is not None:
                multipath = bool(connector.sent.get("enforce_multipath", False))
                info = {**row.connection_info, "enforce_multipath": multipath}
                values["connection_info"] = info
            refreshed = replace(row, **values)
            if refreshed != row:
                attachments.set_values(connection, row.id, **values)
        self._access.move_admission(row, refreshed)
        self._access.apply(volume, row.initiator)
        return with_secrets(refreshed)

    def _require(
        self, attachment_id: str, ctx: RequestContext | None = None
    ) -> Attachment:
        with self._db.reading(one_statement=True) as connection:
            return attachments.require(connection, attachment_id, ctx)


def claim(
    connection: Connection,
    ctx: RequestContext,
    volume_id: str,
    refusal: AgentError | None,
    instance_uuid: str | None = None,
) -> Volume:
    """Reserve a volume for one more host, in the transaction of its row; return it.

    :raises NotFound: the volume.
    :raises Invalid: its status allows no attachment, or no second one.
    :raises AgentError: ``refusal``, as ``check_second``.
    """
    reserved = volumes.claim(connection, volume_id, instance_uuid)
    volume = volumes.require_row(connection, volume_id, ctx)
    if not reserved:
        raise plain_volumes.attach_error(volumes.get(connection, volume_id) or volume)
    check_second(connection, volume, refusal)
    return volume


def new_row(
    ctx: RequestContext, volume: Volume, new: NewAttachment, ident: str | None = None
) -> Attachment:
    """Return a row that reserves a volume, with this id or one of its own."""
    return Attachment(
        id=ident or str(uuid.uuid4()),
        volume_id=volume.id,
        status=AttachStatus.ATTACHING if new.legacy else AttachStatus.RESERVED,
        mode=wanted_state.choose_mode(volume, new.mode),
        instance_uuid=new.instance_uuid,
        created_at=now(),
        updated_at=now(),
        answered=False,
        legacy=new.legacy,
        user_id=ctx.user_id,
    )


def _check_connector(connection: Connection, connector: HostConnector) -> None:
    """:raises Conflict: its host is fenced."""
    check_not_fenced(connection, "connector", connector.initiator, connector.host)


def _has_asked(row: Attachment, connector: HostConnector, mode: Mode) -> bool:
    """Whether a client has named the mode in which a row is opened.

    A row that was open before has the mode that was decided then.
    """
    is_new = row.status is AttachStatus.RESERVED
    return mode in (connector.mode, row.mode if is_new else None)


def _check_completion(connection: Connection, attachment_id: str) -> None:
    """Check a reservation that is completed without a connector, and says rw.

    :raises Conflict: the volume's writers policy does not allow it.
    """
    row = attachments.require(connection, attachment_id)
    if row.initiator is None and row.mode is not None:
        volume = volumes.require_row(connection, row.volume_id)
        allowed_mode(connection, volume, row, row.mode, asked=True)
