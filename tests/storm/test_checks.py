# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every invariant of the storm holds in a small world, and fails in a broken one."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest

from lunshare.drivers.values import GIB
from tests.storm import checks, marks
from tests.storm.api import Answer, undocumented
from tests.storm.client import Client
from tests.storm.journal import Journal, Op
from tests.storm.model import Effect, Model, Register, last
from tests.storm.seen import Seen
from tests.storm.world import World

VOLUME, COPY, SNAPSHOT, ATTACHED = "volume", "copy", "snapshot", "attached"
HOST = "storm@thin#thin"


def told(journal: Journal, what: str, *objects: str, **given: Any) -> Op:
    """An operation with an answer, whose effect was seen."""
    op = journal.begin("client-0", what, *objects, **given)
    op.status, op.certain = 200, True
    op.answered = op.done = op.began
    return op


def wrote(journal: Journal, volume_id: str, number: int) -> Op:
    given = {"client": 0, "place": 0, "number": number}
    return told(journal, "write", volume_id, **given)


@pytest.fixture
def journal() -> Journal:
    made = Journal()
    told(made, "create", VOLUME, id=VOLUME, name="first")
    wrote(made, VOLUME, 1)
    told(made, "snapshot", VOLUME, SNAPSHOT, id=SNAPSHOT, volume=VOLUME, name="kept")
    wrote(made, VOLUME, 2)
    given = {"id": COPY, "name": "second", "snapshot_id": SNAPSHOT}
    told(made, "from-snapshot", SNAPSHOT, COPY, **given)
    given = {"id": ATTACHED, "initiator": "iqn.a"}
    told(made, "attach", VOLUME, ATTACHED, **given)
    return made


def row(name: str, size: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "status": "available",
        "size": size,
        "multiattach": False,
        "os-vol-host-attr:host": HOST,
        "description": "",
        "metadata": {},
        "attachments": [],
    }


def disk(number: int, size: int = GIB) -> tuple[int, bool, dict[int, bytes]]:
    return size, True, {marks.block(0, 0): marks.made(0, number)[: marks.WIDTH]}


@pytest.fixture
def seen(journal: Journal) -> Seen:
    attached = {"volume_id": VOLUME, "status": "attached", "attach_mode": "rw"}
    attached |= {"connection_info": {"a": 1}, "instance": None}  # type: ignore[dict-item]
    storage = {
        "disks": {VOLUME: disk(2), COPY: disk(1)},
        "snapshots": {SNAPSHOT: disk(1)},
        "foreign": {},
        "leaving": [],
        "exports": {VOLUME: {"iqn.a": ("rw", ATTACHED)}},
    }
    empty: dict[str, Any] = {key: {} for key in storage}
    return Seen(
        {VOLUME: row("first"), COPY: row("second")},
        {SNAPSHOT: {"volume_id": VOLUME, "status": "available", "name": "kept"}},
        {ATTACHED: attached},
        {},
        {"thin": storage, "thick": copy.deepcopy(empty)},
    )


def broken(seen: Seen, journal: Journal) -> set[str]:
    """The invariants that do not hold now."""
    seen.at = time.monotonic()
    assert checks.check(seen, journal) == len(checks.INVARIANTS)
    return {finding.invariant for finding in journal.findings}


def test_a_whole_world_has_no_findings(seen: Seen, journal: Journal) -> None:
    assert broken(seen, journal) == set()


def _lose_a_disk(seen: Seen, journal: Journal) -> None:
    del seen.storage["thin"]["disks"][VOLUME]


def _have_a_disk_twice(seen: Seen, journal: Journal) -> None:
    seen.storage["thick"]["disks"][VOLUME] = disk(2)


