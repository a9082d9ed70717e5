# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Threads that take turns."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from lunshare.agent.http.http_connections import ConnectionLoop
from lunshare.agent.threads import worker_turns
from lunshare.agent.threads.worker_turns import Workers, waiting
from tests.stands.waiting import until


def ended(workers: Workers[int]) -> None:
    assert workers.stop(time.monotonic() + 20)


def test_one_item_runs_at_a_time_and_all_are_done() -> None:
    mutex, done = threading.Lock(), []

    def work(item: int) -> None:
        assert mutex.acquire(blocking=False)
        for _ in range(20):
            time.sleep(0)  # a system call: the interpreter may change hands
        mutex.release()
        done.append(item)

    workers: Workers[int] = Workers("turn", 8, 1, work)
    workers.start()
    for item in range(1, 100):
        workers.turns.put(item)
    ended(workers)
    assert sorted(done) == list(range(1, 100))


@pytest.mark.parametrize(
    ("lets", "expected"), [(False, [2, 1, 3, 4, 5]), (True, [1, 3, 4, 5, 2])]
)
def test_a_thread_that_stops_waiting_runs_before_new_items(
    lets: bool, expected: list[int]
) -> None:
    """And both of them before a thread that ``lets`` others run."""
    gate, order = threading.Event(), list[int]()

    def work(item: int) -> None:
        if item == 1:
            with waiting():
                gate.wait(20)
        if item == 2:
            gate.set()
            until(lambda: bool(workers.turns._back))
            for other in (3, 4, 5):
                workers.turns.put(other)
            if lets:
                workers.turns.let_others_run(20)
        order.append(item)

    workers: Workers[int] = Workers("turn", 4, 1, work)
    workers.start()
    workers.turns.put(1)
    workers.turns.put(2)
    until(lambda: len(order) == 5)
    ended(workers)
    assert order == expected


def test_an_old_turn_does_not_count() -> None:
    gate, done = threading.Event(), []

    def work(item: int) -> None:
        if item == 1:
            gate.wait(20)  # without waiting(): it hangs
        done.append(item)

    workers: Workers[int] = Workers("turn", 3, 1, work)
    workers.start()
    workers.turns.put(1)
    workers.turns.put(2)

    def relieved() -> bool:
        workers.turns.drop_late()
        return done == [2]

    until(relieved)
    gate.set()
    ended(workers)
    assert done == [2, 1]


def test_a_stop_that_takes_too_long_returns_false() -> None:
    gate = threading.Event()

    def work(_: int) -> None:
        gate.wait(20)

    workers: Workers[int] = Workers("turn", 2, 1, work)
    workers.start()
    workers.turns.put(1)
    until(lambda: not len(workers.turns))
    assert not workers.stop(time.monotonic() + 0.05)
    gate.set()
    ended(workers)


def test_a_thread_that_lets_others_run_does_not_wait_for_one_that_hangs() -> None:
    gate, done = threading.Event(), []

    def work(item: int) -> None:
        if item == 1:
            workers.turns.put(2)
            workers.turns.let_others_run(0.01)
        else:
            gate.wait(20)
        done.append(item)

    workers: Workers[int] = Workers("turn", 2, 1, work)
    workers.start()
    workers.turns.put(1)
    until(lambda: done == [1])
    gate.set()
    ended(workers)
    assert done == [1, 2]


def test_items_that_wait_for_a_turn_run_before_more_are_read() -> None:
    order = list[int | str]()

    def work(item: int) -> None:
        if item in (1, 4):
            until(lambda: bool(turns._last))  # the reader waits
        order.append(item)

    workers: Workers[int] = Workers("turn", 1, 1, work)
    turns = workers.turns
    workers.start()
    assert not turns.let_queued_run(20)  # nothing to run
    turns.put(1)
    until(lambda: bool(turns._running))
    assert not turns.let_queued_run(20)  # it runs already
    turns.put(2)
    turns.put(3)
    assert turns.let_queued_run(20)
    order.append("read")
    turns.put(4)
    turns.put(5)
    assert turns.let_queued_run(20)  # until here the reader had the turn
    order.append("read")
    turns.give_back()
    ended(workers)
    assert order == [1, 2, 3, "read", 4, 5, "read"]


def test_connections_that_are_closed_leave_their_turn_to_the_last_requests() -> None:
    """A stop that takes too long closes them while requests run."""
    gate, done = threading.Event(), list[Any]()

    def work(item: Any) -> None:
        gate.wait(20)
        done.append(item)

    workers: Workers[Any] = Workers("turn", 1, 1, work)
    loop = ConnectionLoop([], workers.turns, lambda _: False)
    workers.start()
    workers.turns.put(1)
    workers.turns.put(2)  # the connections wait for it
    thread = threading.Thread(target=loop.run, args=(lambda: None,), daemon=True)
    thread.start()
    until(lambda: bool(workers.turns._last))
    loop.stop()
    thread.join(20)
    gate.set()
    ended(workers)
    assert done == [1, 2]


def test_no_wakeup_is_lost_or_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that end in time, just then, and too late.

    A wakeup that is left over would end the next wait of its thread at once.
    """
    monkeypatch.setattr(worker_turns, "MAX_TURN", 0.0005)
    chosen, done = random.Random(1), list[int]()

    def work(item: int) -> None:
        seconds = (0.0, 0.00001, 0.0002)[item % 3]
        if item % 2:
            turns.let_others_run(seconds)
        else:
            with waiting():
                time.sleep(seconds)
        done.append(item)

    workers: Workers[int] = Workers("turn", 8, 1, work)
    turns = workers.turns
    workers.start()
    for _ in range(20_000):
        turns.put(chosen.randrange(1, 1000))
        if chosen.random() < 0.1:
            turns.let_queued_run(0.0001)
    turns.give_back()
    until(lambda: len(done) == 20_000 and len(turns._idle) == 8)
    assert [each.wake.locked() for each in turns._idle] == [True] * 8
    assert not turns._running
    ended(workers)
