# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The history of the schema: one alembic revision per file, and the upgrade.

There is no downgrade. An upgrade must work from every earlier revision with data.
"""

from __future__ import annotations

import sqlalchemy as sa

from lunshare.agent.db.schema import METADATA
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.errors import DatabaseFailed, StartupError

#: The newest revision. A test compares it with the files.
HEAD = "0012"

#: The table of alembic, as alembic creates it.
_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def upgrade(database: Database) -> None:
    """Bring the schema to HEAD.

    :raises StartupError: the database cannot be opened or written, or a newer
        lunshare wrote it.
    """
    try:
        revision = _revision(database)
        if revision is None:
            _create(database)
        elif revision != HEAD:
            run(database, revision)
    except DatabaseFailed as error:
        raise StartupError(error.message) from error


def _revision(database: Database) -> str | None:
    with database.reading() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.select(_VERSION)).scalar()


def _create(database: Database) -> None:
    """Create the newest schema in a new database; a test compares both ways.

    So only an upgrade imports alembic, which needs 11 MiB of memory.
    """
    with database.writing() as connection:
        METADATA.create_all(connection, checkfirst=False)
        _VERSION.create(connection)
        connection.execute(sa.insert(_VERSION).values(version_num=HEAD))


def run(database: Database, revision: str | None) -> None:
    """Upgrade from ``revision`` to the newest. None is an empty database.

    :raises StartupError: the revision is unknown.
    """
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "lunshare.agent.db:migrations")
    script = ScriptDirectory.from_config(config)

    def steps(current: object, _context: object) -> list[object]:
        return list(script._upgrade_revs("head", current))  # type: ignore[arg-type]

    try:
        with (
            database.writing() as connection,
            EnvironmentContext(config, script, fn=steps) as environment,
        ):
            environment.configure(connection=connection)
            environment.run_migrations()
    except CommandError as error:
        raise StartupError(
            f"the database has schema {revision!r}, which this lunshare does not"
            f" know (it knows up to {HEAD}): run the version of lunshare that wrote it"
        ) from error
