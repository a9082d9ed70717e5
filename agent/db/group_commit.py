# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Group commit: transactions that come together reach the disk together.

SQLite has one writer at a time. Each transaction here is a savepoint in one that
is open; the next writer who waits goes on in it, and the last one commits it for
all. Each of them returns when the commit has reached the disk, and not before.
What one undoes is undone alone; a commit that fails fails all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from lunshare.agent.worker_turns import waiting

#: Transactions of one commit; more would make the first one wait too long.
_MOST = 32


class _Batch:
    """Transactions that one commit ends."""

    def __init__(self) -> None:
        self.count = 0
        self.done = threading.Event()
        self.error: BaseException | None = None


class Group:
    """The one writing connection of an SQLite database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._writer = threading.Lock()
        self._counter = threading.Lock()
        self._waiting = 0
        self._connection: sa.Connection | None = None
        self._batch: _Batch | None = None
        self._refused: tuple[float, BaseException] | None = None

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One transaction, durable when the block ends, undone when it raises."""
        batch, connection = self._enter()
        try:
            self._say("SAVEPOINT one")
            yield connection
            self._say("RELEASE one")
        except BaseException as error:
            self._undo(batch, error)
            raise
        if not self._leave(batch):
            with waiting():
                batch.done.wait()
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Close the connection."""
        with self._writer:
            self._discard()

    def _enter(self) -> tuple[_Batch, sa.Connection]:
        """Wait for the others; go on in their transaction, or begin one."""
        came = time.monotonic()
        with self._counter:
            self._waiting += 1
        if not self._writer.acquire(blocking=False):
            with waiting():
                self._writer.acquire()
        with self._counter:
            self._waiting -= 1
        try:
            return self._begun(came)
        except BaseException as error:
            self._refused = time.monotonic(), error
            self._writer.release()
            raise

    def _begun(self, came: float) -> tuple[_Batch, sa.Connection]:
        if self._connection is None:
            self._connection = self._engine.connect()
        if self._batch is None:
            # Who waited while another one was refused would wait as long in vain.
            if self._refused and came < self._refused[0]:
                raise self._refused[1]
            # SQLAlchemy's own, of which SQLite hears nothing: alembic asks for one,
            # and its commit is an event at which tests end a life.
            if not self._connection.in_transaction():
                self._connection.begin()
            # A deferred writer could fail at its first write with
            # SQLITE_BUSY_SNAPSHOT.
            self._say("BEGIN IMMEDIATE")
            self._batch = _Batch()
        self._batch.count += 1
        return self._batch, self._connection

    def _leave(self, batch: _Batch) -> bool:
        """Leave the commit to who waits; else commit, and say so."""
        with self._counter:
            followed = self._waiting > 0 and batch.count < _MOST
        if not followed:
            self._end(batch)
        self._writer.release()
        return not followed

    def _end(self, batch: _Batch) -> None:
        """Commit for all of the batch."""
        connection: Any = self._connection
        self._batch = None
        try:
            with waiting():
                connection.commit()
        except BaseException as error:
            batch.error = error
            self._discard()
        batch.done.set()

    def _undo(self, batch: _Batch, error: BaseException) -> None:
        """Undo one of the batch; the others are committed by who comes next, or here.

        SQLite undoes all of them itself when the disk is full or fails.
        """
        try:
            self._say("ROLLBACK TO one")
            self._say("RELEASE one")
        except BaseException:
            self._batch, batch.error = None, error
            self._discard()
            batch.done.set()
            self._writer.release()
        else:
            self._leave(batch)

    def _say(self, statement: str) -> None:
        """To SQLite's driver itself.

        As a statement of SQLAlchemy's it costs as much as a query.
        """
        connection: Any = self._connection
        connection.connection.dbapi_connection.execute(statement)

    def _discard(self) -> None:
        """The next one begins on a new connection."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