def _shrink(seen: Seen, journal: Journal) -> None:
    seen.storage["thin"]["disks"][VOLUME] = disk(2, GIB // 2)


def _forget_a_row(seen: Seen, journal: Journal) -> None:
    del seen.volumes[COPY]
    told(journal, "delete", COPY)


def _lose_a_snapshot(seen: Seen, journal: Journal) -> None:
    del seen.storage["thin"]["snapshots"][SNAPSHOT]


def _attach_a_second(seen: Seen, journal: Journal) -> None:
    seen.attachments["other"] = {**seen.attachments[ATTACHED], "status": "reserved"}
    seen.attachments["other"]["connection_info"] = {}
    told(journal, "attach", VOLUME, "other", id="other", initiator="iqn.b")


def _leave_an_access(seen: Seen, journal: Journal) -> None:
    seen.storage["thin"]["exports"][COPY] = {"iqn.b": ("ro", "x")}


def _let_a_reader_write(seen: Seen, journal: Journal) -> None:
    seen.attachments[ATTACHED]["attach_mode"] = "ro"


def _tell_nobody(seen: Seen, journal: Journal) -> None:
    seen.attachments["other"] = {**seen.attachments[ATTACHED], "connection_info": {}}
    seen.volumes[VOLUME]["multiattach"] = True


def _keep_what_was_detached(seen: Seen, journal: Journal) -> None:
    told(journal, "detach", ATTACHED, VOLUME)


def _lose_an_attachment(seen: Seen, journal: Journal) -> None:
    del seen.attachments[ATTACHED]
    del seen.storage["thin"]["exports"][VOLUME]


def _lose_a_volume(seen: Seen, journal: Journal) -> None:
    del seen.volumes[COPY], seen.storage["thin"]["disks"][COPY]


def _lose_a_type(seen: Seen, journal: Journal) -> None:
    told(journal, "type", "type", id="type")


def _keep_what_was_deleted(seen: Seen, journal: Journal) -> None:
    told(journal, "delete", COPY)


def _leave_what_failed(seen: Seen, journal: Journal) -> None:
    told(journal, "create", name="third").status = 503
    seen.volumes[COPY]["name"] = "third"


def _grow_too_little(seen: Seen, journal: Journal) -> None:
    told(journal, "extend", VOLUME, size=3, calm=True).result = "available"


def _lose_a_write(seen: Seen, journal: Journal) -> None:
    seen.storage["thin"]["disks"][VOLUME] = disk(1)


def _copy_another_moment(seen: Seen, journal: Journal) -> None:
    seen.storage["thin"]["disks"][COPY] = disk(2)


def _move_a_snapshot(seen: Seen, journal: Journal) -> None:
    seen.storage["thin"]["snapshots"][SNAPSHOT] = disk(2)


def _revert_nothing(seen: Seen, journal: Journal) -> None:
    told(journal, "revert", VOLUME, SNAPSHOT, snapshot=SNAPSHOT)


def _lose_a_description(seen: Seen, journal: Journal) -> None:
    told(journal, "rename", VOLUME, text="new")


def _mix_metadata(seen: Seen, journal: Journal) -> None:
    seen.volumes[VOLUME]["metadata"] = {"by": "somebody"}


def _lose_what_was_given_away(seen: Seen, journal: Journal) -> None:
    _lose_a_volume(seen, journal)
    told(journal, "unmanage", COPY)


BROKEN: list[tuple[Callable[[Seen, Journal], None], str]] = [
    (_lose_a_disk, "each row has its disk exactly once"),
    (_have_a_disk_twice, "each row has its disk exactly once"),
    (_shrink, "each row has its disk exactly once"),
    (_forget_a_row, "each disk has its row"),
    (_lose_a_snapshot, "each snapshot is kept"),
    (_attach_a_second, "a plain volume has one host"),
    (_leave_an_access, "the live target equals the rows"),
    (_let_a_reader_write, "the live target equals the rows"),
    (_tell_nobody, "somebody knows each attachment"),
    (_keep_what_was_detached, "somebody knows each attachment"),
    (_lose_an_attachment, "what was acknowledged is there"),
    (_lose_a_volume, "what was acknowledged is there"),
    (_lose_a_type, "what was acknowledged is there"),
    (_keep_what_was_deleted, "what was acknowledged is there"),
    (_leave_what_failed, "what was refused left nothing"),
    (_grow_too_little, "volumes grow as acknowledged"),
    (_lose_a_write, "bytes are those that were written"),
    (_copy_another_moment, "bytes are those that were written"),
    (_move_a_snapshot, "bytes are those that were written"),
    (_revert_nothing, "bytes are those that were written"),
    (_lose_a_description, "descriptions are those written last"),
    (_mix_metadata, "descriptions are those written last"),
    (_lose_what_was_given_away, "what is given away is there"),
]


@pytest.mark.parametrize(("breaks", "invariant"), BROKEN)
def test_an_invariant_notices(
    breaks: Callable[[Seen, Journal], None],
    invariant: str,
    seen: Seen,
    journal: Journal,
) -> None:
    breaks(seen, journal)
    assert broken(seen, journal) == {invariant}


def test_every_invariant_can_fail() -> None:
    assert {invariant for _, invariant in BROKEN} == set(checks.INVARIANTS)


def test_what_was_seen_is_what_counts_from_then_on(
    seen: Seen, journal: Journal
) -> None:
    checks.remember(seen, journal)
    op = wrote(journal, VOLUME, 3)
    known = Model(journal)
    now = op.done + 1
    assert known.volume(VOLUME, Register(0, 0), now, now) == {3}
    assert known.volume(COPY, Register(0, 0), now, now) == {1}


def test_of_two_at_once_either_may_be_last() -> None:
    first = Effect(1.0, 3.0, True, frozenset({"a"}))
    second = Effect(2.0, 4.0, True, frozenset({"b"}))
    third = Effect(5.0, 6.0, False, frozenset({"c"}))
    assert last([first, second], 9.0, 9.0) == {"a", "b"}
    assert last([first, second, third], 4.5, 4.5) == {"a", "b"}
    assert last([first, second, third], 9.0, 9.0) == {"a", "b", "c"}
    assert last([first, third], 4.5, 9.0) == {"a", "c"}


@pytest.mark.parametrize(
    ("answer", "fine"),
    [
        (Answer(200, {"volume": {}}), True),
        (Answer(202), True),
        (Answer(None, why="ConnectionRefusedError: refused"), True),
        (Answer(None, why="TimeoutError: timed out"), False),
        (Answer(404, {"itemNotFound": {"code": 404, "message": "none"}}), True),
        (Answer(400, {"badRequest": {}}), False),
        (Answer(200, b"<html>"), False),
        (Answer(503, {"serviceUnavailable": {"message": "later"}}), True),
        (Answer(500, {"computeFault": {"message": "made by the storm"}}), True),
        (Answer(500, {"computeFault": {"message": "unexpected"}}), False),
        (Answer(418, {"teapot": {"message": "no"}}), False),
    ],
)
def test_answers_that_are_documented(answer: Answer, fine: bool) -> None:
    assert (undocumented(answer) is None) is fine


def test_a_size_that_shrinks_is_seen(journal: Journal) -> None:
    world = World("storm")
    assert world.shrunk({"id": VOLUME, "size": 3}, 1.0, 2.0) is None
    assert world.shrunk({"id": VOLUME, "size": 2}, 1.5, 3.0) is None
    assert world.shrunk({"id": VOLUME, "size": 2}, 2.5, 3.0) == 3


def test_a_plain_volume_with_two_hosts_is_seen_at_once(journal: Journal) -> None:
    client = Client.__new__(Client)
    client.journal, client.world = journal, World("storm")
    host = {"server_id": None}
    client.check({**row("first"), "id": VOLUME, "attachments": [host]}, 1.0)
    assert journal.findings == []
    client.check({**row("first"), "id": VOLUME, "attachments": [host, host]}, 1.0)
    assert [f.invariant for f in journal.findings] == ["a plain volume has one host"]
