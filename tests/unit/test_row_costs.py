# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is read costs what it weighs: no row is read once for each of another kind."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import attachments, volumes
from lunshare.agent.db.schema import METADATA, VOLUMES
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.model.records import Page
from tests.unit.test_prepared import ROW, VOLUME

HOSTS = 300
METADATA_ITEMS = {f"key {number}": "x" * 200 for number in range(1500)}
PAGE = Page(project_id=VOLUME.project_id, limit=1000)


@pytest.fixture(scope="module", name="database")
def database_with_a_large_volume(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("rows")
    database = Database(f"sqlite:///{path}/x.sqlite", connections=1)
    METADATA.create_all(database.engine)
    with database.writing() as connection:
        volumes.insert(connection, VOLUME)
        # More than it may have by now, as a row of an earlier version.
        connection.execute(sa.update(VOLUMES).values(metadata=METADATA_ITEMS))
        for number in range(HOSTS):
            host = dataclasses.replace(ROW, id=f"host {number}", connector=None)
            attachments.insert(connection, host)
    yield database
    database.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda connection: volumes.require(connection, VOLUME.id).attachments,
        lambda connection: volumes.page(connection, PAGE)[0].attachments,
        lambda connection: attachments.page(connection, PAGE),
        lambda connection: attachments.of_volume(connection, VOLUME.id),
    ],
)
def test_a_volume_is_read_once_for_all_its_hosts(
    database: Database, read: Callable[[sa.Connection], Any]
) -> None:
    """Its metadata, 0.3 MB, took 300 MB when it was read with each host."""
    with database.reading() as connection:
        tracemalloc.start()
        try:
            assert len(read(connection)) == HOSTS
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8_000_000
