# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A lock for threads that take turns."""

from __future__ import annotations

import threading
import time

import pytest

from lunshare.agent.threads.turn_locks import TurnLock
from lunshare.agent.threads.worker_turns import Workers, waiting
from tests.stands.waiting import until
from tests.unit.test_turn_event import IN_A_POOL, run


@IN_A_POOL
def test_one_thread_at_a_time_has_the_lock(pool: bool) -> None:
    lock, inside, most, done = TurnLock(), list[int](), list[int](), list[int]()

    def work() -> None:
        for _ in range(50):
            lock.acquire()
            inside.append(1)
            with waiting():
                time.sleep(0)
            most.append(len(inside))
            inside.pop()
            lock.release()
        done.append(1)

    run(pool, [work] * 8)
    assert len(done) == 8
    assert max(most) == 1


def test_a_thread_that_waits_for_the_lock_has_no_turn() -> None:
    lock, gate, order = TurnLock(), threading.Event(), list[int]()

    def work(item: int) -> None:
        if item == 3:
            order.append(item)
            gate.set()
            return
        lock.acquire()
        if item == 1:
            with waiting():
                assert gate.wait(20)
        order.append(item)
        lock.release()

    workers: Workers[int] = Workers("turn", 3, 1, work)
    workers.start()
    for item in (1, 2, 3):
        workers.turns.put(item)
    assert workers.stop(time.monotonic() + 20)
    assert order == [3, 1, 2]


@pytest.mark.parametrize("threads", [2, 5])
def test_who_has_waited_longest_is_next_although_another_one_takes_it_between(
    threads: int,
) -> None:
    lock, order = TurnLock(), list[int]()
    others = range(1, threads)

    def work(item: int) -> None:
        lock.acquire()
        order.append(item)
        if item == 0:
            for each in others:
                workers.turns.put(each)
                with waiting():
                    until(lambda each=each: len(lock._waiting) == each)  # type: ignore[misc]
            for _ in range(3):
                lock.release()
                lock.acquire()  # the next thread was woken, and has no turn yet
                order.append(item)
                with waiting():
                    until(lambda: len(lock._waiting) == len(others))
        lock.release()

    workers: Workers[int] = Workers("turn", threads, 1, work)
    workers.start()
    workers.turns.put(0)
    until(lambda: len(order) == 3 + threads)
    assert workers.stop(time.monotonic() + 20)
    assert order == [0, 0, 0, 0, *others]
