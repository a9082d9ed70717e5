# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A database of an earlier version, with data in it, is served.

database_0012.sql is the dump of a node that alembic upgraded from 0003 to 0012. The
code of 0003 wrote every row. One volume is in the middle of an extend.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lunshare.drivers.values import GIB, Volume
from tests.api.calls import Api
from tests.stands.node import Node, connector, initiator
from tests.stands.waiting import until

DUMP = Path(__file__).with_name("database_0012.sql")
ALL = "all_tenants=1"
SHARED = "bc3acebf-03c4-4902-a797-55cbaca183b2"
PLAIN = "63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5"
EXTENDING = "03f1f861-f78c-4fab-9fb7-c6668cd31b54"
RESERVED = "b1df486d-f92d-4752-909d-014570e7a313"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with closing(sqlite3.connect(tmp_path / "lunshare.sqlite")) as database:
        database.executescript(DUMP.read_text())
    made = Node(tmp_path)
    for ident, size in ((SHARED, 2), (PLAIN, 1), (EXTENDING, 1)):
        made.driver().create(Volume(ident, size * GIB))
    yield made.start()
    made.close()


@pytest.fixture
def api(node: Node) -> Api:
    return Api(node.assembly.app)


def test_every_row_of_the_earlier_version_is_served(api: Api) -> None:
    volumes = {
        each["id"]: each for each in api("GET", f"/volumes/detail?{ALL}")["volumes"]
    }
    assert set(volumes) == {SHARED, PLAIN, EXTENDING}
    assert volumes[PLAIN]["name"] == "plain"
    assert volumes[PLAIN]["metadata"] == {"a": "b"}
    assert volumes[SHARED]["volume_type"] == "multiattach"
    assert volumes[SHARED]["status"] == "in-use"
    rows = api("GET", f"/attachments/detail?{ALL}")["attachments"]
    assert {(row["status"], row["attach_mode"]) for row in rows} == {
        ("attached", "rw"),
        ("attaching", "ro"),
        ("reserved", None),
    }
    (message,) = api("GET", f"/messages?{ALL}")["messages"]
    assert message["user_message"].startswith("no backend can hold this volume")
    query = f"/snapshots?{ALL}&sort=created_at:asc"
    names = [each["name"] for each in api("GET", query)["snapshots"]]
    assert names == ["first", "second"]


def test_the_hosts_of_the_earlier_version_have_their_access(node: Node) -> None:
    assert node.live(SHARED) == {initiator("reader"): "ro", initiator("writer"): "rw"}


def test_a_step_that_the_earlier_version_started_is_finished(api: Api) -> None:
    until(lambda: api.shown(EXTENDING)["status"] == "available")
    assert api.shown(EXTENDING)["size"] == 2


def test_the_rows_of_the_earlier_version_can_be_changed(node: Node, api: Api) -> None:
    path = f"/attachments/{RESERVED}"
    api("PUT", path, {"attachment": {"connector": connector("third")}})
    assert node.live(SHARED)[initiator("third")] == "rw"
    api("DELETE", path)
    assert initiator("third") not in node.live(SHARED)
