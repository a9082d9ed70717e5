# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Group commit: transactions of several threads share one commit.

SQLite has one writer at a time. Each transaction here is a savepoint in an open
transaction of SQLite, in which the next waiting thread continues. A thread that leaves
it while no other waits commits for all, after the threads that wait for the turn: they
may write too. Each transaction returns only when the commit is on the disk. A rollback
concerns one of them; a failed commit fails all of them.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from lunshare.agent.threads.turn import let_others_run, waiting

#: Largest number of transactions per commit, and seconds in which they may begin, so
#: that the first does not wait long.
_MOST = 32
_SECONDS = 0.05

# Such as "database or disk is full"; after it a rollback fails as "no such savepoint".
_OF_DATABASE = (sa.exc.OperationalError, sqlite3.OperationalError)


class _Batch:
    """The transactions of one commit; none joins after ``until`` (monotonic)."""

    def __init__(self) -> None:
        self.count = 0
        self.until = time.monotonic() + _SECONDS
        self.has_leader = False  # whether a thread waits to commit it
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
        """Open one transaction: durable at the end of the block, or rolled back."""
        batch, connection = self._enter()
        try:
            self._execute("SAVEPOINT one")
            yield connection
            self._execute("RELEASE one")
        except BaseException as error:
            self._roll_back(batch, error)
            raise
        self._leave(batch)
        if not batch.done.is_set():
            with waiting():
                batch.done.wait()
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Close the connection; commit first what waits for its commit."""
        self._take_writer()
        if self._batch is not None:
            self._end(self._batch)
        self._discard()
        self._writer.release()

    def _enter(self) -> tuple[_Batch, sa.Connection]:
        """Wait for the others; continue in their transaction, or begin one."""
        came = time.monotonic()
        with self._counter:
            self._waiting += 1
        self._take_writer()
        with self._counter:
            self._waiting -= 1
        try:
            return self._begin(came)
        except BaseException as error:
            self._refused = time.monotonic(), error
            self._discard()  # it may be what fails
            self._writer.release()
            raise

    def _take_writer(self) -> None:
        """Take the writing connection, and hold it with the turn only.

        A thread that got it while it waits, and then waits for its turn, would keep it
        from those that have the turn: 0.79 times the rate (docs/decisions/0015).
        """
        while not self._writer.acquire(blocking=False):
            with waiting():
                self._writer.acquire()
                self._writer.release()

    def _begin(self, came: float) -> tuple[_Batch, sa.Connection]:
        if self._batch is None or self._connection is None:
            # The database refused another thread while this one waited: do not wait
            # as long again.
            if self._refused and came < self._refused[0]:
                raise self._refused[1]
            if self._connection is None:
                self._connection = self._engine.connect()
            # A transaction of SQLAlchemy alone: tests stop the process at the event of
            # its commit.
            if not self._connection.in_transaction():
                self._connection.begin()
            # A deferred transaction could fail at its first write with
            # SQLITE_BUSY_SNAPSHOT.
            self._execute("BEGIN IMMEDIATE")
            self._batch = _Batch()
        self._batch.count += 1
        return self._batch, self._connection

    def _leave(self, batch: _Batch) -> None:
        """Commit, unless another thread will do it."""
        with self._counter:
            has_next = self._waiting > 0
        if batch.count >= _MOST or time.monotonic() >= batch.until:
            self._finish(batch)
        elif has_next or batch.has_leader:
            self._writer.release()
        else:
            self._lead(batch)

    def _lead(self, batch: _Batch) -> None:
        """Let who waits for the turn join, then commit."""
        batch.has_leader = True
        self._writer.release()
        try:
            let_others_run(batch.until)  # they may write too
        finally:  # whatever happened, the others wait for it
            self._take_writer()
            self._finish(batch)

    def _finish(self, batch: _Batch) -> None:
        """Commit, unless that was done, and release the connection."""
        if self._batch is batch:
            self._end(batch)
        self._writer.release()

    def _end(self, batch: _Batch) -> None:
        """Commit the batch."""
        connection: Any = self._connection
        self._batch = None
        try:
            with waiting():
                connection.commit()
        except BaseException as error:
            batch.error = error
            self._discard()
        batch.done.set()

    def _roll_back(self, batch: _Batch, error: BaseException) -> None:
        """Roll back one transaction; the others are committed later, or here.

        If the disk is full or fails, SQLite has rolled back all of them. The others
        get the error of the database, not one that this transaction is about.
        """
        try:
            self._execute("ROLLBACK TO one")
            self._execute("RELEASE one")
        except BaseException as failure:
            why = error if isinstance(error, _OF_DATABASE) else failure
            self._batch, batch.error = None, why
            self._discard()
            batch.done.set()
            self._writer.release()
        else:
            self._leave(batch)

    def _execute(self, statement: str) -> None:
        """Run a statement in the driver of SQLite.

        Through SQLAlchemy it would cost as much as a query.
        """
        connection: Any = self._connection
        connection.connection.dbapi_connection.execute(statement)

    def _discard(self) -> None:
        """Close the connection; the next transaction opens a new one."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
