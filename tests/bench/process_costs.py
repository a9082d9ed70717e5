# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What processes cost: processor time, memory, descriptors, connections to a port."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tests.servers import children


def tree(process: int) -> list[int]:
    """A process and all below it."""
    return [process, *children(process)]


def cpu(processes: Iterable[int]) -> float:
    """Seconds of processor time that they have used so far."""
    return sum(map(_cpu, processes))


def pss(processes: Iterable[int]) -> float:
    """Their memory, in MiB; shared pages are divided among those that share them."""
    return sum(_kib(each, "smaps_rollup", "Pss") for each in processes) / 1024


def rss(process: int) -> float:
    """The memory of one, in MiB, with what it shares."""
    return _kib(process, "status", "VmRSS") / 1024


def descriptors(process: int) -> int:
    """How many files and sockets it has open."""
    return len(os.listdir(f"/proc/{process}/fd"))


def connections(process: int, port: int) -> int:
    """How many TCP connections it has to a port."""
    held = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        held.add(os.readlink(each))
    lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
    to_port = [
        line.split() for line in lines if line.split()[2].endswith(f":{port:04X}")
    ]
    return sum(f"socket:[{fields[9]}]" in held for fields in to_port)


def _kib(process: int, file: str, name: str) -> int:
    text = Path(f"/proc/{process}/{file}").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1])


def _cpu(process: int) -> float:
    # The name, in brackets, may contain spaces.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
