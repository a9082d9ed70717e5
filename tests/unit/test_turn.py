# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Threads of which one has the turn."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lunshare.agent.threads import turn
from lunshare.agent.threads.turn import Turn, Workers, waiting
from tests.stands.waiting import until

Work = Callable[[], None]


@pytest.fixture(autouse=True)
def fresh_turn(monkeypatch: pytest.MonkeyPatch) -> Turn:
    """The turn of this test's threads alone."""
    fresh = Turn()
    monkeypatch.setattr(turn, "_TURN", fresh)
    return fresh


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn is too old, however slow the machine is."""
    monkeypatch.setattr(turn, "MAX_TURN", 20)


@pytest.fixture
def workers() -> Iterator[Workers[Work]]:
    pool: Workers[Work] = Workers("turn", 4, lambda work: work())
    yield pool
    ended(pool)


def ended(workers: Workers[Work]) -> None:
    assert workers.stop(time.monotonic() + 20)


def test_one_item_runs_at_a_time_and_all_are_done(patient: None) -> None:
    mutex, done = threading.Lock(), list[int]()

    def work(item: int) -> None:
        assert mutex.acquire(blocking=False)
        for _ in range(20):
            time.sleep(0)  # a system call: the interpreter may change hands
        mutex.release()
        done.append(item)

    workers: Workers[int] = Workers("turn", 8, work)
    for item in range(1, 100):
        workers.put(item)
    assert workers.stop(time.monotonic() + 20)
    assert sorted(done) == list(range(1, 100))


def test_another_thread_runs_while_one_waits(workers: Workers[Work]) -> None:
    gate, order = threading.Event(), list[str]()

    def wait() -> None:
        with waiting():
            assert gate.wait(20)
        order.append("waited")

    def run() -> None:
        order.append("ran")
        gate.set()

    workers.put(wait)
    workers.put(run)
    until(lambda: order == ["ran", "waited"])


def test_threads_that_have_waited_run_before_more_items(
    workers: Workers[Work], fresh_turn: Turn, patient: None
) -> None:
    """They may have a lock or a transaction. One item is in the queue before them."""
    gate, order = threading.Event(), list[int]()

    def wait(number: int) -> None:
        with waiting():
            assert gate.wait(20)
        order.append(number)

    def run() -> None:
        gate.set()
        until(lambda: len(fresh_turn._queue) == 3)
        for number in (3, 4, 5):
            workers.put(lambda number=number: order.append(number))  # type: ignore[misc]

    workers.put(lambda: wait(1))
    workers.put(lambda: wait(2))
    workers.put(run)
    workers.put(lambda: order.append(0))
    until(lambda: len(order) == 6)
    assert sorted(order[:3]) == [0, 1, 2]
    assert order[3:] == [3, 4, 5]


def test_who_has_waited_longest_is_next() -> None:
    own, order, threads = Turn(), list[int](), list[threading.Thread]()

    def run(number: int) -> None:
        own.take()
        order.append(number)
        own.give_back()

    own.take()
    for number in range(5):
        threads.append(threading.Thread(target=run, args=(number,)))
        threads[-1].start()
        until(lambda: len(own._queue) == len(threads))
    own.give_back()
    for thread in threads:
        thread.join(20)
    assert order == [0, 1, 2, 3, 4]


def test_a_thread_that_hangs_stops_nobody(workers: Workers[Work]) -> None:
    gate, done = threading.Event(), list[str]()

    def hang() -> None:
        gate.wait(20)  # without waiting()
        done.append("hung")

    workers.put(hang)
    for name in ("next", "last"):
        workers.put(lambda name=name: done.append(name))  # type: ignore[misc]
    until(lambda: done == ["next", "last"])
    gate.set()
    until(lambda: done == ["next", "last", "hung"])


def test_a_late_thread_does_not_free_the_turn_of_another(fresh_turn: Turn) -> None:
    """Neither at its end nor where it waits; and it works on without the turn."""
    own, taken, ends = fresh_turn, threading.Event(), threading.Event()

    def take() -> None:
        own.take()
        taken.set()
        assert ends.wait(20)
        assert own.give_back()

    own.take()
    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(20)
    owner = own._owner
    assert owner == thread.ident
    assert not own.give_back()
    with waiting():
        assert own._owner == owner
    assert own._owner == owner
    ends.set()
    thread.join(20)
    assert own._owner is None


def test_a_thread_without_a_turn_gets_none_by_waiting(fresh_turn: Turn) -> None:
    with waiting():
        pass
    assert fresh_turn._owner is None


def test_a_wait_that_fails_returns_with_the_turn(fresh_turn: Turn) -> None:
    fresh_turn.take()
    with pytest.raises(KeyError), waiting():
        raise KeyError
    assert fresh_turn.give_back()


def test_a_stop_that_takes_too_long_returns_false(workers: Workers[Work]) -> None:
    gate, started = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        gate.wait(20)

    workers.put(work)
    assert started.wait(20)
    assert not workers.stop(time.monotonic() + 0.05)
    gate.set()


def test_no_turn_is_lost_or_left_over(
    monkeypatch: pytest.MonkeyPatch, fresh_turn: Turn
) -> None:
    """Waits that end in time, just then, and too late."""
    monkeypatch.setattr(turn, "MAX_TURN", 0.0005)
    chosen, done = random.Random(1), list[int]()

    def work(item: int) -> None:
        seconds = (0.0, 0.00001, 0.0002)[item % 3]
        if item % 2:
            time.sleep(seconds)
        with waiting():
            time.sleep(seconds)
        done.append(item)

    workers: Workers[int] = Workers("turn", 8, work)
    for _ in range(20_000):
        workers.put(chosen.randrange(1, 1000))
    until(lambda: len(done) == 20_000)
    assert workers.stop(time.monotonic() + 20)
    assert fresh_turn._owner is None
    assert not fresh_turn._queue


def test_owners_of_items_come_by_turns() -> None:
    """A member with 400 requests delayed those of others by 5 s."""
    go, order = threading.Event(), []

    def work(item: str) -> None:
        assert go.wait(20)
        order.append(item)

    workers: Workers[str] = Workers("turn", 1, work)
    workers.put("first", "anna")
    for owner, items in (("anna", "abc"), ("ben", "de"), ("eve", "f")):
        for item in items:
            workers.put(item, owner)
    go.set()
    assert workers.stop(time.monotonic() + 20)
    assert order in (["first", *"adfbec"], ["first", *"dfaebc"])
