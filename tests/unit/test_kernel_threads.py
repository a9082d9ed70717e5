# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Which threads get a real-time priority: never a program's, whatever its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lunshare.helper.lio import kernel_threads
from lunshare.helper.lio.kernel_threads import RECEIVES, hurry_ending, named

# It has the name, and a pending SIGINT, of a connection's thread that ends.
_PROGRAM = f"""
import signal, sys, threading
open("/proc/self/comm", "w").write("{RECEIVES}")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
signal.pthread_kill(threading.get_ident(), signal.SIGINT)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program() -> Iterator[int]:
    line = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.send_signal(signal.SIGKILL)


def test_a_program_with_the_name_of_such_a_thread_is_none(program: int) -> None:
    assert program not in named(RECEIVES)
    hurry_ending([program])
    assert os.sched_getscheduler(program) == os.SCHED_OTHER


def test_one_that_ends_is_one_with_a_pending_sigint(
    program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's status is read as that of a thread of the kernel."""
    own = f"\nPPid:\t{os.getpid()}\n"
    monkeypatch.setattr(kernel_threads, "_OF_KERNEL", own)
    changed: list[int] = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda thread, *_: changed.append(thread)
    )
    assert named(RECEIVES) == [program]
    hurry_ending([program, os.getpid(), 2**22 + 1])
    assert changed == [program]
