# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Statements that SQLite's driver runs directly give what SQLAlchemy gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lunshare.agent.db import attachments, due_attachments, snapshots, volumes
from lunshare.agent.db.record_columns import RecordColumns
from lunshare.agent.db.schema import METADATA, SNAPSHOTS
from lunshare.agent.db.sqlite.engine import Database
from lunshare.agent.db.sqlite.prepared import Prepared
from lunshare.agent.model.records import Attachment, Mode, Page, Snapshot, Volume
from lunshare.agent.model.states import AttachStatus, SnapshotStatus, VolumeStatus

MOMENT = datetime(2026, 11, 22, 12, 30, 0, 5)
VOLUME = Volume(
    id="11111111-1111-1111-1111-111111111111",
    size=3,
    own_status=VolumeStatus.AVAILABLE,
    backend="fake",
    project_id="default",
    user_id="admin",
    multiattach=True,
    metadata={"a": "b"},
    created_at=MOMENT,
    updated_at=MOMENT,
    intent={"size": 4},
)
ROW = Attachment(
    id="22222222-2222-2222-2222-222222222222",
    volume_id=VOLUME.id,
    status=AttachStatus.ATTACHING,
    mode=Mode.RO,
    attached_host="h",
    attach_time=MOMENT,
    connector={"initiator": "iqn.1994-05.com.example:h"},
    initiator="iqn.1994-05.com.example:h",
    created_at=MOMENT,
    updated_at=MOMENT,
    answered=False,
)
SNAPSHOT = Snapshot(
    id="33333333-3333-3333-3333-333333333333",
    volume_id=VOLUME.id,
    size=7,
    status=SnapshotStatus.DELETING,
    project_id="p",
    user_id="u",
    name="n",
    description="d",
    metadata={"a": "b"},
    created_at=MOMENT,
    updated_at=MOMENT,
    status_reason="why",
    reset_from=SnapshotStatus.ERROR,
    progress="90%",
    reference="foreign",
)
PAGE = Page(project_id=None, limit=10)

_S = SNAPSHOTS.c
_TABLE = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("flag", sa.Boolean),
    sa.Column("time", sa.DateTime),
    sa.Column("document", sa.JSON(none_as_null=True)),
    sa.Column("text", sa.String(9)),
)
_VALUES: tuple[dict[str, Any], ...] = (
    {"id": 1, "flag": True, "time": MOMENT, "document": {"a": [1]}, "text": "é"},
    {"id": 2, "flag": False, "time": None, "document": None, "text": None},
)
_INSERT = sa.insert(_TABLE).values({c.name: sa.bindparam(c.name) for c in _TABLE.c})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/x.sqlite", connections=1)
    METADATA.create_all(database.engine)
    _TABLE.metadata.create_all(database.engine)
    yield database
    database.close()


def test_values_of_each_type_are_written_and_read_as_by_sqlalchemy(database: Database):
    select = sa.select(_TABLE).where(_TABLE.c.id > sa.bindparam("least"))
    with database.writing() as connection:
        for values in _VALUES:
            assert Prepared(_INSERT).write(connection, values) == 1
        found = Prepared(select).rows(connection, {"least": 0})
        assert [tuple(row) for row in found] == [tuple(v.values()) for v in _VALUES]
        same = connection.execute(select, {"least": 0}).all()
        assert [tuple(row) for row in same] == [tuple(row) for row in found]


def test_a_row_is_read_as_it_was_written(database: Database):
    with database.writing() as connection:
        volumes.insert(connection, VOLUME)
        assert volumes.claim(connection, VOLUME.id, None)
        attachments.insert(connection, ROW)
        assert attachments.get(connection, ROW.id) == ROW
        assert attachments.of_initiator(connection, VOLUME.id, "x") == []
        (page,) = volumes.page(connection, PAGE)
        assert volumes.get(connection, VOLUME.id) == page
        assert [each.id for each in page.attachments] == [ROW.id]
        assert (page.metadata, page.intent) == (VOLUME.metadata, VOLUME.intent)
        old = {AttachStatus.ATTACHING}
        assert not attachments.remove(connection, ROW.id, {AttachStatus.DETACHING})
        attached = AttachStatus.ATTACHED
        assert attachments.change_status(connection, ROW.id, old, attached)


