# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Open the database; hand out reading and writing transactions.

SQLite is opened in WAL mode with synchronous=FULL: a commit has reached the
disk when it returns (sqlite.org/pragma.html#pragma_synchronous), which is
what lets us acknowledge after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import sqlalchemy as sa

from agent.errors import DatabaseFailed, StartupError

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=10000",
    # KiB. Each connection has a cache of its own, and the kernel's is behind it:
    # with 1,024 no request was faster (10,000 volumes, 30,000 attachments).
    "PRAGMA cache_size=-256",
)


def now() -> datetime:
    """The time as the database keeps it: UTC, no zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Database:
    """Connections to one database, safe for many threads."""

    def __init__(self, url: str, connections: int) -> None:
        """Open no connection yet. ``url`` is SQLAlchemy's.

        :raises StartupError: the URL cannot be understood.
        """
        try:
            self.engine = sa.create_engine(
                url,
                pool_size=connections,
                max_overflow=0,
                pool_timeout=30,
                json_deserializer=orjson.loads,
            )
        except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
            raise StartupError(
                f"[database] connection is not usable ({error}):"
                " give a SQLAlchemy URL such as sqlite:////var/lib/lunshare/x.sqlite"
            ) from error
        # SQLite has one writer; waiting here is fair and costs nothing, while
        # its own busy handler sleeps and can starve a thread.
        self._writer = threading.Lock()
        self._sqlite = self.engine.dialect.name == "sqlite"
        if self._sqlite:
            sa.event.listen(self.engine, "connect", _prepare_sqlite)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One snapshot; nothing may be written in it."""
        with self._explained(), self.engine.connect() as connection:
            self._begin(connection, "BEGIN")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction, durable when the block ends, undone when it raises.

        Never held while a driver works.
        """
        with (
            self._writer,
            self._explained(),
            self.engine.connect() as connection,
            connection.begin(),
        ):
            # A deferred writer could fail at its first write with
            # SQLITE_BUSY_SNAPSHOT.
            self._begin(connection, "BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DatabaseError, sa.exc.TimeoutError) as error:
            if isinstance(error, sa.exc.IntegrityError):
                raise
            raise DatabaseFailed(
                f"the database {self.engine.url!r} cannot be used"
                f" ({getattr(error, 'orig', None) or error}): check its path, its"
                " owner and the room on its disk"
            ) from error

    def _begin(self, connection: sa.Connection, statement: str) -> None:
        """Say BEGIN to SQLite, straight to its driver.

        As a statement of SQLAlchemy's, or from its "begin" event, it costs as
        much as a query: one listener makes every execute look for others.
        """
        if self._sqlite:
            driver: Any = connection.connection.dbapi_connection
            driver.execute(statement)

    def close(self) -> None:
        """Close the idle connections."""
        self.engine.dispose()


def _prepare_sqlite(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # we say BEGIN ourselves
    for pragma in _PRAGMAS:
        dbapi_connection.execute(pragma)
