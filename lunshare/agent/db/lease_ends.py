# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments whose write access has a lease that has not ended, by its end."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from lunshare.agent.db.schema import VOLUME_ATTACHMENT
from lunshare.agent.db.sqlite.prepared import Prepared, Row

_A = VOLUME_ATTACHMENT.c
# A timer runs it several times a second: it reads the rows whose lease has ended, and
# no other one.
_ALL_ENDED = (
    sa.select(_A.id, _A.volume_id)
    .where(
        _A.deleted == sa.false(),
        _A.lease_ends.is_not(None),
        _A.lease_ends <= sa.bindparam("seconds"),
    )
    .order_by(_A.lease_ends)
)
_ENDED = Prepared(_ALL_ENDED, index="attachments_leased")
_OF_VOLUME = Prepared(
    _ALL_ENDED.where(_A.volume_id == sa.bindparam("volume_id")),
    index="attachments_leased",
)


_COUNT = Prepared(
    sa.select(sa.func.count().label("count"))
    .select_from(VOLUME_ATTACHMENT)
    .where(_A.deleted == sa.false(), _A.lease_ends.is_not(None)),
    index="attachments_leased",
)


def count(connection: sa.Connection) -> int:
    """Return how many leases have not ended. It reads the index of these only."""
    return int(_COUNT.rows(connection, {})[0].count)


def ended(connection: sa.Connection, seconds: float) -> Sequence[Row]:
    """Return id and volume of each whose lease ends before, oldest first.

    ``seconds``: of lunshare.agent.boot_clock; ``math.inf`` are those of all leases.
    """
    return _ENDED.rows(connection, {"seconds": seconds})


def ended_of_volume(
    connection: sa.Connection, volume_id: str, seconds: float
) -> Sequence[Row]:
    """Return the same of one volume."""
    return _OF_VOLUME.rows(connection, {"seconds": seconds, "volume_id": volume_id})
