# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Open the database; provide transactions that read or write.

SQLite is opened in WAL mode with synchronous=FULL: a commit is on the disk when
it returns (sqlite.org/pragma.html#pragma_synchronous), so a client may get its
answer then.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import sqlalchemy as sa

from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite.checks import DatabaseFile, WriteCheck
from lunshare.agent.db.sqlite.group_commit import Group
from lunshare.agent.db.sqlite.readers import Readers
from lunshare.agent.model.errors import DatabaseFailed, StartupError

#: Bytes of its log (WAL) that stay on the disk after what was written during a long
#: read, such as the copy of a backup.
LOG_SIZE = 16 * 2**20

_WAL = "PRAGMA journal_mode=WAL"
_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    # Milliseconds that a client waits for a lock of another program; then it gets 503.
    "PRAGMA busy_timeout=5000",
    # KiB for each connection. With 1,024 no request was faster, since the kernel has
    # a cache too (10,000 volumes, 30,000 attachments).
    "PRAGMA cache_size=-256",
    f"PRAGMA journal_size_limit={LOG_SIZE}",
)


#: The type of what each transaction is read and written with, for callers without SQL.
Connection = sa.Connection

#: Seconds between two checks whether the database can be written.
PROBE_SECONDS = 5.0

# A row that one transaction inserts and deletes. Its page is written nevertheless.
_PROBE = {"host": "", "binary": "probe", "disabled": False}


def now() -> datetime:
    """Return the time as stored in the database: UTC, without zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Database:
    """Connections to one database, safe for many threads."""

    def __init__(self, url: str, connections: int) -> None:
        """Prepare connections; none is opened yet. ``url`` is of SQLAlchemy.

        :raises StartupError: the URL is not valid or not supported.
        """
        try:
            _need_sqlite(sa.make_url(url))
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
        self._pragmas: tuple[str, ...] = _PRAGMAS
        self.write_check = WriteCheck()
        sa.event.listen(self.engine, "connect", self._prepare_sqlite)
        self._file = _file_of(self.engine.url)
        self._group = Group(self.engine)
        self._readers = Readers(self.engine, connections)

    def use_wal(self) -> None:
        """Open the database in WAL mode from now on.

        That is written to its file, so its schema is checked before.
        """
        self.close()  # connections without it
        self._pragmas = (_WAL, *_PRAGMAS)

    @contextmanager
    def reading(self, one_statement: bool = False) -> Iterator[sa.Connection]:
        """Read one snapshot of the data; nothing may be written.

        With ``one_statement`` the caller runs one only. That is a snapshot by itself,
        so no transaction is begun and ended, which would be two more statements.
        """
        self._check_file()
        readers = self._readers.connection(in_transaction=not one_statement)
        with self._explained(), readers as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Write in one transaction: durable at the end of the block, or rolled back.

        It must not be open while a driver works.
        """
        try:
            self._check_file()
            with self._explained(), self._group.transaction() as connection:
                yield connection
            self._check_file()  # only then it is confirmed
        except DatabaseFailed as error:
            self.write_check.note_failure(error.message)
            raise
        self.write_check.note_success()

    def probe(self) -> None:
        """Check that a write reaches the disk, unless one just did.

        The result is in ``write_check``.
        """
        try:
            self._check_file()
        except DatabaseFailed as error:
            self.write_check.note_failure(error.message)
            return
        if self.write_check.fresh:
            return
        with contextlib.suppress(DatabaseFailed), self.writing() as connection:
            connection.execute(sa.insert(SERVICES).values(_PROBE))
            connection.execute(sa.delete(SERVICES).where(SERVICES.c.host == ""))

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    def _prepare_sqlite(self, dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.isolation_level = None  # BEGIN is sent by this package
        for pragma in self._pragmas:
            dbapi_connection.execute(pragma)
        if self._file is not None:
            self._file.note_opened()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.IntegrityError, sqlite3.IntegrityError):
            raise
        except (sa.exc.DatabaseError, sa.exc.TimeoutError, sqlite3.Error) as error:
            why = getattr(error, "orig", None) or error
            raise DatabaseFailed(
                f"the database cannot be used ({why}): check path, owner and the free"
                f" space of the disk of {self.engine.url!r}"
            ) from error

    def close(self) -> None:
        """Close the idle connections."""
        self._group.close()
        self._readers.close()
        self.engine.dispose()


def _need_sqlite(url: sa.URL) -> None:
    """Refuse other databases. They have several writers at a time.

    ``volumes.claim`` and the quotas decide on rows that another writer could change
    before the commit: two hosts could reserve a plain volume.
    """
    if url.get_backend_name() != "sqlite":
        raise StartupError(
            f"[database] connection is of {url.get_backend_name()}, and lunshare needs"
            " SQLite: give a URL such as sqlite:////var/lib/lunshare/x.sqlite"
        )


def _file_of(url: sa.URL) -> DatabaseFile | None:
    """Return the file of an SQLite database; None in memory, or for a URI."""
    path = url.database or ""
    if path in ("", ":memory:") or path.startswith("file:"):
        return None
    return DatabaseFile(os.path.abspath(path))
