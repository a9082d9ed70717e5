# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The version of the schema that a database has, and the schema of a new one.

A database of 0012 to 0014 gets what it lacks. No version has been released, so no older
schema is upgraded here: a database of one is refused, and its file stays as it is.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lunshare.agent.db import triggers
from lunshare.agent.db.schema import (
    HOST_FENCES,
    METADATA,
    VOLUME_ATTACHMENT,
    WRITE_FENCES,
)
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import DatabaseFailed, StartupError

#: The version of lunshare.agent.db.schema.
VERSION = "0015"

#: The versions that are upgraded here, each with the columns that it lacks. It does not
#: know them, and would open a host that is fenced, or whose lease has ended.
_LACKING = {
    "0012": ("fence", "fenced_at", "former_host", "lease", "lease_ends"),
    "0013": ("lease", "lease_ends"),
    "0014": (),
    VERSION: (),
}

#: Up to 0014 the names of hosts had case. A fence is then that of all spellings.
_NAMES_WITHOUT_CASE = (
    "DROP INDEX IF EXISTS attachments_by_host",
    "DROP INDEX IF EXISTS attachments_by_former_host",
    "INSERT INTO host_fences SELECT lower(name), lower(host), min(fence),"
    " min(created_at) FROM host_fences WHERE 1 GROUP BY lower(name), lower(host)"
    " ON CONFLICT (name, host) DO UPDATE"
    " SET fence = excluded.fence, created_at = excluded.created_at",
    "DELETE FROM host_fences WHERE name != lower(name) OR host != lower(host)",
)

#: The last commit that upgrades a database of 0001 and later to 0012.
_UPGRADES = "7f7d4e9"

# As alembic created it, with which the schemas up to 0012 were upgraded.
_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(database: Database) -> None:
    """Create the schema of a new database; check the version of another one.

    :raises StartupError: the database cannot be opened or written, or has another
        version. Its file was not changed.
    """
    try:
        version = _version(database)
        if version is not None and version not in _LACKING:
            raise StartupError(_refusal(str(version)))
        database.use_wal()
        if version is None:
            _create(database)
        else:
            _upgrade(database, str(version))
    except DatabaseFailed as error:
        raise StartupError(error.message) from error


def _version(database: Database) -> str | None:
    with database.reading() as connection:
        if not sa.inspect(connection).has_table(_VERSION.name):
            return None
        return connection.execute(sa.select(_VERSION)).scalar()


def _refusal(version: str) -> str:
    advice = "run the version of lunshare that wrote it"
    if "0001" <= version < VERSION:
        advice = f"start lunshare of commit {_UPGRADES} with it once, which upgrades it"
    return (
        f"the database has schema {version!r}, and this lunshare has schema"
        f" {VERSION!r}: {advice}"
    )


def _upgrade(database: Database, version: str) -> None:
    """Add what a database of an earlier version lacks, or one of this may lack."""
    with database.writing() as connection:
        for table in (WRITE_FENCES, HOST_FENCES):
            connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
        for name in _LACKING[version]:
            _add_column(connection, VOLUME_ATTACHMENT.c[name])
        if version != VERSION:
            connection.execute(sa.text("DROP TRIGGER IF EXISTS write_fenced"))
            for statement in _NAMES_WITHOUT_CASE:
                connection.execute(sa.text(statement))
            connection.execute(sa.update(_VERSION).values(version_num=VERSION))
        connection.execute(sa.text(triggers.fence_trigger()))
        for table in METADATA.sorted_tables:
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))


def _add_column(connection: sa.Connection, column: sa.Column[Any]) -> None:
    text = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {text}"))


def _create(database: Database) -> None:
    with database.writing() as connection:
        METADATA.create_all(connection, checkfirst=False)
        _VERSION.create(connection)
        connection.execute(sa.insert(_VERSION).values(version_num=VERSION))
