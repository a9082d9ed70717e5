# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The version of the schema that a database has, and the schema of a new one.

No version has been released, so no older schema is upgraded here. A database of one is
refused, and its file stays as it is.
"""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db import triggers
from lunshare.agent.db.schema import METADATA, WRITE_FENCES
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import DatabaseFailed, StartupError

#: The version of lunshare.agent.db.schema.
VERSION = "0012"

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
        if version not in (None, VERSION):
            raise StartupError(_refusal(str(version)))
        database.use_wal()
        if version is None:
            _create(database)
        else:
            _add_missing(database)
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


def _add_missing(database: Database) -> None:
    """Add what a database of the same version may lack, and no earlier reader minds."""
    with database.writing() as connection:
        connection.execute(sa.schema.CreateTable(WRITE_FENCES, if_not_exists=True))
        connection.execute(sa.text(triggers.fence_trigger()))
        for table in METADATA.sorted_tables:
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))


def _create(database: Database) -> None:
    with database.writing() as connection:
        METADATA.create_all(connection, checkfirst=False)
        _VERSION.create(connection)
        connection.execute(sa.insert(_VERSION).values(version_num=VERSION))
