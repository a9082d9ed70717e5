# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The schema: created from nothing, never guessed; another version is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from lunshare.agent.db import schema_version
from lunshare.agent.db.schema import METADATA
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import DatabaseFailed, StartupError

DUMP = Path(__file__).with_name("database_0012.sql")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.sqlite"


@pytest.fixture
def database(path: Path):
    database = Database(f"sqlite:///{path}", connections=2)
    yield database
    database.close()


def _dumped(path: Path, version: str = "0012", journal_mode: str = "delete") -> None:
    """A database that alembic upgraded, as the dump has it."""
    with closing(sqlite3.connect(path)) as driver:
        driver.execute(f"PRAGMA journal_mode={journal_mode}")
        driver.executescript(DUMP.read_text())
        driver.execute("UPDATE alembic_version SET version_num = ?", (version,))
        driver.commit()


def test_a_new_database_gets_the_schema(database: Database) -> None:
    schema_version.prepare(database)
    schema_version.prepare(database)
    with database.reading() as connection:
        names = sa.inspect(connection).get_table_names()
    assert set(names) == {*METADATA.tables, "alembic_version"}


# The index on an expression; its SQL is compared below.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression")
def test_a_database_of_alembic_has_the_schema_of_a_new_one(
    database: Database, path: Path
) -> None:
    schema_version.prepare(database)
    dumped = path.with_name("dumped")
    _dumped(dumped)
    upgraded = Database(f"sqlite:///{dumped}", connections=2)
    schema_version.prepare(upgraded)
    assert _shape(upgraded) == _shape(database)
    upgraded.close()


def _shape(database: Database) -> dict[str, object]:
    """Tables with columns and keys, the version, and the SQL of every index."""
    with database.reading() as connection:
        inspector = sa.inspect(connection)
        shape: dict[str, object] = {
            name: (
                {
                    column["name"]: {**column, "type": str(column["type"])}
                    for column in inspector.get_columns(name)
                },
                inspector.get_pk_constraint(name),
                inspector.get_foreign_keys(name),
                inspector.get_unique_constraints(name),
            )
            for name in inspector.get_table_names()
        }
        query = "SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'trigger')"
        shape.update((row[0], row[1]) for row in connection.execute(sa.text(query)))
        version = connection.execute(sa.text("SELECT * FROM alembic_version"))
        return {**shape, "version": version.scalars().all()}


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("0001", "start lunshare of commit 7f7d4e9 with it once, which upgrades it"),
        ("0011", "start lunshare of commit 7f7d4e9 with it once, which upgrades it"),
        ("0016", "run the version of lunshare that wrote it"),
        ("", "run the version of lunshare that wrote it"),
    ],
)
def test_another_schema_is_refused_and_its_file_left_alone(
    database: Database, path: Path, version: str, advice: str, journal_mode: str
) -> None:
    _dumped(path, version, journal_mode)
    before = path.read_bytes()
    with pytest.raises(StartupError) as refusal:
        schema_version.prepare(database)
    assert refusal.value.message == (
        f"the database has schema '{version}', and this lunshare has schema '0015':"
        f" {advice}"
    )
    database.close()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_indexes_cover_only_rows_that_are_not_deleted(database: Database) -> None:
    schema_version.prepare(database)
    with database.reading() as connection:
        query = "SELECT sql FROM sqlite_master WHERE type='index' AND sql NOT NULL"
        statements = list(connection.execute(sa.text(query)).scalars())
    assert len(statements) == 28
    # All but those for a foreign key, and for few rows: unanswered, fences.
    rest = [sql for sql in statements if "WHERE deleted = " not in sql]
    wholly = ["(volume_id, deleted, sequence)", "(volume_id, deleted, attach_status)"]
    few = ["WHERE answered = 0", "ON transfers (volume_id)", "ON host_fences (host)"]
    for end in (*wholly, *few):
        (found,) = [sql for sql in rest if sql.endswith(end)]
        rest.remove(found)
    assert rest == []


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("something else, longer than a header " * 9)
    database = Database(f"sqlite:///{tmp_path}/x.sqlite", connections=1)
    with pytest.raises(StartupError, match="not a database"):
        schema_version.prepare(database)
    database.close()


def test_a_commit_is_durable_when_it_returns(database: Database) -> None:
    """WAL with synchronous=FULL: sqlite.org/pragma.html#pragma_synchronous."""
    schema_version.prepare(database)
    with database.reading() as connection:
        pragma = connection.exec_driver_sql
        assert pragma("PRAGMA journal_mode").scalar() == "wal"
        assert pragma("PRAGMA synchronous").scalar() == 2


def test_a_full_disk_is_reported_and_nothing_is_half_written(
    database: Database,
) -> None:
    schema_version.prepare(database)
    with database.writing() as connection:
        # As on a full disk: SQLite may not take one more page.
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    database.close()
    sa.event.listen(
        database.engine,
        "connect",
        lambda driver, _: driver.execute(f"PRAGMA max_page_count={pages}"),
    )
    insert = sa.text("INSERT INTO services VALUES (:host, 'b', 0, :text, NULL, 0)")

    def write() -> None:
        with database.writing() as connection:
            connection.execute(insert, {"host": "fits", "text": "small"})
            connection.execute(insert, {"host": "h", "text": "x" * 100_000})

    with pytest.raises(DatabaseFailed, match="database or disk is full"):
        write()
    with database.reading() as connection:
        left = connection.execute(sa.text("SELECT count(*) FROM services")).scalar()
    assert left == 0


def test_fences_of_names_that_differ_in_case_become_one(
    database: Database, path: Path
) -> None:
    """The strictest of them counts, from the first one on."""
    schema_version.prepare(database)
    rows = [
        ("Alpha", "Alpha", "all", "2026-02-02 00:00:00.000000"),
        ("alpha", "alpha", "writes", "2026-01-01 00:00:00.000000"),
        ("iqn.a", "Alpha", "all", "2026-02-02 00:00:00.000000"),
        ("beta", "beta", "writes", "2026-03-03 00:00:00.000000"),
    ]
    with closing(sqlite3.connect(path)) as driver:
        driver.executemany("INSERT INTO host_fences VALUES (?, ?, ?, ?)", rows)
        driver.execute("DROP INDEX attachments_by_host_name")
        driver.execute(
            "CREATE INDEX attachments_by_host ON volume_attachment (attached_host)"
            " WHERE deleted = 0"
        )
        driver.execute("UPDATE alembic_version SET version_num = '0014'")
        driver.commit()
    schema_version.prepare(database)
    with closing(sqlite3.connect(path)) as driver:
        found = driver.execute("SELECT * FROM host_fences ORDER BY name").fetchall()
        indexes = (
            "SELECT name FROM sqlite_master WHERE name LIKE 'attachments_by_host%'"
        )
        assert driver.execute(indexes).fetchall() == [("attachments_by_host_name",)]
    assert found == [
        ("alpha", "alpha", "all", "2026-01-01 00:00:00.000000"),
        ("beta", "beta", "writes", "2026-03-03 00:00:00.000000"),
        ("iqn.a", "alpha", "all", "2026-02-02 00:00:00.000000"),
    ]
