# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How long a request waits for its share of the threads."""

from __future__ import annotations

import threading
import time

from lunshare.agent import request_scope
from lunshare.agent.threads.thread_share import HANGING_SECONDS, ThreadShare


def waited(share: ThreadShare, age: float) -> tuple[bool, float]:
    """Whether a request of this age got its thread, and how long it waited."""
    found = []

    def ask() -> None:
        began = time.perf_counter()
        request_scope.begin({request_scope.BEGAN: began - age})
        found.append((share.acquire(), time.perf_counter() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(20)
    return found[0]


def test_a_request_that_has_waited_long_does_not_hold_a_thread() -> None:
    """Else those that wait for a password check hold every thread in turn."""
    share = ThreadShare(1)
    assert share.acquire()
    got, seconds = waited(share, HANGING_SECONDS - 0.1)
    assert not got
    assert seconds < HANGING_SECONDS / 2
    got, seconds = waited(share, HANGING_SECONDS + 9)
    assert not got
    assert seconds < HANGING_SECONDS / 2


def test_an_old_request_may_begin_where_a_thread_is_free() -> None:
    assert waited(ThreadShare(1), 60)[0]
