# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The schema's history, one alembic revision a file, and the way to the newest.

A revision only goes forward: an upgrade must work from every earlier one with
data in it.
"""

from __future__ import annotations

import sqlalchemy as sa

from agent.db.engine import Database
from agent.errors import DatabaseFailed, StartupError

#: The newest revision. A test holds it against the files beside this one.
HEAD = "0001"


def upgrade(database: Database) -> None:
    """Bring the schema to HEAD.

    :raises StartupError: the database cannot be opened or written, or a newer
        lunshare wrote it.
    """
    try:
        revision = _revision(database)
        if revision != HEAD:
            _run(database, revision)
    except DatabaseFailed as error:
        raise StartupError(error.message) from error


def _revision(database: Database) -> str | None:
    with database.reading() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        query = sa.text("SELECT version_num FROM alembic_version")
        return connection.execute(query).scalar()


def _run(database: Database, revision: str | None) -> None:
    # Imported here: alembic is 11 MiB of memory that a daemon whose schema is
    # up to date need not hold.
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "agent.db:migrations")
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
            f" know (it knows up to {HEAD}): run the lunshare that wrote it"
        ) from error
