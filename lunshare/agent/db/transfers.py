# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of transfers. A transfer that is taken or withdrawn has no row."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import paging
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import SNAPSHOTS, TRANSFERS, VOLUMES
from lunshare.agent.model.page_rows import PageRows, fill
from lunshare.agent.model.project_records import Transfer
from lunshare.agent.model.records import Page, RequestContext, visible

_T = TRANSFERS.c
_OWN = _T.source_project_id == paging.PROJECT

COLUMNS: paging.Columns = {
    "id": _T.id,
    "name": _T.display_name,
    "display_name": _T.display_name,
    "volume_id": _T.volume_id,
    "created_at": _T.created_at,
}

_FIELDS = RecordColumns(Transfer, TRANSFERS, name=_T.display_name)
_INSERT = _FIELDS.insertion()
_ROWS = sa.select(*_FIELDS.labels)


def insert(connection: sa.Connection, transfer: Transfer) -> None:
    """Insert a row."""
    _INSERT.write(connection, _FIELDS.values(transfer))


def require(
    connection: sa.Connection, transfer_id: str, ctx: RequestContext | None = None
) -> Transfer:
    """Return one transfer; ``ctx`` is None for the project that takes it.

    :raises NotFound: it does not exist, or another project offers it.
    """
    row = connection.execute(_ROWS.where(_T.id == transfer_id)).first()
    transfer = None if row is None else _FIELDS.record(row)
    return visible(transfer, ctx, "transfer", transfer_id)


def page(connection: sa.Connection, page: Page) -> PageRows[Transfer]:
    """Return a page of the transfers that a project has offered.

    :raises NotFound: the marker does not exist.
    """
    query = _ROWS
    if page.project_id is not None:
        query = query.where(_OWN)
    query = paging.filtered(query, page.filters, COLUMNS)
    query = paging.after_marker(connection, query, page, COLUMNS, "transfer", _OWN)
    query = paging.ordered(query, page.sort, COLUMNS)
    rows = _FIELDS.iterate(connection.execute(query, paging.values(page)))
    return fill(rows, page.limit)


def remove(connection: sa.Connection, transfer_id: str) -> None:
    """Delete a transfer."""
    connection.execute(sa.delete(TRANSFERS).where(_T.id == transfer_id))


def remove_of_volume(connection: sa.Connection, volume_id: str) -> None:
    """Delete the transfer of a volume, if it has one."""
    connection.execute(sa.delete(TRANSFERS).where(_T.volume_id == volume_id))


def change_owner(
    connection: sa.Connection, transfer: Transfer, project_id: str, user_id: str
) -> None:
    """Give the volume to another project, with its snapshots if they go with it.

    Those of a third project stay: it had the volume before, and offered it without.
    """
    owner: dict[str, Any] = {"project_id": project_id, "user_id": user_id}
    of_volume = VOLUMES.c.id == transfer.volume_id
    connection.execute(sa.update(VOLUMES).where(of_volume).values(owner))
    if not transfer.no_snapshots:
        of_both = (
            SNAPSHOTS.c.volume_id == transfer.volume_id,
            SNAPSHOTS.c.project_id == transfer.source_project_id,
        )
        connection.execute(sa.update(SNAPSHOTS).where(*of_both).values(owner))
