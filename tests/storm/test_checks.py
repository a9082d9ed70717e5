# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Each invariant of the storm holds in a correct world and fails in a broken one."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest

from lunshare.agent.model.states import FAILED, UNFINISHED, VolumeStatus
from lunshare.agent.service.volumes.delete_rules import DELETABLE
from lunshare.drivers.values import GIB
from tests.storm import checks, marks
from tests.storm.api import Answer, undocumented
from tests.storm.client import Client
from tests.storm.journal import Journal, Op
from tests.storm.model import Effect, Model, Register, last
from tests.storm.observation import Observation
from tests.storm.storm import waits_for_a_slow_retry, waits_for_reconcile
from tests.storm.world import World

VOLUME, COPY, SNAPSHOT, ATTACHED = "volume", "copy", "snapshot", "attached"
HOST = "storm@thin#thin"


def answered(journal: Journal, what: str, *objects: str, **given: Any) -> Op:
    """An operation with an answer, whose effect was seen."""
    op = journal.begin("client-0", what, *objects, **given)
    op.status, op.certain = 200, True
    op.answered = op.done = op.began
    return op


def wrote(journal: Journal, volume_id: str, number: int) -> Op:
    given = {"client": 0, "place": 0, "number": number}
    return answered(journal, "write", volume_id, **given)


@pytest.fixture
def journal() -> Journal:
    made = Journal()
    answered(made, "create", VOLUME, id=VOLUME, name="first")
    wrote(made, VOLUME, 1)
    answered(
        made, "snapshot", VOLUME, SNAPSHOT, id=SNAPSHOT, volume=VOLUME, name="kept"
    )
    wrote(made, VOLUME, 2)
    given = {"id": COPY, "name": "second", "snapshot_id": SNAPSHOT}
    answered(made, "from-snapshot", SNAPSHOT, COPY, **given)
    given = {"id": ATTACHED, "initiator": "iqn.a"}
    answered(made, "attach", VOLUME, ATTACHED, **given)
    return made


def row(name: str, size: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "status": "available",
        "size": size,
        "os-vol-tenant-attr:tenant_id": "storm",
        "multiattach": False,
        "os-vol-host-attr:host": HOST,
        "description": "",
        "metadata": {},
        "migration_status": None,
        "attachments": [],
    }


def disk(number: int, size: int = GIB) -> tuple[int, bool, dict[int, bytes]]:
    return size, True, {marks.block(0, 0): marks.block_bytes(0, number)[: marks.WIDTH]}


@pytest.fixture
def seen(journal: Journal) -> Observation:
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
    kept = {"volume_id": VOLUME, "status": "available", "name": "kept", "size": 1}
    kept["os-extended-snapshot-attributes:project_id"] = "storm"
    found = Observation(
        {VOLUME: row("first"), COPY: row("second")},
        {SNAPSHOT: kept},
        {ATTACHED: attached},
        {},
        {"thin": storage, "thick": copy.deepcopy(empty)},
    )
    found.limits = {"storm": counted(found)}
    return found


def counted(seen: Observation) -> dict[str, int]:
    """What the quotas must count."""
    rows = [*seen.volumes.values(), *seen.snapshots.values()]
    return {
        "totalVolumesUsed": len(seen.volumes),
        "totalSnapshotsUsed": len(seen.snapshots),
        "totalGigabytesUsed": sum(row["size"] for row in rows),
        "maxTotalVolumes": -1,
        "maxTotalSnapshots": 1,
        "maxTotalVolumeGigabytes": -1,
    }


def broken(seen: Observation, journal: Journal) -> set[str]:
    """The invariants that do not hold now."""
    seen.at = time.monotonic()
    assert checks.check(seen, journal) == len(checks.INVARIANTS)
    return {finding.invariant for finding in journal.findings}


def test_a_correct_world_has_no_findings(seen: Observation, journal: Journal) -> None:
    assert broken(seen, journal) == set()


def _lose_a_disk(seen: Observation, journal: Journal) -> None:
    del seen.storage["thin"]["disks"][VOLUME]


def _have_a_disk_twice(seen: Observation, journal: Journal) -> None:
    seen.storage["thick"]["disks"][VOLUME] = disk(2)


