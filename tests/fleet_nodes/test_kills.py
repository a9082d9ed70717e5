# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""cinder-volume and the helper are killed with -9 while hosts do I/O: no host notices.

A kill comes when something on the node has just changed: an ACL is there, a disk is
there, a size is another one. So it comes in the middle of what a client asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.kills import CINDER, HELPER
from tests.fleet_nodes.shared import BACKEND, Shared
from tests.fleet_nodes.transcript import say

ACLS = "/sys/kernel/config/target/iscsi/*/tpgt_1/acls/*"
MAPPED = f"{ACLS}/lun_0/write_protect"
DISKS = "/dev/mapper/lunshare-*"
SIZES = "/sys/block/dm-*/size"
# lvcreate writes it shortly before its end. Commands that only read take the group's
# lock too, several times in each period of the stats.
LVM_BACKUP = "/etc/lvm/backup/lunshare"
Step = Callable[[Client, Shared], None]
Check = Callable[[Client, Shared], bool]
_RESTART = 90.0
#: The processes that were killed, and the disks whose creation was acknowledged.
KILLED: list[int] = []
CREATED: set[str] = set()


@pytest.fixture(scope="module")
def shared(fleet: Fleet) -> Iterator[Shared]:
    made = Shared(fleet, fleet.controller.client())
    yield made
    total = made.end()
    say(f"{len(KILLED)} processes were killed with -9, under {total} rounds of I/O of")
    say("three hosts: no error, no new session, and all have the acknowledged bytes")
    made.remove()


def attach(client: Client, shared: Shared) -> None:
    """One more host of the shared volume."""
    api.attach(client, shared.volume, "late", "ro")


def detach(client: Client, shared: Shared) -> None:
    """Every host but the three leaves."""
    for each in shared.others():
        api.detach(client, each)


def create(client: Client, shared: Shared) -> None:
    """Another volume of the backend."""
    CREATED.add(api.create(client, BACKEND))


def snapshot(client: Client, shared: Shared) -> None:
    """A snapshot in use."""
    CREATED.add(api.snapshot(client, shared.volume))


def extend(client: Client, shared: Shared) -> None:
    """The shared volume grows in use."""
    size = api.show(client, shared.volume)["size"] + 1
    api.act(client, shared.volume, "os-extend", {"new_size": size})
    api.reaches(client, shared.volume, "in-use", seconds=_RESTART)


def delete(client: Client, shared: Shared) -> None:
    """Every snapshot, and every other volume."""
    CREATED.clear()
    for each in client("GET", "/snapshots")["snapshots"]:
        client("DELETE", f"/snapshots/{each['id']}")
        api.gone(client, f"/snapshots/{each['id']}")
    for each in client("GET", "/volumes")["volumes"]:
        if each["id"] != shared.volume:
            api.delete(client, each["id"])


def is_attached(client: Client, shared: Shared) -> bool:
    """Whether the late host may read, and nothing else."""
    return shared.node.exports()[shared.volume].get(api.iqn("late")) == "ro"


def is_detached(client: Client, shared: Shared) -> bool:
    """Whether only the three hosts have access."""
    names = {host.iqn for host in shared.hosts}
    return shared.node.exports()[shared.volume].keys() == names


def is_created(client: Client, shared: Shared) -> bool:
    """Whether every acknowledged volume and snapshot has its disk."""
    return shared.node.disks() >= CREATED


def is_extended(client: Client, shared: Shared) -> bool:
    """Whether the disk has the size that the API says."""
    return shared.size() == float(api.show(client, shared.volume)["size"])


def is_deleted(client: Client, shared: Shared) -> bool:
    """Whether nothing else is left."""
    return shared.node.disks() == {shared.volume}


@dataclass(frozen=True)
class Point:
    """A request that is cut off when what the pattern finds changes.

    ``holds`` is true after it was acknowledged. ``before`` makes what it needs,
    ``after`` does it again, or undoes it.
    """

    do: Step
    holds: Check
    when: str
    pattern: str
    before: Step | None
    after: Step


