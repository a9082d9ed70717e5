# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""An event for threads that take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lunshare.agent.threads.turn_locks import TurnEvent
from lunshare.agent.threads.worker_turns import Wakeup, Workers
from tests.stands.waiting import until

IN_A_POOL = pytest.mark.parametrize("pool", [True, False])


def run(pool: bool, works: list[Callable[[], None]]) -> None:
    """Run all of them in threads of a pool with one turn, or in plain threads."""
    if pool:
        workers = Workers[Callable[[], None]]("t", len(works), 1, lambda work: work())
        workers.start()
        for work in works:
            workers.turns.put(work)
        assert workers.stop(time.monotonic() + 20)
        return
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


@IN_A_POOL
def test_an_event_wakes_waiting_threads_and_later_ones_do_not_wait(pool: bool) -> None:
    event, done = TurnEvent(), list[str]()

    def wait() -> None:
        event.wait()
        done.append("waited")

    def happens() -> None:
        while len(event._waiting) < 3:
            time.sleep(0.001)
        event.set()

    run(pool, [wait, wait, wait, happens])
    run(pool, [wait])
    assert done == ["waited"] * 4


def test_a_thread_that_waits_has_no_turn_and_gets_one_before_new_items() -> None:
    event, order = TurnEvent(), list[int]()

    def work(item: int) -> None:
        if item == 1:
            event.wait()
        if item == 2:
            event.set()
            for other in (3, 4):
                workers.turns.put(other)
        order.append(item)

    workers: Workers[int] = Workers("turn", 4, 1, work)
    workers.start()
    workers.turns.put(1)
    until(lambda: event._waiting)
    workers.turns.put(2)
    until(lambda: len(order) == 4)
    assert workers.stop(time.monotonic() + 20)
    assert order == [2, 1, 3, 4]


def test_a_thread_that_hangs_does_not_keep_the_turn_of_one_that_was_woken() -> None:
    event, gate, done = TurnEvent(), threading.Event(), list[int]()

    def work(item: int) -> None:
        if item == 1:
            event.wait()
        else:
            event.set()
            gate.wait(20)
        done.append(item)

    workers: Workers[int] = Workers("turn", 2, 1, work)
    workers.start()
    workers.turns.put(1)
    until(lambda: event._waiting)
    workers.turns.put(2)
    until(lambda: done)  # nobody calls drop_late: the listener may have ended
    gate.set()
    assert workers.stop(time.monotonic() + 20)
    assert done == [1, 2]


@IN_A_POOL
def test_a_wait_that_was_ended_before_it_began_returns_at_once(pool: bool) -> None:
    done = list[int]()

    def work() -> None:
        for _ in range(2):
            wakeup = Wakeup()
            wakeup.set()
            wakeup.wait()
        done.append(1)

    run(pool, [work, work])
    assert done == [1, 1]