def _shrink(seen: Observation, journal: Journal) -> None:
    seen.storage["thin"]["disks"][VOLUME] = disk(2, GIB // 2)


def _delete_a_row(seen: Observation, journal: Journal) -> None:
    del seen.volumes[COPY]
    answered(journal, "delete", COPY)


def _lose_a_snapshot(seen: Observation, journal: Journal) -> None:
    del seen.storage["thin"]["snapshots"][SNAPSHOT]


def _attach_a_second(seen: Observation, journal: Journal) -> None:
    seen.attachments["other"] = {**seen.attachments[ATTACHED], "status": "reserved"}
    seen.attachments["other"]["connection_info"] = {}
    answered(journal, "attach", VOLUME, "other", id="other", initiator="iqn.b")


def _leave_an_access(seen: Observation, journal: Journal) -> None:
    seen.storage["thin"]["exports"][COPY] = {"iqn.b": ("ro", "x")}


def _give_a_reader_write_access(seen: Observation, journal: Journal) -> None:
    seen.attachments[ATTACHED]["attach_mode"] = "ro"


def _add_an_unknown_attachment(seen: Observation, journal: Journal) -> None:
    seen.attachments["other"] = {**seen.attachments[ATTACHED], "connection_info": {}}
    seen.volumes[VOLUME]["multiattach"] = True


def _keep_a_detached_attachment(seen: Observation, journal: Journal) -> None:
    answered(journal, "detach", ATTACHED, VOLUME)


def _lose_an_attachment(seen: Observation, journal: Journal) -> None:
    del seen.attachments[ATTACHED]
    del seen.storage["thin"]["exports"][VOLUME]


def _lose_a_volume(seen: Observation, journal: Journal) -> None:
    del seen.volumes[COPY], seen.storage["thin"]["disks"][COPY]


def _lose_a_type(seen: Observation, journal: Journal) -> None:
    answered(journal, "type", "type", id="type")


def _keep_a_deleted_volume(seen: Observation, journal: Journal) -> None:
    answered(journal, "delete", COPY)


def _keep_a_failed_create(seen: Observation, journal: Journal) -> None:
    answered(journal, "create", name="third").status = 503
    seen.volumes[COPY]["name"] = "third"


def _lose_an_extend(seen: Observation, journal: Journal) -> None:
    answered(journal, "extend", VOLUME, size=3, calm=True).result = "available"


@pytest.mark.parametrize("reason", ["", "the pool has no free space"])
def test_an_extend_may_be_refused_after_its_answer(
    seen: Observation, journal: Journal, reason: str
) -> None:
    _lose_an_extend(seen, journal)
    journal.every("extend")[0].reason = reason
    assert broken(seen, journal) == (set() if reason else {"acknowledged extends hold"})


def _lose_a_write(seen: Observation, journal: Journal) -> None:
    seen.storage["thin"]["disks"][VOLUME] = disk(1)


def _copy_later_bytes(seen: Observation, journal: Journal) -> None:
    seen.storage["thin"]["disks"][COPY] = disk(2)


def _change_a_snapshot(seen: Observation, journal: Journal) -> None:
    seen.storage["thin"]["snapshots"][SNAPSHOT] = disk(2)


def _lose_a_revert(seen: Observation, journal: Journal) -> None:
    answered(journal, "revert", VOLUME, SNAPSHOT, snapshot=SNAPSHOT)


def _lose_a_description(seen: Observation, journal: Journal) -> None:
    answered(journal, "rename", VOLUME, text="new")


def _mix_metadata(seen: Observation, journal: Journal) -> None:
    seen.volumes[VOLUME]["metadata"] = {"by": "somebody"}


def _lose_an_unmanaged_disk(seen: Observation, journal: Journal) -> None:
    _lose_a_volume(seen, journal)
    answered(journal, "unmanage", COPY)


def _leak_a_volume(seen: Observation, journal: Journal) -> None:
    seen.limits["storm"]["totalVolumesUsed"] += 1


def _leak_a_snapshot(seen: Observation, journal: Journal) -> None:
    seen.limits["storm"]["totalSnapshotsUsed"] += 1


def _leak_gigabytes(seen: Observation, journal: Journal) -> None:
    seen.limits["storm"]["totalGigabytesUsed"] += 1


def _exceed_a_quota(seen: Observation, journal: Journal) -> None:
    seen.limits["storm"]["maxTotalSnapshots"] = 0


QUOTAS = "quotas count the rows"
BROKEN: list[tuple[Callable[[Observation, Journal], None], str]] = [
    (_lose_a_disk, "each row has its disk exactly once"),
    (_have_a_disk_twice, "each row has its disk exactly once"),
    (_shrink, "each row has its disk exactly once"),
    (_delete_a_row, "each disk has its row"),
    (_lose_a_snapshot, "each snapshot has its bytes"),
    (_attach_a_second, "a plain volume has one host"),
    (_leave_an_access, "the live target equals the rows"),
    (_give_a_reader_write_access, "the live target equals the rows"),
    (_add_an_unknown_attachment, "a client knows each attachment"),
    (_keep_a_detached_attachment, "a client knows each attachment"),
    (_lose_an_attachment, "acknowledged objects exist"),
    (_lose_a_volume, "acknowledged objects exist"),
    (_lose_a_type, "acknowledged objects exist"),
    (_keep_a_deleted_volume, "acknowledged objects exist"),
    (_keep_a_failed_create, "refused requests left nothing"),
    (_lose_an_extend, "acknowledged extends hold"),
    (_lose_a_write, "bytes are the written ones"),
    (_copy_later_bytes, "bytes are the written ones"),
    (_change_a_snapshot, "bytes are the written ones"),
    (_lose_a_revert, "bytes are the written ones"),
    (_lose_a_description, "descriptions are the last written ones"),
    (_mix_metadata, "descriptions are the last written ones"),
    (_lose_an_unmanaged_disk, "unmanaged disks exist"),
    (_leak_a_volume, QUOTAS),
    (_leak_a_snapshot, QUOTAS),
    (_leak_gigabytes, QUOTAS),
    (_exceed_a_quota, "quotas are kept"),
]


@pytest.mark.parametrize(("breaks", "invariant"), BROKEN)
def test_an_invariant_finds_what_breaks_it(
    breaks: Callable[[Observation, Journal], None],
    invariant: str,
    seen: Observation,
    journal: Journal,
) -> None:
    breaks(seen, journal)
    if "quotas" not in invariant:
        seen.limits = {"storm": counted(seen)}
    assert broken(seen, journal) == {invariant}


def test_every_invariant_can_fail() -> None:
    assert {invariant for _, invariant in BROKEN} == set(checks.INVARIANTS)


def test_remembered_bytes_replace_the_journal(
    seen: Observation, journal: Journal
) -> None:
    checks.remember(seen, journal)
    op = wrote(journal, VOLUME, 3)
    known = Model(journal)
    now = op.done + 1
    assert known.volume(VOLUME, Register(0, 0), now, now) == {3}
    assert known.volume(COPY, Register(0, 0), now, now) == {1}


def test_either_of_two_concurrent_writes_may_be_last() -> None:
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
        (Answer(503, {"ready": False, "problems": ["backend thin is down"]}), True),
        (Answer(503, {"ready": False, "problems": []}), False),
        (Answer(500, {"computeFault": {"message": "made by the storm"}}), True),
        (Answer(500, {"computeFault": {"message": "unexpected"}}), False),
        (Answer(418, {"teapot": {"message": "no"}}), False),
    ],
)
def test_only_documented_answers_are_accepted(answer: Answer, fine: bool) -> None:
    assert (undocumented(answer) is None) is fine