POINTS = [
    Point(attach, is_attached, "the ACL is there", ACLS, None, detach),
    Point(attach, is_attached, "the LUN is mapped", MAPPED, None, detach),
    Point(detach, is_detached, "the ACL is gone", ACLS, attach, detach),
    Point(create, is_created, "the disk is there", DISKS, None, create),
    Point(snapshot, is_created, "LVM has stored it", LVM_BACKUP, None, snapshot),
    Point(extend, is_extended, "the disk has grown", SIZES, None, extend),
    Point(delete, is_deleted, "a disk is gone", DISKS, create, delete),
]


@pytest.mark.parametrize("victims", [[CINDER], [HELPER], [CINDER, HELPER]], ids=str)
def test_no_host_notices_a_kill_of_an_idle_process(
    shared: Shared, victims: list[str]
) -> None:
    killed = shared.node.ask("killed", shared.node.ask("arm", "", victims))
    KILLED.extend(killed)
    assert killed
    shared.recovers()
    shared.check_undisturbed()
    say(f"{', '.join(victims)} killed without a request: {len(killed)} processes")


@pytest.mark.parametrize("victim", [CINDER, HELPER])
@pytest.mark.parametrize("point", POINTS, ids=lambda each: each.do.__name__)
def test_no_host_notices_a_kill_in_the_middle(
    client: Client, shared: Shared, point: Point, victim: str
) -> None:
    if point.before:
        point.before(client, shared)
    number = shared.node.ask("arm", point.pattern, [victim])
    answer = answer_to(point.do, client, shared)
    killed = shared.node.ask("killed", number)
    KILLED.extend(killed)
    assert killed, "it was not in the middle"
    shared.recovers()
    shared.check_undisturbed()
    say(f"{victim} killed in {point.do.__name__}, when {point.when}: {answer}")
    assert answer != "acknowledged" or point.holds(client, shared)
    assert is_created(client, shared)
    repair(client, shared)
    point.after(client, shared)
    holds = is_detached if point.after is detach else point.holds
    assert holds(client, shared)


def answer_to(do: Step, client: Client, shared: Shared) -> str:
    """What the client got."""
    try:
        do(client, shared)
    except (AssertionError, OSError, RuntimeError) as error:
        client.close()
        return f"not acknowledged ({str(error)[:60]})"
    return "acknowledged"


@pytest.mark.parametrize("do", [attach, detach], ids=lambda each: each.__name__)
def test_no_host_notices_a_helper_that_hangs(
    client: Client, shared: Shared, do: Step
) -> None:
    """It is stopped: its socket accepts requests, and nobody answers them."""
    if do is detach:
        attach(client, shared)
    before = shared.node.exports()
    signal = ("systemctl", "kill", "--kill-whom=main", "--signal")
    shared.node.must(*signal, "SIGSTOP", HELPER)
    try:
        answer = answer_to(do, client, shared)
        assert shared.node.exports() == before
        shared.check_undisturbed()
    finally:
        shared.node.must(*signal, "SIGCONT", HELPER)
    assert answer != "acknowledged"
    if do is detach:  # cinder-api got no answer, and so it has left the row
        detach(client, shared)
    shared.recovers()
    shared.check_undisturbed()
    say(f"{HELPER} hung in {do.__name__}: {answer}")
    detach(client, shared)
    assert is_detached(client, shared)
    attach(client, shared)
    assert is_attached(client, shared)
    detach(client, shared)


def repair(client: Client, shared: Shared) -> None:
    """What an operator does with a volume whose extend was cut off."""
    if api.show(client, shared.volume)["status"] != "in-use":
        reset = {"status": "in-use"}
        api.act(client, shared.volume, "os-reset_status", reset)


def test_nothing_is_left_of_what_was_killed(client: Client, shared: Shared) -> None:
    delete(client, shared)
    assert is_deleted(client, shared)
    assert not [*shared.fleet.differences()]
