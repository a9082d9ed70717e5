# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's threads of iSCSI connections: each that has logged in has two."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from lunshare.helper.lio.configfs import names, read

#: That which receives commands, and takes memory for them; and the other one.
RECEIVES, SENDS = "iscsi_trx", "iscsi_ttx"
# Any user may give a process such a name. Only the kernel's threads have this parent.
_OF_KERNEL = "\nPPid:\t2\n"
_PENDING = "SigPnd:\t"
_SIGNALLED = 1 << (signal.SIGINT - 1)
# The priority of threads that end a connection, below that of who waits for them.
_ENDS, _WAITS = 1, 2


def named(*wanted: str) -> list[int]:
    """Return the ids of the kernel's threads of this name. It reads all processes."""
    threads = []
    for process in filter(str.isdigit, names("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if read(f"/proc/{process}/comm") in wanted and _status(int(process)):
                threads.append(int(process))
    return threads


def be_first() -> None:
    """Let this thread, and those that it starts, run before all ordinary ones.

    Each thread of the kernel has as much of a processor as all services of systemd
    together, whatever their nice values are.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_WAITS))


def hurry_ending(threads: Iterable[int]) -> None:
    """Let those run first that end their connection: LIO has sent them SIGINT.

    They free what the others of their kind take, and would have to wait for these.
    """
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            _, _, after = _status(thread).partition(_PENDING)
            if int(after[:16] or "0", 16) & _SIGNALLED:
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(_ENDS))


def _status(thread: int) -> str:
    """Return proc(5), PID/status, of a thread of the kernel; "" of a program's."""
    text = read(f"/proc/{thread}/status")
    return text if _OF_KERNEL in text else ""