@pytest.mark.parametrize("status", ["success", "error", None])
def test_the_old_disk_of_a_migration_waits_for_a_reconcile(
    seen: Observation, status: str | None
) -> None:
    assert seen.broken == {}
    seen.volumes[VOLUME]["migration_status"] = status
    _have_a_disk_twice(seen, Journal())
    assert list(seen.broken) == ([VOLUME] if status else [])


def test_the_failed_end_of_an_attachment_that_no_client_knows_waits_for_a_reconcile(
    seen: Observation, journal: Journal
) -> None:
    seen.attachments[ATTACHED]["status"] = "error_detaching"
    assert not waits_for_reconcile(seen, journal)  # its client repeats the detach
    _add_an_unknown_attachment(seen, journal)
    assert waits_for_reconcile(seen, journal)


def test_each_error_that_no_delete_ends_waits_for_a_reconcile(
    seen: Observation, journal: Journal
) -> None:
    """Every error of the table is ended by a delete, or known to wait."""
    errors = [status for status in VolumeStatus if status.startswith("error")]
    assert len(errors) > 3
    seen.attachments.clear()
    for status in errors:
        seen.volumes[VOLUME]["status"] = status
        ended = status in DELETABLE or status not in UNFINISHED
        assert waits_for_reconcile(seen, journal) is not ended, status
        assert waits_for_a_slow_retry(seen) is (not ended and status in FAILED)


def test_a_failed_extend_of_a_volume_with_a_host_waits_for_a_reconcile(
    seen: Observation, journal: Journal
) -> None:
    volume_id = seen.attachments[ATTACHED]["volume_id"]
    seen.volumes[volume_id]["status"] = "error_extending"
    assert waits_for_reconcile(seen, journal)
    seen.attachments.clear()  # now an operator can delete it
    assert not waits_for_reconcile(seen, journal)


def test_a_smaller_size_is_found(journal: Journal) -> None:
    world = World("storm")
    assert world.larger_size_before({"id": VOLUME, "size": 3}, 1.0, 2.0) is None
    assert world.larger_size_before({"id": VOLUME, "size": 2}, 1.5, 3.0) is None
    assert world.larger_size_before({"id": VOLUME, "size": 2}, 2.5, 3.0) == 3


def test_a_plain_volume_with_two_hosts_is_found_at_once(journal: Journal) -> None:
    client = Client.__new__(Client)
    client.journal, client.world = journal, World("storm")
    host = {"server_id": None}
    client.check({**row("first"), "id": VOLUME, "attachments": [host]}, 1.0)
    assert journal.findings == []
    client.check({**row("first"), "id": VOLUME, "attachments": [host, host]}, 1.0)
    assert [f.invariant for f in journal.findings] == ["a plain volume has one host"]
