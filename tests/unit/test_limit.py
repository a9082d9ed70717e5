# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How long a request waits where only some may work at once."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lunshare.agent import request_scope
from lunshare.agent.threads.limit import HANGING_SECONDS, Limit, patience
from tests.stands.waiting import until


def waited(limit: Limit, age: float) -> tuple[bool, float]:
    """Whether a request of this age got a place, and how long it waited."""
    answers = []

    def ask() -> None:
        began = time.perf_counter()
        request_scope.begin({request_scope.BEGAN: began - age})
        holder = limit.acquire(patience())
        answers.append((holder is not None, time.perf_counter() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(20)
    return answers[0]


def waiters(limit: Limit) -> int:
    return len(limit._changed._waiters)  # type: ignore[attr-defined]


def test_a_request_that_has_waited_long_does_not_hold_a_thread() -> None:
    """Else those that wait for a password check hold every thread in turn."""
    limit = Limit(1)
    assert limit.acquire(0)
    has_place, seconds = waited(limit, HANGING_SECONDS - 0.1)
    assert not has_place
    assert seconds < HANGING_SECONDS / 2
    has_place, seconds = waited(limit, HANGING_SECONDS + 9)
    assert not has_place
    assert seconds < HANGING_SECONDS / 2


def test_an_old_request_may_begin_where_a_place_is_free() -> None:
    assert waited(Limit(1), 60)[0]


def test_who_waits_gets_the_place_of_one_that_ends() -> None:
    limit = Limit(2)
    first, second = limit.acquire(0, "first"), limit.acquire(0, "second")
    assert first
    assert second
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(limit.acquire, math.inf, "third")
        until(lambda: waiters(limit) == 1)
        assert [holder.purpose for holder in limit.holders] == ["first", "second"]
        limit.release(first)
        assert third.result(20)
    assert [holder.purpose for holder in limit.holders] == ["second", "third"]


def test_nobody_waits_for_work_that_hangs_unless_told_to() -> None:
    limit = Limit(1, hanging_after=0.05)
    holder = limit.acquire(0)
    assert holder
    assert limit.acquire(math.inf) is None
    assert limit.oldest_seconds >= 0.05
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(limit.acquire, 60, although_hanging=True)
        until(lambda: waiters(limit) == 1)
        assert not patient.done()
        limit.release(holder)
        assert patient.result(20)


def test_a_place_is_free_again_after_its_block_however_it_ends() -> None:
    limit = Limit(1)

    def fail() -> None:
        with limit.place(0) as holder, limit.place(0) as other:
            assert holder
            assert other is None
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert limit.holders == []
    assert limit.oldest_seconds == 0
