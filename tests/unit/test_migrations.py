# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The schema: created from nothing, equal to the tables, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from lunshare.agent.db import migrations, snapshots, status_changes, volumes
from lunshare.agent.db.schema import METADATA
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import DatabaseFailed, StartupError
from tests import counted_rows


@pytest.fixture
def database(tmp_path: Path):
    made = Database(f"sqlite:///{tmp_path}/x.sqlite", connections=2)
    yield made
    made.close()


def test_head_is_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", "lunshare.agent.db:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [migrations.HEAD]


def test_a_new_database_gets_the_schema(database: Database) -> None:
    migrations.upgrade(database)
    migrations.upgrade(database)
    with database.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []


def test_all_upgrades_give_the_same_schema(database: Database, tmp_path: Path) -> None:
    """A new database skips the steps. An upgraded one must be equal to it."""
    migrations.upgrade(database)
    stepped = Database(f"sqlite:///{tmp_path}/stepped.sqlite", connections=2)
    migrations.run(stepped, None)
    assert _shape(stepped) == _shape(database)
    migrations.upgrade(stepped)
    stepped.close()


def _shape(database: Database) -> dict[str, object]:
    """Tables with columns and keys, the version, and the SQL of every index."""
    with database.reading() as connection:
        found = sa.inspect(connection)
        shape: dict[str, object] = {
            name: (
                [{**c, "type": str(c["type"])} for c in found.get_columns(name)],
                found.get_pk_constraint(name),
                found.get_foreign_keys(name),
                found.get_unique_constraints(name),
            )
            for name in found.get_table_names()
        }
        query = "SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'trigger')"
        shape.update((row[0], row[1]) for row in connection.execute(sa.text(query)))
        version = connection.execute(sa.text("SELECT * FROM alembic_version"))
        return {**shape, "version": version.scalars().all()}


def test_indexes_cover_only_rows_that_are_not_deleted(database: Database) -> None:
    migrations.upgrade(database)
    with database.reading() as connection:
        query = "SELECT sql FROM sqlite_master WHERE type='index' AND sql NOT NULL"
        made = list(connection.execute(sa.text(query)).scalars())
    assert len(made) == 18
    # All but those for a foreign key, and for the few unanswered attachments.
    rest = [sql for sql in made if "WHERE deleted = " not in sql]
    wholly = ["(volume_id, deleted, sequence)", "(volume_id, deleted, attach_status)"]
    for end in (*wholly, "WHERE answered = 0", "ON transfers (volume_id)"):
        (found,) = [sql for sql in rest if sql.endswith(end)]
        rest.remove(found)
    assert rest == []


def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    migrations.upgrade(database)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num='9999'"))
    with pytest.raises(StartupError, match="'9999', which this lunshare does not know"):
        migrations.upgrade(database)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("something else, longer than a header " * 9)
    database = Database(f"sqlite:///{tmp_path}/x.sqlite", connections=1)
    with pytest.raises(StartupError, match="not a database"):
        migrations.upgrade(database)
    database.close()


def test_a_commit_is_durable_when_it_returns(database: Database) -> None:
    """WAL with synchronous=FULL: sqlite.org/pragma.html#pragma_synchronous."""
    with database.reading() as connection:
        pragma = connection.exec_driver_sql
        assert pragma("PRAGMA journal_mode").scalar() == "wal"
        assert pragma("PRAGMA synchronous").scalar() == 2


