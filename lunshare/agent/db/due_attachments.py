# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments on which timers work: whose lease ends, and those to reconcile."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import VOLUME_ATTACHMENT
from lunshare.agent.db.sqlite.prepared import Prepared, Row
from lunshare.agent.model.records import Attachment
from lunshare.agent.model.states import ENDING, POSSIBLE, WANTED, AttachStatus

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

_FIELDS = RecordColumns(
    Attachment, VOLUME_ATTACHMENT, status=_A.attach_status, mode=_A.attach_mode
)
_UNFINISHED = _FIELDS.prepared(
    sa.select(*_FIELDS.labels)
    .where(
        _A.volume_id == sa.bindparam("volume_id"),
        _A.deleted == sa.false(),
        sa.or_(
            sa.and_(*(_A.attach_status != status for status in sorted(WANTED))),
            _A.connection_info.is_(None),
            _A.former_initiator.is_not(None),
            sa.and_(_A.fence.is_not(None), _A.fenced_at.is_(None)),
        ),
    )
    .order_by(_A.created_at, _A.id)
)


def count_leases(connection: sa.Connection) -> int:
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


def unfinished(connection: sa.Connection, volume_id: str) -> list[Attachment]:
    """Return those that an operation has begun to change, complete, oldest first.

    Of a volume with many hosts they are few: a reconcile looks at each of them.
    """
    return _UNFINISHED.rows(connection, {"volume_id": volume_id})


def volumes_to_reconcile(connection: sa.Connection) -> list[str]:
    """Return the ids of volumes to which a host has or may have access.

    First those of which one loses its access, or its writing. And those with an
    attachment that has no access any more and is not deleted yet.
    """
    access = sa.or_(_A.initiator.is_not(None), _A.former_initiator.is_not(None))
    ends = _A.attach_status.in_(ENDING)
    unknown = _A.answered == sa.false()
    failed = _A.attach_status == AttachStatus.ERROR_ATTACHING
    query = (
        sa.select(_A.volume_id)
        .where(
            _A.deleted == sa.false(),
            _A.attach_status.in_(POSSIBLE),
            sa.or_(access, ends, sa.and_(failed, unknown)),
        )
        .group_by(_A.volume_id)
        .order_by(sa.func.max(_A.former_initiator.is_not(None)).desc(), _A.volume_id)
    )
    return list(connection.execute(query).scalars())
