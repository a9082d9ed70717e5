# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Refuse to take a volume from a server of Nova that still uses it (CVE-2023-2088).

A user who ends an attachment without Nova leaves a device on the compute host,
which may show the next volume with the same LUN to the server. So with a section
[nova] a detach needs a service token, or Nova's answer that the server does not have
the volume any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from lunshare.agent.model.errors import Busy, Conflict
from lunshare.agent.model.records import Attachment, RequestContext

#: Called with the row in the transaction that ends it.
Check = Callable[[Attachment], None]


class Servers(Protocol):
    """What the gate needs of Nova."""

    def attachment_of(self, server: str, volume_id: str) -> str | None:
        """As lunshare.agent.nova.Nova.attachment_of."""


class InstanceGate:
    """Decides whether an attachment may be ended by this client."""

    def __init__(self, nova: Servers | None, roles: Collection[str]) -> None:
        """``nova``: None lets everything pass. ``roles``: those of a service token."""
        self._nova, self._roles = nova, frozenset(roles)

    def check_detach(self, ctx: RequestContext, row: Attachment) -> Check:
        """Ask Nova, outside of locks. Return the check for the transaction.

        The check raises Busy if the attachment is another one by then.

        :raises Conflict: the server of the attachment uses it.
        :raises BackendFailed: Nova does not answer.
        """
        if self._nova is None or self._passes(ctx):
            return _pass
        if row.instance_uuid is not None and row.connection_info is not None:
            used = self._nova.attachment_of(row.instance_uuid, row.volume_id)
            if used is not None and used in ("", row.id):
                raise _in_use(row)
        return partial(_check_same, _decisive(row))

    def check_connect(
        self, ctx: RequestContext, row: Attachment, initiator: str
    ) -> Check:
        """Do the same for a connector, which ends the access of another initiator.

        :raises Conflict: the server of the attachment uses it.
        :raises BackendFailed: Nova does not answer.
        """
        if row.initiator not in (None, initiator):
            return self.check_detach(ctx, row)
        return _pass if self._passes(ctx) else partial(_check_same, _decisive(row))

    def _passes(self, ctx: RequestContext) -> bool:
        return self._nova is None or not self._roles.isdisjoint(ctx.service_roles)


def _pass(row: Attachment) -> None:
    """Let any row pass."""


def _decisive(row: Attachment) -> tuple[str | bool | None, ...]:
    return row.id, row.instance_uuid, row.initiator, row.connection_info is None


def _check_same(seen: tuple[str | bool | None, ...], row: Attachment) -> None:
    if _decisive(row) != seen:
        raise Busy(f"attachment {row.id} has just changed: try again")


def _in_use(row: Attachment) -> Conflict:
    return Conflict(
        f"attachment {row.id}: server {row.instance_uuid} of Nova uses it: detach it"
        " with Nova (openstack server remove volume)",
        attachment_id=row.id,
    )
