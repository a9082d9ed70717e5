# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The database's file is moved, removed or replaced while the daemon has it open.

SQLite goes on writing to the file that it has open, whose name is gone: every answer
was a success, and at the next start none of it existed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lunshare.agent.db import schema_version
from lunshare.agent.db.schema import SERVICES
from lunshare.agent.db.sqlite.engine import LOG_SIZE, Database
from lunshare.agent.model.errors import DatabaseFailed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lunshare.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{path}", connections=4)
    schema_version.prepare(made)
    put(made, "first")
    yield made
    made.close()


def put(
    database: Database, host: str, before_commit: Callable[[], None] = lambda: None
) -> None:
    with database.writing() as connection:
        row = {"host": host, "binary": "b", "disabled": False}
        connection.execute(sa.insert(SERVICES).values(row))
        before_commit()


def test_the_log_of_a_long_read_does_not_stay(database: Database, path: Path) -> None:
    """What is written while a transaction reads is added to the log (WAL)."""
    log = path.with_name(f"{path.name}-wal")
    with database.reading() as connection:
        connection.execute(sa.select(SERVICES)).all()
        for number in range(5):
            with database.writing() as writer:
                names = (f"{number}-{row}" for row in range(9000))
                rows = [{"host": name, "binary": "b" * 255} for name in names]
                writer.execute(sa.insert(SERVICES), rows)
    assert log.stat().st_size > LOG_SIZE
    for number in range(3):
        put(database, f"after {number}")
    assert log.stat().st_size <= LOG_SIZE


def hosts(database: Database) -> set[str]:
    with database.reading() as connection:
        return set(connection.execute(sa.select(SERVICES.c.host)).scalars())


def removed(path: Path) -> None:
    for each in path.parent.glob("lunshare.sqlite*"):
        each.unlink()


def replaced_by_an_older_copy(path: Path) -> None:
    copy = path.with_name("copy")
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    copy.rename(path)


@pytest.mark.parametrize("change", [removed, replaced_by_an_older_copy])
def test_nothing_is_confirmed_in_a_file_without_its_name(
    database: Database, path: Path, change: Callable[[Path], None]
) -> None:
    change(path)
    for step in (lambda: put(database, "second"), lambda: hosts(database)):
        with pytest.raises(DatabaseFailed, match="restart lunshared"):
            step()
    assert "restart lunshared" in str(database.write_check.problem)


def test_a_file_that_vanishes_during_a_transaction_confirms_nothing(
    database: Database, path: Path
) -> None:
    with pytest.raises(DatabaseFailed, match="restart lunshared"):
        put(database, "second", lambda: removed(path))


def test_the_probe_reports_it_although_a_write_has_just_succeeded(
    database: Database, path: Path
) -> None:
    assert database.write_check.fresh
    os.rename(path, path.with_name("elsewhere"))
    database.probe()
    assert "restart lunshared" in str(database.write_check.problem)


def test_a_file_that_gets_its_name_back_is_used_again(
    database: Database, path: Path
) -> None:
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    with pytest.raises(DatabaseFailed):
        put(database, "second")
    elsewhere.rename(path)
    put(database, "third")
    assert hosts(database) == {"first", "third"}
    assert database.write_check.problem is None
