# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Reserve, connect, complete, release: the life of an attachment.

Each step commits what it is about to do, does it, and commits that it is
done. Whatever kills the daemon in between, lunshare.agent.service.reconcile finds the
intent and finishes it through the same functions of service/attachments/access.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oslo_log import log

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.engine import Database, now
from lunshare.agent.errors import AgentError, Conflict, Invalid, NotFound
from lunshare.agent.records import (
    Attachment,
    NewAttachment,
    Page,
    RequestContext,
    Volume,
)
from lunshare.agent.service.attachments import connectors, wanted_state
from lunshare.agent.service.attachments.access import Access, with_secrets
from lunshare.agent.service.attachments.unanswered import UnansweredRequests
from lunshare.agent.states import WANTED, AttachStatus, VolumeStatus
from lunshare.agent.volume_locks import VolumeLocks

LOG = log.getLogger(__name__)

_CONNECTABLE = WANTED | {AttachStatus.RESERVED, AttachStatus.ERROR_ATTACHING}
_COMPLETABLE = WANTED | {AttachStatus.RESERVED}

_LEFT = 100  # attachments in the answer to a detach

Rows = list[Attachment]


class Attachments:
    """Attachments of this node's volumes."""

    def __init__(
        self,
        db: Database,
        access: Access,
        locks: VolumeLocks,
        answers: UnansweredRequests,
        widen: bool,
    ) -> None:
        """``widen``: an initiator that asks for both modes gets rw, not 409."""
        self._db, self._access, self._locks = db, access, locks
        self.unanswered, self._widen = answers, widen

    def get(self, ctx: RequestContext, attachment_id: str) -> Attachment:
        """One attachment, with the credentials of its host.

        :raises NotFound: there is none, or not any more.
        """
        return with_secrets(self._row(attachment_id))

    def list(self, ctx: RequestContext, page: Page) -> Rows:
        """A page of attachments, without credentials."""
        with self._db.reading() as connection:
            return attachments.page(connection, page)

    def create(self, ctx: RequestContext, new: NewAttachment) -> Attachment:
        """Reserve the volume; with a connector, open it to that host as well.

        The same request again, after the daemon died before it had answered, gets
        what the first one made.

        :raises NotFound: the volume.
        :raises Invalid: it takes no (further) attachment, or the connector is bad.
        :raises Conflict: the initiator has it in the other mode.
        :raises BackendFailed: nothing stayed open and nothing stayed reserved.
        """
        if new.connector is None:
            with self._db.writing() as connection:
                row = self._reserve(connection, new)[1]
                self.unanswered.add(row)
        else:
            row = self._attach(new, connectors.checked(new.connector))
        self.unanswered.answer_sent(row)
        return with_secrets(row)

    def connect(
        self, ctx: RequestContext, attachment_id: str, connector: Mapping[str, Any]
    ) -> Attachment:
        """Open the volume to a host; the same connector again changes nothing.

        Another connector takes the place of the first, whose access is closed
        before the new one is opened.

        :raises NotFound: the attachment.
        :raises Invalid: the connector is bad.
        :raises Conflict: the initiator has the volume in the other mode, or the
            attachment or its volume is in no state for it.
        :raises BackendFailed: nothing stayed open; connect again, or delete.
        """
        host = connectors.checked(connector)
        volume_id = self._row(attachment_id).volume_id
        with self._locks.volume(volume_id, f"the attach of host {host.name}"):
            row = self._row(attachment_id)
            if connectors.is_open(row, host):
                return with_secrets(self._refreshed(row, host))
            if row.leaving is not None:
                self._access.clean(row)
                row = self._row(attachment_id)
            with self._db.writing() as connection:
                volume = self._healthy(connection, row)
                self._keep_to_one(connection, volume, row)
                # Who names it knows of it.
                known = replace(row, answered=True)
                intent = self._intend(connection, volume, known, host)
            if intent.leaving is not None:
                self._access.replace(volume, intent)
                intent = replace(intent, leaving=None)
            return with_secrets(self._access.open(volume, intent))

    def complete(self, ctx: RequestContext, attachment_id: str) -> None:
        """The host says it uses the volume. Repeat-safe.

        :raises Conflict: the attachment is on its way out, or failed.
        """
        row = self._row(attachment_id)
        with (
            self._locks.volume(row.volume_id, f"the completion of {attachment_id}"),
            self._db.writing() as connection,
        ):
            done = attachments.move(
                connection,
                attachment_id,
                _COMPLETABLE,
                AttachStatus.ATTACHED,
                answered=True,
            )
        if not done:
            row = self._row(attachment_id)
            raise Conflict(
                f"attachment {row.id} is {row.status} and cannot be completed:"
                " connect it first"
            )

    def delete(self, ctx: RequestContext, attachment_id: str) -> Rows:
        """Close the access, end the host's session, forget the attachment.

        Returns attachments that the volume still has, in brief and a hundred at
        most, so that it costs the same however many there are. When this returns,
        no write of that host is under way any more and it cannot log in.

        :raises NotFound: there is none, or not any more.
        :raises BackendFailed: the access may still be open; the attachment stays
            as error_detaching, and both a repeat and the next reconcile retry.
        """
        volume_id = self._row(attachment_id).volume_id
        with self._locks.volume(volume_id, f"the detach of {attachment_id}"):
            self._access.release(self._row(attachment_id))
        with self._db.reading() as connection:
            return attachments.left(connection, volume_id, _LEFT)

    def _attach(self, new: NewAttachment, host: connectors.Host) -> Attachment:
        with self._locks.volume(new.volume_id, f"the attach of host {host.name}"):
            with self._db.writing() as connection:
                volume, row = self._reserve(connection, new)
                if row.status is AttachStatus.RESERVED:
                    row = self._intend(connection, volume, row, host)
            self.unanswered.add(row)
            try:
                return self._access.open(volume, row)
            except Exception:
                self._drop(row)
                raise

    def _row(self, attachment_id: str) -> Attachment:
        with self._db.reading() as connection:
            row = attachments.get(connection, attachment_id)
        if row is None:
            raise NotFound("attachment", attachment_id)
        return row

    def _reserve(
        self, connection: Any, new: NewAttachment
    ) -> tuple[Volume, Attachment]:
        known = self.unanswered.find_duplicate(connection, new)
        free = known or volumes.claim(connection, new.volume_id, new.instance_uuid)
        volume = volumes.bare(connection, new.volume_id)
        if volume is None:
            raise NotFound("volume", new.volume_id)
        if not free:
            raise _taken(volumes.get(connection, new.volume_id) or volume)
        self._access.need(volume, new.mode)
        if known is not None:
            return volume, known
        row = Attachment(
            id=str(uuid.uuid4()),
            volume_id=volume.id,
            status=AttachStatus.RESERVED,
            mode=new.mode,
            instance_uuid=new.instance_uuid,
            created_at=now(),
            updated_at=now(),
            answered=False,
        )
        attachments.insert(connection, row)
        return volume, row

    def _intend(
        self,
        connection: Any,
        volume: Volume,
        row: Attachment,
        host: connectors.Host,
    ) -> Attachment:
        """Commit to an access before it is opened."""
        same = attachments.of_initiator(connection, row.volume_id, host.initiator)
        mode = connectors.resolved_mode(row, host)
        other = connectors.mixed(same, row.id, mode)
        if other is not None and not self._widen:
            raise connectors.refuse_mixed(other, mode)
        leaving = None if row.initiator == host.initiator else row.initiator
        self._access.need(volume, mode, leaving)
        username, password = wanted_state.credentials(same)
        values: dict[str, Any] = {
            "mode": mode,
            "attached_host": host.name,
            "mountpoint": host.mountpoint,
            "connector": dict(host.connector),
            "connection_info": None,
            "initiator": host.initiator,
            "leaving": leaving,
            "auth_username": username,
            "auth_password": password,
            "answered": row.answered,
        }
        attaching = AttachStatus.ATTACHING
        if not attachments.move(connection, row.id, _CONNECTABLE, attaching, **values):
            raise Conflict(
                f"attachment {row.id} is {row.status} and takes no connector:"
                " delete it and create another one"
            )
        return replace(row, status=attaching, **values)

    def _healthy(self, connection: Any, row: Attachment) -> Volume:
        volume = volumes.bare(connection, row.volume_id)
        if volume is None:
            raise NotFound("volume", row.volume_id)
        if volume.own_status is not VolumeStatus.AVAILABLE:
            raise Conflict(f"volume {volume.id} is {volume.status}: mend it first")
        return volume

    def _keep_to_one(self, connection: Any, volume: Volume, row: Attachment) -> None:
        """A row that failed does not hold its volume: another may have it by now."""
        if volume.multiattach:
            return
        others = [
            other
            for other in attachments.of_volume(connection, volume.id)
            if other.id != row.id and holds(other)
        ]
        instances = {other.instance_uuid for other in others} - {None}
        if others and row.instance_uuid not in instances:
            raise _taken(volume)

    def _refreshed(self, row: Attachment, host: connectors.Host) -> Attachment:
        """The same initiator again: note what else it says, touch no target."""
        if dict(host.connector) == row.connector:
            return row
        values: dict[str, Any] = {
            "connector": dict(host.connector),
            "attached_host": host.name,
            "mountpoint": host.mountpoint,
        }
        if row.connection_info is not None:
            wanted = bool(host.connector.get("enforce_multipath", False))
            told = {**row.connection_info, "enforce_multipath": wanted}
            values["connection_info"] = told
        with self._db.writing() as connection:
            attachments.note(connection, row.id, **values)
        return replace(row, **values)

    def _drop(self, row: Attachment) -> None:
        """Forget a row whose client never learned its id, once nothing is open."""
        self.unanswered.discard(row)
        try:
            left = self._row(row.id)
            if left.initiator is None:
                self._access.release(left)
            else:
                self._access.abandon(left)
        except AgentError as error:
            LOG.error("[%s] DROP attachment=%s: %s", row.attached_host, row.id, error)


def holds(row: Attachment) -> bool:
    """Whether a plain volume is not free for the sake of this row.

    As lunshare.agent.db.volumes.claim has it: an access may be open, or is about to be.
    """
    failed = row.status is AttachStatus.ERROR_ATTACHING
    return not failed or row.initiator is not None or row.leaving is not None


def _taken(volume: Volume) -> Invalid:
    """Why a volume cannot be reserved, in one sentence."""
    if volume.own_status is not VolumeStatus.AVAILABLE:
        return Invalid(
            f"Invalid volume: volume {volume.id} is {volume.status} and cannot be"
            " attached; it must be available"
        )
    return Invalid(
        f"Invalid volume: volume {volume.id} is {volume.status} and takes one"
        " attachment only; detach it first, or use a volume whose type has the"
        " extra spec multiattach='<is> True'"
    )
