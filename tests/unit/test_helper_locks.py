# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A target whose change hangs in the kernel does not delay other targets."""

from __future__ import annotations

import threading

import pytest

from lunshare.drivers.errors import DeadlineExceeded
from lunshare.helper.named_locks import Locks
from lunshare.helper.thread_limits import THREADS
from tests.stands.waiting import until


def test_hanging_step_holds_its_lock_until_it_ends() -> None:
    locks, kernel = Locks(), threading.Event()
    with pytest.raises(DeadlineExceeded, match="ending"), locks.hold("a", 0.1) as lock:
        lock.run_step("ending", kernel.wait)
    with pytest.raises(DeadlineExceeded, match="earlier change of a"):
        locks.acquire("a", 0.1)
    with locks.hold("b", 0.1) as other:
        other.run_step("another", lambda: None)
    kernel.set()
    with locks.hold("a", 10):
        pass
    assert locks._held == {}


def test_next_caller_continues_when_the_step_ends() -> None:
    locks, kernel, entered = Locks(), threading.Event(), threading.Event()
    with pytest.raises(DeadlineExceeded), locks.hold("a", 0.05) as lock:
        lock.run_step("ending", kernel.wait)

    def follow() -> None:
        with locks.hold("a", 10):
            entered.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert not entered.wait(0.1)
    kernel.set()
    assert entered.wait(10)
    thread.join()


def test_error_of_a_step_is_raised_in_the_caller() -> None:
    locks = Locks()
    with pytest.raises(OSError, match="refused"), locks.hold("a", 10) as lock:
        lock.run_step("step", _refuse)
    assert locks._held == {}


def test_a_step_that_is_given_up_holds_no_lock_and_no_place() -> None:
    locks, kernel, before = Locks(), threading.Event(), THREADS._waiting.total()
    threads = threading.active_count()
    with locks.hold("a", 10) as lock:
        assert lock.try_step("ends", 10, lambda: None)
        assert not lock.try_step("hangs", 0.05, kernel.wait)
        with pytest.raises(OSError, match="refused"):
            lock.try_step("fails", 10, _refuse)
    assert locks._held == {}
    assert THREADS._waiting.total() == before
    with pytest.raises(DeadlineExceeded), locks.hold("a", 0.1) as lock:
        lock.run_step("hangs too", lock.try_step, "hangs", 10, kernel.wait)
    kernel.set()
    with locks.hold("a", 10):
        pass
    until(lambda: threading.active_count() == threads)
    assert locks._held == {}
    assert THREADS._waiting.total() == before


def _refuse() -> None:
    raise OSError("refused")


def test_wait_until_polls_and_ends_at_the_deadline() -> None:
    locks, answers = Locks(), [False, False, True]
    with locks.hold("a", 10) as lock:
        lock.wait_until("ready", lambda: answers.pop(0))
    assert answers == []
    with pytest.raises(DeadlineExceeded), locks.hold("a", 0.05) as lock:
        lock.wait_until("never", lambda: False)
    assert locks._held == {}
