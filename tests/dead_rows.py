# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Many rows that were deleted long ago, for tests and benchmarks of the purge."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from lunshare.agent.db.schema import SNAPSHOTS, VOLUME_ATTACHMENT, VOLUMES
from lunshare.agent.db.sqlite.engine import now
from lunshare.agent.model.records import NewSnapshot, Page
from tests.stands.node import CTX, Node, attach
from tests.stands.waiting import until

TABLES = (VOLUME_ATTACHMENT, SNAPSHOTS, VOLUMES)


def add(node: Node, count: int, seconds: float) -> None:
    """Add volumes that were deleted that long ago.

    Each has an attachment and a snapshot, which were deleted as well.
    """
    first = node.plain_volume()
    node.services.attachments.delete(CTX, attach(node, first, "a").id)
    kept = node.services.snapshots.create(CTX, NewSnapshot(first.id))
    node.services.snapshots.delete(CTX, kept.id)
    until(lambda: not node.services.snapshots.list(CTX, Page(None, 9)))
    assert first.id in _ids(node)
    node.services.volumes.delete(CTX, first.id)
    until(lambda: first.id not in _ids(node))
    _multiply(node, count - 1, first.id)
    age(node, seconds)


def age(node: Node, seconds: float) -> None:
    """Set every deletion to an earlier time."""
    with node.assembly.database.writing() as connection:
        for table in TABLES:
            gone = sa.update(table).where(table.c.deleted == sa.true())
            before = now() - timedelta(seconds=seconds)
            connection.execute(gone.values(deleted_at=before))


def spread(node: Node, seconds: float) -> None:
    """Set the deletions to times of the last ``seconds``, in the order of ``add``."""
    number = "CAST(substr(id, 38) AS INTEGER)"
    step = f"printf('-%f seconds', {seconds} - {number} * {seconds} / 1000000.0)"
    time = f"strftime('%Y-%m-%d %H:%M:%f000', '{now():%F %T}', {step})"
    with node.assembly.database.writing() as connection:
        for table in TABLES:
            connection.exec_driver_sql(
                f"UPDATE {table.name} SET deleted_at = {time} WHERE deleted"
            )


def counts(node: Node) -> list[int]:
    """The rows of each table, deleted or not."""
    with node.assembly.database.reading() as connection:
        query = [sa.select(sa.func.count()).select_from(table) for table in TABLES]
        return [connection.execute(each).scalar_one() for each in query]


def _ids(node: Node) -> set[str]:
    return {volume.id for volume in node.services.volumes.list(CTX, Page(None, 9))}


def _multiply(node: Node, times: int, volume_id: str) -> None:
    """Copy the rows of one volume, with ids of their own."""
    copy = "printf('%s-%d', {}, n)"
    with node.assembly.database.writing() as connection:
        for table, ids, which in (
            (VOLUMES, ("id",), "id"),
            (SNAPSHOTS, ("id", "volume_id"), "volume_id"),
            (VOLUME_ATTACHMENT, ("id", "volume_id"), "volume_id"),
        ):
            names = [column.name for column in table.columns]
            values = [copy.format(n) if n in ids else n for n in names]
            connection.exec_driver_sql(
                f"INSERT INTO {table.name} ({', '.join(names)}) WITH RECURSIVE"
                f" numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n"
                f" < {times}) SELECT {', '.join(values)} FROM {table.name}, numbers"
                f" WHERE {which} = '{volume_id}'"
            )