def test_each_field_is_read_from_the_column_of_its_name(database: Database):
    fields = RecordColumns(Snapshot, SNAPSHOTS, last="status", size=_S.volume_size)
    shuffled = sa.select(_S.user_id, *reversed(fields.labels))
    with database.writing() as connection:
        volumes.insert(connection, VOLUME)
        snapshots.insert(connection, SNAPSHOT)
        assert snapshots.get(connection, SNAPSHOT.id) == SNAPSHOT
        (row,) = Prepared(shuffled).rows(connection, {})
        rest = (SNAPSHOT.project_id, row.user_id)
        expected = (SNAPSHOT.id, VOLUME.id, 7, SnapshotStatus.DELETING, *rest)
        assert fields.record(row, *rest) == Snapshot(*expected)
        with pytest.raises(AssertionError):
            fields.records(connection.execute(shuffled))
    with pytest.raises(AssertionError):
        fields.prepared(shuffled)


def test_a_status_that_does_not_exist_is_an_error(database: Database):
    with database.writing() as connection:
        volumes.insert(connection, VOLUME)
        connection.execute(sa.text("UPDATE volumes SET status = 'asleep'"))
        with pytest.raises(ValueError, match="'asleep' is not a valid VolumeStatus"):
            volumes.get_row(connection, VOLUME.id)


def test_a_parameter_that_is_missing_is_an_error_and_not_null(database: Database):
    values = {key: value for key, value in _VALUES[0].items() if key != "text"}
    with database.writing() as connection, pytest.raises(KeyError, match="text"):
        Prepared(_INSERT).write(connection, values)


def test_a_value_that_would_not_be_written_is_an_error(database: Database):
    with database.writing() as connection, pytest.raises(KeyError, match="more"):
        Prepared(_INSERT).write(connection, {**_VALUES[0], "more": 1})


def test_a_list_of_any_length_is_refused(database: Database):
    query = Prepared(sa.select(_TABLE).where(_TABLE.c.id.in_([1, 2])))
    with database.reading() as connection, pytest.raises(AssertionError):
        query.rows(connection, {})


@pytest.mark.parametrize("last", ["attachments_of_initiator", "attachments_of_volume"])
@pytest.mark.parametrize(
    ("read", "index"),
    [
        (
            lambda connection: attachments.of_initiator(connection, VOLUME.id, "x"),
            "attachments_of_initiator (volume_id=? AND initiator=?)",
        ),
        (
            lambda connection: attachments.any_wanted(connection, VOLUME.id),
            "attachments_of_volume (volume_id=? AND deleted=? AND attach_status=?)",
        ),
        (
            lambda connection: attachments.writers(connection, VOLUME.id),
            "attachments_that_may_write (volume_id=?)",
        ),
        (
            lambda connection: due_attachments.ended(connection, 1.0),
            "attachments_leased (lease_ends>? AND lease_ends<?)",
        ),
    ],
)
def test_a_statement_uses_its_index_whichever_was_created_last(
    database: Database, read: Any, index: str, last: str
):
    seen: list[str] = []
    with database.writing() as connection:
        driver: Any = connection.connection.dbapi_connection
        find = "SELECT sql FROM sqlite_master WHERE name = ?"
        (text,) = driver.execute(find, (last,)).fetchone()
        driver.execute(f"DROP INDEX {last}")
        driver.execute(text)
        driver.set_trace_callback(seen.append)
        read(connection)
        driver.set_trace_callback(None)
        (plan, *_) = driver.execute(f"EXPLAIN QUERY PLAN {seen[0]}").fetchall()
        assert index in plan[3]
