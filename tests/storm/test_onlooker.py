# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The checks on who may write find what breaks them, and accept what is in between."""

from __future__ import annotations

import math

import pytest

from lunshare.drivers.writers import MAX_WRITERS, WRITERS
from tests.api.foreign_requests import Request
from tests.storm.api import Answer
from tests.storm.hostile_member import REQUESTS, fault
from tests.storm.journal import Journal, Op
from tests.storm.onlooker import Closed, Onlooker
from tests.storm.world import World
from tests.storm.write_limits import NONE, limits

VOLUME, A, B = "volume", "iqn.2020-01.org.storm:h1a", "iqn.2020-01.org.storm:h2b"


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def onlooker(journal: Journal) -> Onlooker:
    return Onlooker("/nowhere", journal, World("storm"))


def limited(
    journal: Journal, key: str, text: str | None, began: float, done: float = math.inf
) -> Op:
    """A change of a policy; without ``done`` it has no answer."""
    op = journal.begin("client-0", "limit", VOLUME, key=key, text=text)
    op.began, op.answered = began, began + 1
    if done < math.inf:
        op.answered, op.done, op.status, op.certain = done, done, 200, True
    return op


@pytest.mark.parametrize(
    ("since", "until", "most"),
    [
        (0.5, 0.6, None),  # before it
        (1.5, 1.6, None),  # while it is asked for
        (2.5, 2.6, 1),
        (2.5, 3.5, None),  # its end has begun
        (4.5, 4.6, None),
    ],
)
def test_a_limit_holds_from_its_answer_until_the_next_request(
    journal: Journal, since: float, until: float, most: int | None
) -> None:
    limited(journal, MAX_WRITERS, "1", 1.0, 2.0)
    limited(journal, MAX_WRITERS, None, 3.0, 4.0)
    assert limits(journal, VOLUME, since, until).most == most


def test_the_larger_of_two_limits_counts_until_one_is_certain(journal: Journal) -> None:
    limited(journal, MAX_WRITERS, "1", 1.0, 2.0)
    limited(journal, MAX_WRITERS, "2", 3.0)
    assert limits(journal, VOLUME, 5.0, 5.1).most == 2
    limited(journal, MAX_WRITERS, "1", 6.0, 7.0)
    assert limits(journal, VOLUME, 8.0, 8.1).most == 1


def test_a_refused_change_counts_not_and_a_rename_ends_a_policy(
    journal: Journal,
) -> None:
    limited(journal, WRITERS, "h1a,h1b", 1.0, 2.0)
    limited(journal, WRITERS, "h2a", 3.0).status = 409
    assert limits(journal, VOLUME, 5.0, 5.1).names == frozenset({"h1a", "h1b"})
    renamed = journal.begin("client-0", "rename", VOLUME, text="new")
    renamed.began, renamed.answered = 6.0, 7.0
    assert limits(journal, VOLUME, 8.0, 8.1) == NONE


@pytest.mark.parametrize(
    ("policy", "writers", "found"),
    [
        ((MAX_WRITERS, "1"), {A}, []),
        ((MAX_WRITERS, "1"), {A, B}, ["no more write than may"]),
        ((WRITERS, "h1a,h1b"), {A}, []),
        ((WRITERS, "h1a,h1b"), {A, B}, ["no more write than may"]),
    ],
)
def test_who_writes_beyond_the_policy_is_found(
    onlooker: Onlooker, policy: tuple[str, str], writers: set[str], found: list[str]
) -> None:
    journal = onlooker.journal
    limited(journal, *policy, 1.0, 2.0)
    live = {VOLUME: {**dict.fromkeys((A, B), "ro"), **dict.fromkeys(writers, "rw")}}
    onlooker.check_limits(live, 3.0, 3.1)
    assert [f.invariant for f in journal.findings] == found


@pytest.mark.parametrize(
    ("closed", "mode", "is_found"),
    [
        (Closed(A, writes_only=False), "ro", True),
        (Closed(A, writes_only=True), "ro", False),
        (Closed(A, writes_only=True), "rw", True),
        (Closed(A, True, VOLUME), "rw", True),
        (Closed(A, True, "another"), "rw", False),
        (Closed(B, writes_only=False), "rw", False),
    ],
)
def test_access_that_was_taken_is_found_open(
    journal: Journal, onlooker: Onlooker, closed: Closed, mode: str, is_found: bool
) -> None:
    onlooker.check_closed({closed}, {VOLUME: {A: mode}})
    assert [f.invariant for f in journal.findings] == (
        ["what is taken stays closed"] if is_found else []
    )


def test_the_end_of_a_lease_says_nothing_of_what_is_asked_for_later() -> None:
    world, fence, lease = World("storm"), Closed(A, False), Closed(A, True, VOLUME)
    world.closed |= {fence, lease}
    world.reopens(A, "another")
    assert world.closed == {fence, lease}
    world.reopens(A, VOLUME)
    assert world.closed == {fence}


def test_a_smaller_generation_is_found() -> None:
    world = World("storm")
    assert world.larger_generation(VOLUME, 3, 1.0, 2.0) is None
    assert world.larger_generation(VOLUME, 2, 1.5, 3.0) is None
    assert world.larger_generation(VOLUME, 2, 2.5, 3.0) == 3


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        (Answer(404, {"itemNotFound": {"message": "none"}}), True),
        (Answer(403, {"forbidden": {"message": "no"}}), True),
        (Answer(None, why="ConnectionRefusedError: refused"), True),
        (Answer(503, {"serviceUnavailable": {"message": "later"}}), True),
        (Answer(404, {"itemNotFound": {}}), False),
        (Answer(200, {"volume": {}}), False),
        (Answer(202), False),
        (Answer(500, {"computeFault": {"message": "made by the storm"}}), False),
    ],
)
def test_a_hostile_member_must_be_refused(answer: Answer, is_refusal: bool) -> None:
    assert (fault(answer) is None) is is_refusal


@pytest.mark.parametrize(
    "request_kind", ["/action", "/lease", "/metadata", "/lunshare/fences", "marker="]
)
def test_a_hostile_member_tries_every_kind(request_kind: str) -> None:
    paths: list[Request] = [each for each in REQUESTS if request_kind in each[1]]
    assert paths
    assert not [each for each in REQUESTS if "{own}" in f"{each[1]} {each[2]}"]


def test_nothing_is_said_of_a_volume_where_another_lease_passes_on() -> None:
    world, lease = World("storm"), Closed(A, True, VOLUME)
    world.passes_on(VOLUME)
    world.close(lease, own=0)
    assert world.closed == set()
    world.close(lease, own=1)
    assert world.closed == {lease}, "it is that of the holder itself"
    world.passes_on(VOLUME)
    assert world.closed == set()
    for _ in range(2):
        world.has_passed_on(VOLUME, promoted=False)
    world.close(lease, own=0)
    assert world.closed == {lease}
