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
DISKS = "/dev/mapper/lunshare-*"
SIZES = "/sys/block/dm-*/size"
SUSPENDED = "/sys/block/dm-*/dm/suspended"
Step = Callable[[Client, Shared], None]
_RESTART = 90.0
#: The processes that were killed, and the volumes that were acknowledged.
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
    assert shared.node.exports()[shared.volume][api.iqn("late")] == "ro"


def detach(client: Client, shared: Shared) -> None:
    """Every host but the three leaves."""
    for each in shared.others():
        api.detach(client, each)
    assert len(shared.node.exports()[shared.volume]) == len(shared.hosts)


def create(client: Client, shared: Shared) -> None:
    """Another volume of the backend."""
    CREATED.add(api.create(client, BACKEND))


def snapshot(client: Client, shared: Shared) -> None:
    """A snapshot in use."""
    api.snapshot(client, shared.volume)


def extend(client: Client, shared: Shared) -> None:
    """The shared volume grows in use."""
    size = api.show(client, shared.volume)["size"] + 1
    api.act(client, shared.volume, "os-extend", {"new_size": size})
    api.reaches(client, shared.volume, "in-use", seconds=_RESTART)


def delete(client: Client, shared: Shared) -> None:
    """Every snapshot, and every other volume."""
    for each in client("GET", "/snapshots")["snapshots"]:
        client("DELETE", f"/snapshots/{each['id']}")
        api.gone(client, f"/snapshots/{each['id']}")
    for each in client("GET", "/volumes")["volumes"]:
        if each["id"] != shared.volume:
            CREATED.discard(each["id"])
            api.delete(client, each["id"])


@dataclass(frozen=True)
class Point:
    """A request that is cut off when what the pattern finds changes.

    ``before`` makes what it needs, ``after`` does what was not acknowledged.
    """

    do: Step
    when: str
    pattern: str
    before: Step | None = None
    after: Step | None = None


POINTS = [
    Point(attach, "the host's ACL is there", ACLS, after=detach),
    Point(attach, "its LUN is mapped", f"{ACLS}/lun_0/write_protect", after=detach),
    Point(detach, "the host's ACL is gone", ACLS, before=attach, after=detach),
    Point(create, "the disk is there", DISKS, after=create),
    Point(snapshot, "the volume is suspended", SUSPENDED, after=snapshot),
    Point(extend, "the size is another one", SIZES),
    Point(delete, "the first disk is gone", DISKS, before=create, after=delete),
]


@pytest.mark.parametrize("victims", [[CINDER], [HELPER], [CINDER, HELPER]], ids=str)
def test_no_host_notices_a_kill_of_what_does_nothing(
    shared: Shared, victims: list[str]
) -> None:
    killed = shared.node.ask("killed", shared.node.ask("arm", "", victims))
    KILLED.extend(killed)
    assert killed
    shared.recovers()
    shared.nobody_noticed()
    say(f"{', '.join(victims)} killed without a request: {len(killed)} processes")


@pytest.mark.parametrize("victim", [CINDER, HELPER])
@pytest.mark.parametrize("point", POINTS, ids=lambda each: each.do.__name__)
def test_no_host_notices_a_kill_in_the_middle(
    client: Client, shared: Shared, point: Point, victim: str
) -> None:
    if point.before is not None:
        point.before(client, shared)
    number = shared.node.ask("arm", point.pattern, [victim])
    answer = "acknowledged"
    try:
        point.do(client, shared)
    except (AssertionError, OSError, RuntimeError) as error:
        answer = f"not acknowledged ({str(error)[:60]})"
        client.close()
    killed = shared.node.ask("killed", number)
    KILLED.extend(killed)
    assert killed, "it was not in the middle"
    shared.recovers()
    shared.nobody_noticed()
    say(f"{victim} killed in {point.do.__name__}, when {point.when}: {answer}")
    repair(client, shared)
    assert shared.disks() >= CREATED
    if point.after is not None:
        point.after(client, shared)


def repair(client: Client, shared: Shared) -> None:
    """What an operator does with a volume whose extend was cut off."""
    if api.show(client, shared.volume)["status"] != "in-use":
        reset = {"status": "in-use"}
        api.act(client, shared.volume, "os-reset_status", reset)


def test_nothing_is_left_of_what_was_killed(client: Client, shared: Shared) -> None:
    delete(client, shared)
    assert shared.disks() == {shared.volume}
    assert not [*shared.fleet.differences()]
