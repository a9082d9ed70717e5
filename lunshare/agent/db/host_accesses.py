# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Attachments by the names of their hosts, on all volumes: what a fence takes."""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import VOLUME_ATTACHMENT
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.records import Attachment

_A = VOLUME_ATTACHMENT.c
_HERE = _A.deleted == sa.false()
_FIELDS = RecordColumns(
    Attachment, VOLUME_ATTACHMENT, status=_A.attach_status, mode=_A.attach_mode
)
_ALL = sa.select(*_FIELDS.labels)
_BY_NAME = tuple(
    _FIELDS.prepared(
        _ALL.where(
            column == sa.bindparam("name"),
            _HERE,
            *([_A.former_initiator.is_not(None)] if "former" in index else ()),
        ),
        index=index,
    )
    for column, index in (
        (_A.attached_host, "attachments_by_host"),
        (_A.initiator, "attachments_by_initiator"),
        (_A.former_initiator, "attachments_by_former_initiator"),
        (_A.former_host, "attachments_by_former_host"),
    )
)
_SENT_BY = Prepared(
    sa.select(_A.initiator).where(
        _HERE,
        _A.legacy.is_not(None),
        _A.initiator.is_not(None),
        sa.literal_column("json_extract(connector, '$.host')") == sa.bindparam("host"),
    )
)


def of_host(connection: sa.Connection, name: str) -> list[Attachment]:
    """Return the complete attachments that have a host or initiator of this name.

    Also as the initiator that their connector has replaced.
    """
    which = {"name": name}
    rows = [row for select in _BY_NAME for row in select.rows(connection, which)]
    return list({row.id: row for row in rows}.values())


def initiators_sent_by(connection: sa.Connection, host: str) -> list[str]:
    """Return the initiators of connectors that say this host, whatever os-attach said.

    It reads every attachment of the node.
    """
    return [row.initiator for row in _SENT_BY.rows(connection, {"host": host})]
