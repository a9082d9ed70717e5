# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who sees a volume, and the policy of volumes of several hosts (multiattach).

Other rules are checked before a service is called. These depend on rows. The policy is
asked before the transaction, which then decides whether its answer matters.
"""

from __future__ import annotations

from collections.abc import Callable

from lunshare.agent.db import volumes
from lunshare.agent.db.sqlite.engine import Connection, Database
from lunshare.agent.model.errors import AgentError, Forbidden
from lunshare.agent.model.records import RequestContext, Volume

Allows = Callable[[str, RequestContext], bool]

_SHARE = "volume:multiattach"
_SHARE_BOOTABLE = "volume:multiattach_bootable_volume"


class SharingRules:
    """The two rules about volumes of several hosts."""

    def __init__(self, allows: Allows) -> None:
        """``allows``: whether a rule of the policy allows a request."""
        self._allows = allows

    def check_new(self, ctx: RequestContext, multiattach: bool) -> None:
        """Check that the policy allows a volume of several hosts.

        ``multiattach``: whether the volume becomes one.

        :raises Forbidden: the policy.
        """
        if multiattach and not self._allows(_SHARE, ctx):
            raise Forbidden(_SHARE)

    def refusal_of_second(self, ctx: RequestContext) -> AgentError | None:
        """Return why a bootable volume may not get one more host, or None.

        Call it before locks and transactions: a policy server may be slow.
        """
        try:
            allowed = self._allows(_SHARE_BOOTABLE, ctx)
        except AgentError as error:
            return error
        return None if allowed else Forbidden(_SHARE_BOOTABLE)


def check_second(
    connection: Connection, volume: Volume, refusal: AgentError | None
) -> None:
    """Check that a volume may get one more host, in the transaction of its row.

    :raises AgentError: ``refusal``, if it is bootable and has a host.
    """
    if refusal is None or not (volume.multiattach and volume.bootable):
        return
    current = volumes.get(connection, volume.id)
    if current is not None and current.attachments:
        raise refusal


def check_visible(db: Database, ctx: RequestContext, volume_id: str) -> None:
    """Check whose volume it is before its lock, whose error names what holds it.

    The transaction that decides checks it again.

    :raises NotFound: the volume does not exist, or belongs to another project.
    """
    if ctx.is_admin:
        return
    with db.reading(one_statement=True) as connection:
        volumes.require_row(connection, volume_id, ctx)
