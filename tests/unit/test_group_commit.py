# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Transactions that share a commit."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import schema_version
from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite import group_commit
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.errors import DatabaseFailed, NotFound
from lunshare.agent.threads import turn
from lunshare.agent.threads.turn import Workers, waiting
from tests.stands.waiting import until

#: Seconds in which the transactions of a commit may begin.
SECONDS = group_commit._SECONDS


@pytest.fixture(autouse=True)
def long_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs more than SECONDS to begin those that a test counts."""
    monkeypatch.setattr(group_commit, "_SECONDS", 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{path}", connections=2)
    schema_version.prepare(made)
    yield made
    made.close()


def put(database: Database, name: str, error: Exception | None = None) -> None:
    with database.writing() as connection:
        row = {"host": name, "binary": "b", "disabled": True}
        connection.execute(sa.insert(SERVICES).values(row))
        if error is not None:
            raise error


def names(path: Path) -> set[str]:
    """What another program reads: committed, not only seen here."""
    with sqlite3.connect(path) as other:
        return {row[0] for row in other.execute("SELECT host FROM services")}


def together(
    database: Database, given: Sequence[Callable[[], None]]
) -> list[BaseException | None]:
    """Run all of these while one writer works; return what each raised, it last."""
    calls = list(given)
    raised: list[BaseException | None] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            calls[number]()
        except BaseException as error:
            raised[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]

    def leader() -> None:
        with database.writing() as connection:
            row = {"host": "first", "binary": "b", "disabled": True}
            connection.execute(sa.insert(SERVICES).values(row))
            for thread in threads:
                thread.start()
            group = database._group
            while group is not None and group._waiting < len(threads):
                time.sleep(0.001)

    calls.append(leader)
    raised.append(None)
    run(len(calls) - 1)
    for thread in threads:
        thread.join()
    return raised


def writer(database: Database) -> Any:
    """SQLite's driver, as the writers have it."""
    assert database._group is not None
    connection = database._group._connection
    assert connection is not None
    return connection.connection.dbapi_connection


def commits(database: Database) -> list[str]:
    """Every COMMIT that SQLite does from now on."""
    seen: list[str] = []
    put(database, "opened")
    driver = writer(database)
    driver.set_trace_callback(lambda said: seen.extend([said] * (said == "COMMIT")))
    return seen


def test_concurrent_transactions_share_one_commit(
    database: Database, path: Path
) -> None:
    seen = commits(database)
    calls = [partial(put, database, f"n{n}") for n in range(9)]
    assert together(database, calls) == [None] * 10
    assert names(path) >= {"first", *(f"n{n}" for n in range(9))}
    assert len(seen) == 1


def test_threads_that_wait_for_the_turn_share_the_commit(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "MAX_TURN", 20)
    seen = commits(database)
    gate, done = threading.Event(), list[int]()

    def work(number: int) -> None:
        if number == 8:
            gate.set()
            until(lambda: len(turn._TURN._queue) == 8)
        else:
            with waiting():
                assert gate.wait(20)
        put(database, f"n{number}")
        done.append(number)

    workers: Workers[int] = Workers("request", 9, work)
    for number in range(9):
        workers.put(number)
    until(lambda: len(done) == 9)
    assert workers.stop(time.monotonic() + 20)
    assert names(path) >= {f"n{n}" for n in range(9)}
    assert len(seen) == 1


def _work(seconds: float) -> None:
    """Use the processor, as a long answer does."""
    ends = time.monotonic() + seconds
    until(lambda: time.monotonic() > ends)


def test_a_commit_does_not_wait_for_a_row_of_long_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_SECONDS", SECONDS)
    ended: list[float] = []

    def write_long() -> None:
        with database.writing():
            _work(0.06)
        ended.append(time.monotonic())

    assert together(database, [write_long] * 20) == [None] * 21
    # Each commit has one or two of them: the first does not end with the last.
    assert max(ended) - min(ended) > 0.6


