# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that read SQLite and stay open for the next reader.

To use the pool of SQLAlchemy costs as much as a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


class Readers:
    """One connection for each reader; up to ``most`` of them stay open."""

    def __init__(self, engine: sa.Engine, most: int) -> None:
        self._engine, self._most = engine, most
        self._idle: list[sa.Connection] = []

    @contextmanager
    def connection(self, in_transaction: bool) -> Iterator[sa.Connection]:
        """Read; nothing may be written. A transaction reads one snapshot of the data.

        Without one, each statement must be read to its end.
        """
        connection = self._acquire()
        driver: Any = connection.connection.dbapi_connection
        try:
            if in_transaction:
                driver.execute("BEGIN")
            yield connection
        finally:
            self._release(connection, driver)

    def _release(self, connection: sa.Connection, driver: Any) -> None:
        try:
            if driver.in_transaction:
                driver.execute("ROLLBACK")
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        if len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _acquire(self) -> sa.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()