def test_a_full_disk_is_reported_and_nothing_is_half_written(
    database: Database,
) -> None:
    migrations.upgrade(database)
    with database.writing() as connection:
        # As on a full disk: SQLite may not take one more page.
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    database.close()
    sa.event.listen(
        database.engine,
        "connect",
        lambda made, _: made.execute(f"PRAGMA max_page_count={pages}"),
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


def test_a_database_of_the_first_schema_is_read(database: Database) -> None:
    """A database of 0001 with a volume in it, as its own lunshare left it."""
    _upgrade_to(database, "0001")
    with database.writing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO volumes VALUES ('v', 'n', NULL, 3, 'available', NULL, 'lvm',"
            " 'p', 'u', 'nova', 0, 0, NULL, '{}', NULL, NULL, NULL, 0)"
        )
    migrations.upgrade(database)
    with database.writing() as connection:
        found = volumes.get(connection, "v")
        assert found is not None
        assert (found.name, found.size, found.intent) == ("n", 3, None)
        assert (found.snapshot_id, found.source_volid) == (None, None)
        assert snapshots.of_volume(connection, "v") == []


def test_an_upgrade_continues_an_unfinished_clone(database: Database) -> None:
    """As the version before the names of the intent left it."""
    _upgrade_to(database, "0011")
    volume = (
        "INSERT INTO volumes (id, size, status, backend, project_id, user_id,"
        " availability_zone, multiattach, bootable, metadata, deleted, source_volid,"
        " intent) VALUES (?, 1, ?, 'b', 'p', 'u', 'z', 0, 0, '{}', 0, ?, ?)"
    )
    rows = [
        ("source", "available", None, '{"size": 5}'),
        ("plain", "available", None, None),
        ("clone", "creating", "source", '{"moment": 1, "kept": true}'),
    ]
    with database.writing() as connection:
        for row in rows:
            connection.exec_driver_sql(volume, row)
    migrations.upgrade(database)
    with database.reading() as connection:
        found = [volumes.get(connection, key) for key, *_ in rows]
        intents = {each.id: each.intent for each in found if each is not None}
        clones = connection.execute(status_changes.CLONES).scalars().all()
    assert intents == {
        "source": {"size": 5},
        "plain": None,
        "clone": {"source_size": 1, "has_snapshot": True},
    }
    assert clones == ["clone"]


def test_an_upgrade_counts_what_projects_have(database: Database) -> None:
    """As a lunshare without quotas left it: an extend and a retype in progress."""
    _upgrade_to(database, "0004")
    volume = (
        "INSERT INTO volumes (id, size, status, backend, project_id, user_id,"
        " availability_zone, multiattach, bootable, metadata, deleted, volume_type_id,"
        " intent) VALUES (?, ?, 'available', 'b', ?, 'u', 'z', 0, 0, '{}', ?, ?, ?)"
    )
    rows = [
        ("a", 1, "p", 0, "gold", None),
        ("b", 2, "p", 0, "gold", '{"size": 5}'),
        ("c", 4, "p", 0, "gold", '{"backend": "x", "type_id": "tin"}'),
        ("d", 8, "p", 1, None, None),
        ("e", 16, "q", 0, None, None),
    ]
    with database.writing() as connection:
        for row in rows:
            connection.exec_driver_sql(volume, row)
        connection.exec_driver_sql(
            "INSERT INTO snapshots (id, volume_id, volume_size, status, project_id,"
            " user_id, metadata, deleted)"
            " VALUES ('s', 'a', 1, 'available', 'p', 'u', '{}', 0)"
        )
    migrations.upgrade(database)
    with database.reading() as connection:
        assert counted_rows.every_usage(connection) == {
            "p": [("gold", 2, 6, 1, 1), ("tin", 1, 4, 0, 0)],
            "q": [("", 1, 16, 0, 0)],
        }
        for project, kept in counted_rows.every_usage(connection).items():
            found = counted_rows.usage(connection, project)
            assert [tuple(row) for row in found] == kept


def _upgrade_to(database: Database, revision: str) -> None:
    """The schema of this revision, and no later one."""
    config = Config()
    config.set_main_option("script_location", "lunshare.agent.db:migrations")
    script = ScriptDirectory.from_config(config)
    with (
        database.writing() as connection,
        EnvironmentContext(
            config, script, fn=lambda *_: script._upgrade_revs(revision, "base")
        ) as environment,
    ):
        environment.configure(connection=connection)
        environment.run_migrations()
