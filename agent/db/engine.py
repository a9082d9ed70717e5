# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Open the database; hand out reading and writing transactions.

SQLite is opened in WAL mode with synchronous=FULL: a commit has reached the
disk when it returns (sqlite.org/pragma.html#pragma_synchronous), which is
what lets us acknowledge after it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import sqlalchemy as sa

from lunshare.agent.db.group_commit import Group
from lunshare.agent.db.readers import Readers
from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.write_check import Condition
from lunshare.agent.errors import DatabaseFailed, StartupError

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    # How long a client waits where another program holds the lock; then it is 503.
    "PRAGMA busy_timeout=5000",
    # KiB. Each connection has a cache of its own, and the kernel's is behind it:
    # with 1,024 no request was faster (10,000 volumes, 30,000 attachments).
    "PRAGMA cache_size=-256",
)


#: Seconds between two looks at whether the database can be written.
PROBE_SECONDS = 5.0

# A row that comes and goes in one transaction: its page is written all the same.
_PROBE = {"host": "", "binary": "probe", "disabled": False}


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
                max_overflow=-1,
                pool_timeout=30,
                json_deserializer=orjson.loads,
            )
        except (sa.exc.ArgumentError, ModuleNotFoundError, TypeError) as error:
            raise StartupError(
                f"[database] connection is not usable ({error}):"
                " give a SQLAlchemy URL such as sqlite:////var/lib/lunshare/x.sqlite"
            ) from error
        self.condition = Condition()
        self._group: Group | None = None
        self._readers: Readers | None = None
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            self._group = Group(self.engine)
            self._readers = Readers(self.engine, connections)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One snapshot; nothing may be written in it."""
        with self._explained():
            if self._readers is not None:
                with self._readers.snapshot() as connection:
                    yield connection
            else:
                with self.engine.connect() as connection:
                    yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction, durable when the block ends, undone when it raises.

        Never held while a driver works.
        """
        try:
            with self._explained(), self._transaction() as connection:
                yield connection
        except DatabaseFailed as error:
            self.condition.failed(error.message)
            raise
        self.condition.wrote()

    def probe(self) -> None:
        """Prove that a write reaches the disk, unless one has just now.

        What it finds is in ``condition``.
        """
        if self.condition.fresh:
            return
        with contextlib.suppress(DatabaseFailed), self.writing() as connection:
            connection.execute(sa.insert(SERVICES).values(_PROBE))
            connection.execute(sa.delete(SERVICES).where(SERVICES.c.host == ""))

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        if self._group is not None:
            with self._group.transaction() as connection:
                yield connection
        else:
            with self.engine.begin() as connection:
                yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.IntegrityError, sqlite3.IntegrityError):
            raise
        except (sa.exc.DatabaseError, sa.exc.TimeoutError, sqlite3.Error) as error:
            raise DatabaseFailed(
                f"the database {self.engine.url!r} cannot be used"
                f" ({getattr(error, 'orig', None) or error}): check its path, its"
                " owner and the room on its disk"
            ) from error

    def close(self) -> None:
        """Close the idle connections."""
        if self._group is not None and self._readers is not None:
            self._group.close()
            self._readers.close()
        self.engine.dispose()


def _prepare_sqlite(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # we say BEGIN ourselves
    for pragma in _PRAGMAS:
        dbapi_connection.execute(pragma)