def test_a_commit_does_not_wait_for_who_has_the_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 answers of 0.09 seconds each, which have waited for storage, are before it."""
    monkeypatch.setattr(group_commit, "_SECONDS", SECONDS)

    def answer_long() -> None:
        turn._TURN.take()
        _work(0.09)
        turn._TURN.give_back()

    threads = [threading.Thread(target=answer_long) for _ in range(20)]
    turn._TURN.take()
    for thread in threads:
        thread.start()
    until(lambda: len(turn._TURN._queue) == len(threads))
    began = time.monotonic()
    put(database, "first")
    took = time.monotonic() - began
    turn._TURN.give_back()
    for thread in threads:
        thread.join()
    assert took < 0.6


def test_who_waits_for_the_connection_does_not_keep_it_from_who_has_the_turn(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "MAX_TURN", 20)
    group: Any = database._group
    done = list[str]()

    def work(name: str) -> None:
        if name == "last":  # the other one waits, and has been woken
            until(lambda: bool(group._waiting))
            group._writer.release()
            until(lambda: bool(turn._TURN._queue))
        put(database, name)
        done.append(name)

    group._writer.acquire()
    workers: Workers[str] = Workers("request", 2, work)
    workers.put("first")
    workers.put("last")
    until(lambda: len(done) == 2)
    assert workers.stop(time.monotonic() + 20)
    with sqlite3.connect(path) as other:
        rows = other.execute("SELECT host FROM services ORDER BY rowid").fetchall()
    assert rows == [("last",), ("first",)]


def test_a_close_does_not_lose_transactions_that_wait_for_their_commit(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "MAX_TURN", 20)
    gate, others_turn = threading.Event(), threading.Event()

    def work(name: str) -> None:
        if name == "other":
            others_turn.set()
            assert gate.wait(20)  # the first one's commit lets it run
        else:
            workers.put("other")
            until(lambda: bool(turn._TURN._queue))
            put(database, name)

    workers: Workers[str] = Workers("request", 2, work)
    workers.put("first")
    assert others_turn.wait(20)
    database.close()
    put(database, "after")
    gate.set()
    assert workers.stop(time.monotonic() + 20)
    assert names(path) == {"first", "after"}


def test_a_thread_that_fails_before_its_commit_commits_for_the_others(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_until: float) -> None:
        raise MemoryError

    monkeypatch.setattr(group_commit, "let_others_run", failing)
    with pytest.raises(MemoryError):
        put(database, "first")
    monkeypatch.undo()
    put(database, "second")
    assert names(path) == {"first", "second"}


def test_only_the_transaction_that_raises_is_rolled_back(
    database: Database, path: Path
) -> None:
    error = NotFound("volume", "x")
    calls = [lambda: put(database, "yes"), lambda: put(database, "no", error)]
    calls += [lambda: put(database, "too")]
    assert together(database, calls) == [None, error, None, None]
    assert names(path) == {"first", "yes", "too"}
    with pytest.raises(NotFound):
        put(database, "alone", error)
    put(database, "after")
    assert names(path) == {"first", "yes", "too", "after"}


def test_a_failed_commit_fails_each_of_its_transactions(
    database: Database, path: Path
) -> None:
    def dangling() -> None:
        with database.writing() as connection:
            connection.execute(sa.text("PRAGMA defer_foreign_keys=ON"))
            connection.execute(
                sa.text(
                    "INSERT INTO volume_attachment (id, volume_id, attach_status,"
                    " deleted) VALUES ('a', 'none', 'reserved', 0)"
                )
            )

    raised = together(database, [dangling, lambda: put(database, "b")])
    failed = [error is not None for error in raised]
    assert all(failed)
    assert names(path) == set()
    put(database, "after")
    assert names(path) == {"after"}


def test_a_full_disk_stores_exactly_what_was_confirmed(
    database: Database, path: Path
) -> None:
    put(database, "before")
    driver = writer(database)
    (pages,) = driver.execute("PRAGMA page_count").fetchone()
    driver.execute(f"PRAGMA max_page_count={pages}")
    calls = [partial(put, database, f"n{n}" + "x" * 3000) for n in range(6)]
    raised = together(database, calls)
    assert any(isinstance(error, DatabaseFailed) for error in raised)
    assert ("first" in names(path)) is (raised[-1] is None)
    there = {name.rstrip("x") for name in names(path)}
    for number, error in enumerate(raised[:-1]):
        assert (f"n{number}" in there) is (error is None)
    assert (
        database.write_check.problem is None or "full" in database.write_check.problem
    )


def test_a_read_only_database_is_reported(database: Database, path: Path) -> None:
    put(database, "x")
    database.close()
    reading = Database(f"sqlite:///file:{path}?mode=ro&uri=true", connections=1)
    reading.write_check.note_failure("unknown yet")
    reading.probe()
    assert "readonly" in str(reading.write_check.problem)
    reading.close()


def test_a_probe_leaves_nothing_and_is_not_done_after_a_write(
    database: Database, path: Path
) -> None:
    seen = commits(database)
    database.probe()
    assert seen == []
    database.write_check.note_failure("it was so")
    database.probe()
    assert seen == ["COMMIT"]
    assert database.write_check.problem is None
    assert names(path) == {"opened"}


def test_a_transaction_that_cannot_be_rolled_back_fails_the_others_as_a_database_does(
    database: Database, path: Path
) -> None:
    """SQLite itself rolls everything back when the disk is full or fails."""
    error = NotFound("volume", "x")

    def broken() -> None:
        with database.writing():
            writer(database).execute("ROLLBACK")
            raise error

    put(database, "before")
    raised = together(database, [broken])
    assert raised[0] is error
    assert isinstance(raised[1], DatabaseFailed)
    assert names(path) == {"before"}
    assert database.write_check.problem is not None
    put(database, "after")
    assert names(path) == {"before", "after"}


def test_a_writing_connection_that_is_lost_is_replaced(
    database: Database, path: Path
) -> None:
    put(database, "before")
    writer(database).close()
    with pytest.raises(DatabaseFailed):
        put(database, "lost")
    put(database, "after")
    assert names(path) == {"before", "after"}


@pytest.mark.parametrize("one_statement", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_reading_connection_that_is_lost_is_replaced(
    database: Database, prepared: bool, one_statement: bool
) -> None:
    def read(lost: bool = False) -> None:
        with database.reading(one_statement) as connection:
            if lost:
                driver: Any = connection.connection.dbapi_connection
                driver.close()
            if prepared:
                Prepared(sa.select(SERVICES)).rows(connection, {})
            else:
                connection.execute(sa.select(SERVICES)).all()

    read()
    for _ in range(3):
        with pytest.raises(DatabaseFailed):
            read(lost=True)
    read()
