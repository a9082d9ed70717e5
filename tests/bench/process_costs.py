# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What processes cost: processor time, memory, descriptors, connections to a port."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from tests.stands.servers import children

MIB = 2**20


def tree(process: int) -> list[int]:
    """A process and all below it."""
    return [process, *children(process)]


def cpu(processes: Iterable[int]) -> float:
    """Seconds of processor time that they have used so far."""
    times = [psutil.Process(process).cpu_times() for process in processes]
    return sum(time.user + time.system for time in times)


def pss(processes: Iterable[int]) -> float:
    """Their memory, in MiB; shared pages are divided among those that share them."""
    memory = [psutil.Process(process).memory_full_info() for process in processes]
    return sum(info.pss for info in memory) / MIB


def rss(process: int) -> float:
    """The memory of one, in MiB, with what it shares."""
    return float(psutil.Process(process).memory_info().rss / MIB)


def descriptors(process: int) -> int:
    """How many files and sockets it has open."""
    return int(psutil.Process(process).num_fds())


def connections(process: int, port: int) -> int:
    """How many TCP connections over IPv4 it has to a port."""
    sockets = psutil.Process(process).connections("tcp4")
    return sum(bool(socket.raddr) and socket.raddr.port == port for socket in sockets)
