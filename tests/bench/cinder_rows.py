# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Fill the peer's database: copies of one volume and of all that belongs to it.

``python -m tests.bench.cinder_rows URL VOLUME_ID COUNT``, with the Python of Cinder,
which has the database's driver. The rows that are copied were written by Cinder
itself, for a volume that was created and attached over its API. Prints the new ids.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

_CHUNK = 1000
# Each has a column volume_id. Numbers as ids are given by the database.
_BELONGING = ("volume_attachment", "volume_admin_metadata")
_Row = dict[str, Any]


def main(url: str, volume_id: str, count: int) -> None:
    """Write so many copies in one transaction."""
    engine, tables = sa.create_engine(url), sa.MetaData()
    tables.reflect(engine, only=["volumes", *_BELONGING])
    ids = [str(uuid.uuid4()) for _ in range(count)]
    with engine.begin() as connection:
        _copy(connection, tables.tables["volumes"], "id", volume_id, _volumes(ids))
        for name in _BELONGING:
            belonging = _belonging(ids)
            _copy(connection, tables.tables[name], "volume_id", volume_id, belonging)
    engine.dispose()
    print("\n".join(ids))


def _volumes(ids: list[str]) -> Callable[[_Row], Iterator[_Row]]:
    def copies(row: _Row) -> Iterator[_Row]:
        for number, volume_id in enumerate(ids):
            yield {**row, "id": volume_id, "display_name": f"volume {number}"}

    return copies


def _belonging(ids: list[str]) -> Callable[[_Row], Iterator[_Row]]:
    def copies(row: _Row) -> Iterator[_Row]:
        for volume_id in ids:
            new = {**row, "volume_id": volume_id}
            if isinstance(new.pop("id"), str):
                new |= {"id": str(uuid.uuid4()), "instance_uuid": str(uuid.uuid4())}
            yield new

    return copies


def _copy(
    connection: sa.Connection,
    table: sa.Table,
    column: str,
    volume_id: str,
    copies: Callable[[_Row], Iterator[_Row]],
) -> None:
    live = sa.select(table).where(table.c[column] == volume_id, table.c.deleted == 0)
    for row in connection.execute(live).mappings().all():
        new = list(copies(dict(row)))
        for start in range(0, len(new), _CHUNK):
            connection.execute(sa.insert(table), new[start : start + _CHUNK])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
