# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The processes that the helper starts, what they write, and what they use.

The client chooses the columns of a report, and a server the sentences of mount: so what
a command writes has a limit.

Only the processes that it started itself are looked at: a search for children would
read every process of the node, and the kernel has two threads for each session. Nothing
here waits for a process that hangs: /proc/PID/stat, statm, status and fd can be read
then, unlike its command line (mmap_lock).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import psutil

from lunshare.drivers.errors import CommandFailed
from lunshare.helper import requests

#: The states that are told apart; every other one of psutil is "other". A process in
#: disk-sleep for long hangs in the kernel.
STATES = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP)
OTHER = "other"

# By process, when it was started, of time.monotonic(). Gone with the last user of it.
_started: weakref.WeakKeyDictionary[subprocess.Popen[bytes], float] = (
    weakref.WeakKeyDictionary()
)
_mutex = threading.Lock()

#: Bytes on stdout and stderr together: a report on 40,000 logical volumes.
MAX_OUTPUT = 16 * 1024**2

_PIECE = 64 * 1024


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, with these files or pipes.

    :raises CommandFailed: it cannot be started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd="/",
            process_group=0,
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandFailed(tuple(command), 126, why) from None
    with _mutex:
        _started[process] = time.monotonic()
    return process


class TooMuch(Exception):
    """The command has written more than the limit, and may still run."""


def collect(
    out: IO[bytes] | None, err: IO[bytes] | None, seconds: float
) -> tuple[str, str]:
    """Return what comes from the two pipes of a command until it closes them.

    :raises TimeoutError: it has not after so many seconds.
    :raises TooMuch: it has written too much.
    """
    until = time.monotonic() + seconds
    texts = {pipe: bytearray() for pipe in (out, err) if pipe}
    with selectors.DefaultSelector() as pipes:
        for pipe, text in texts.items():
            pipes.register(pipe, selectors.EVENT_READ, text)
        while pipes.get_map():
            _read(pipes, until)
            if sum(map(len, texts.values())) > MAX_OUTPUT:
                raise TooMuch
    first, second = (text.decode(errors="replace") for text in texts.values())
    return first, second


def _read(pipes: selectors.BaseSelector, until: float) -> None:
    """Read a piece of each pipe that has one."""
    ready = pipes.select(max(0.0, until - time.monotonic()))
    if not ready:
        raise TimeoutError
    for pipe, _ in ready:
        piece = os.read(pipe.fd, _PIECE)
        pipe.data.extend(piece)
        if not piece:
            pipes.unregister(pipe.fileobj)


def usage(
    of_hosts: Callable[[], Mapping[str, int]], arguments: Mapping[str, Any], _: float
) -> dict[str, Any]:
    """The verb node.processes: memory, descriptors, threads, and commands by state.

    Of each state the number of commands and the age of the oldest, in seconds. Also
    what ``of_hosts`` counts of the node's memory. The size of the answer is fixed.
    """
    requests.nothing(arguments)
    commands = {state: {"count": 0, "oldest": 0.0} for state in (*STATES, OTHER)}
    used = dict.fromkeys(("memory", "descriptors", "threads"), 0)
    for process, age in _running():
        try:
            state, more = process.status(), _used(process)
        except psutil.Error:  # it has ended meanwhile
            continue
        row = commands[state if state in STATES else OTHER]
        row["count"] += 1
        row["oldest"] = max(row["oldest"], age)
        used = {name: used[name] + number for name, number in more.items()}
    helper = _used(psutil.Process())
    return {"helper": helper, "used": used, "commands": commands, "hosts": of_hosts()}


def _running() -> Iterator[tuple[psutil.Process, float]]:
    """Yield the commands that run, and their ages in seconds."""
    with _mutex:
        started = list(_started.items())
    for process, moment in started:
        if process.returncode is None:
            try:
                yield psutil.Process(process.pid), time.monotonic() - moment
            except psutil.NoSuchProcess:
                continue


def _used(process: psutil.Process) -> dict[str, int]:
    """Return what it uses now; memory is what is resident, in bytes."""
    with process.oneshot():
        return {
            "memory": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
        }
