# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that read SQLite, kept open from one reader to the next.

To take one out of SQLAlchemy's pool and to give it back costs as much as the
query it is wanted for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


class Readers:
    """One connection for each reader; so many are kept when they are done."""

    def __init__(self, engine: sa.Engine, most: int) -> None:
        self._engine, self._most = engine, most
        self._idle: list[sa.Connection] = []

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """One snapshot; nothing may be written in it."""
        connection = self._taken()
        driver: Any = connection.connection.dbapi_connection
        driver.execute("BEGIN")
        try:
            yield connection
        finally:
            self._give_back(connection, driver)

    def _give_back(self, connection: sa.Connection, driver: Any) -> None:
        try:
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
        """Close those that nobody reads with."""
        while self._idle:
            self._idle.pop().close()

    def _taken(self) -> sa.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()
