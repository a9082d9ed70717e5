# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Trace real requests, and list the files to read to follow each of them.

``make walks`` writes the lists into ARCHITECTURE.md; test_walks compares them.

A walk goes from the WSGI entry to where the kernel or LVM gets it: to each change in
configfs, and to the start of lvcreate. It has the files on the call stacks there, of
every thread that works for the request, on both sides of the helper's socket; the
context managers that are open there, and what these have run; and the files of the
packages of the request that it passes.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from lunshare.helper.lio import configfs
from tests.api.calls import Api
from tests.stands.node import connector
from tests.unit.walked_node import walked_node

ROOT = Path(__file__).resolve().parents[2]
START, END = "<!-- walks: written by `make walks` -->", "<!-- end of walks -->"

#: The calls at which a walk ends, and where a request waits for its job.
ENDS: dict[CodeType, Callable[[FrameType], bool]] = {
    configfs.write.__code__: lambda frame: True,
    configfs.write_and_read.__code__: lambda frame: True,
    configfs.create_object.__code__: lambda frame: True,
    configfs.remove_object.__code__: lambda frame: True,
    futures.wait.__code__: lambda frame: True,
    subprocess.Popen.__init__.__code__: lambda frame: (
        "lvcreate" in str(frame.f_locals.get("args"))
    ),
}
#: What every request passes, and is not listed.
_SAME_EVERYWHERE = "lunshare/agent/db/"
_ENTER = contextlib._GeneratorContextManager.__enter__.__code__
_YIELD = dis.opmap["YIELD_VALUE"]


@dataclass
class Walk:
    """The files of one request, in the order in which each of its threads enters them.

    What two threads enter at the same time has no order.
    """

    name: str
    packages: tuple[str, ...]
    by_thread: dict[threading.Thread, list[str]] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)

    @property
    def passed(self) -> list[str]:
        """Every file of ours that it enters."""
        return [*dict.fromkeys(chain.from_iterable(self.by_thread.values()))]

    @property
    def spine(self) -> list[str]:
        """The files to read to follow the request to its end."""
        return [
            file
            for file in self.passed
            if file in self.needed or file.startswith(self.packages)
        ]

    @property
    def lines(self) -> int:
        """The lines of the spine."""
        return sum(lines(file) for file in self.spine)


def lines(file: str) -> int:
    """How many lines a file has."""
    return len((ROOT / file).read_text().splitlines())


@functools.cache
def _own(name: str) -> str | None:
    """The path of our own code below the root, else None."""
    path = Path(name).resolve()
    if path.is_relative_to(ROOT / "lunshare"):
        return str(path.relative_to(ROOT))
    return None


class Tracer:
    """Follows every thread. It notes nothing while no walk is set."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self._start()

    def _start(self) -> None:
        # Each frame with the frames of context managers that have called it.
        self._entered: dict[FrameType, list[FrameType]] = {}
        self._managers: dict[FrameType, object] = {}
        self._closed: set[FrameType] = set()

    @contextmanager
    def follow(self, walk: Walk) -> Iterator[None]:
        """Note what runs during the block."""
        self._start()
        self.walk = walk
        try:
            yield
        finally:
            self.walk = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        """Note a call; the interpreter calls this."""
        walk = self.walk
        if walk is None:
            return None
        file = _own(frame.f_code.co_filename)
        if file is None:
            if frame.f_code in ENDS and ENDS[frame.f_code](frame):
                self._end(walk)
            return None
        walk.by_thread.setdefault(threading.current_thread(), []).append(file)
        if frame not in self._entered:
            self._entered[frame] = [
                each for each in _stack(frame.f_back) if each in self._managers
            ]
        self._note_manager(frame)
        if frame.f_code in ENDS:
            self._end(walk)
        if frame in self._managers and self._managers[frame] is None:
            frame.f_trace_lines = False
            return self._local
        return None

    def _note_manager(self, frame: FrameType) -> None:
        name, above = frame.f_code.co_name, frame.f_back
        if name == "__exit__":
            manager = frame.f_locals.get("self")
            self._closed |= {f for f, m in self._managers.items() if m is manager}
        elif name == "__enter__":
            self._managers[frame] = frame.f_locals.get("self")
        elif above and above.f_code is _ENTER:
            self._managers[frame] = None

    def _local(self, frame: FrameType, event: str, arg: object) -> Any:
        """Note that the generator of a context manager has ended, not yielded."""
        if event == "return" and frame.f_code.co_code[frame.f_lasti] != _YIELD:
            self._closed.add(frame)
        return self._local

    def _end(self, walk: Walk) -> None:
        """Note what is on the stacks here, and in the open context managers."""
        for top in sys._current_frames().values():
            for frame in _stack(top):
                if frame in self._entered:
                    walk.needed.add(_own(frame.f_code.co_filename) or "")
        is_open = self._managers.keys() - self._closed
        for frame, managers in list(self._entered.items()):
            file = _own(frame.f_code.co_filename) or ""
            by_manager = frame in is_open or not is_open.isdisjoint(managers)
            if by_manager and not file.startswith(_SAME_EVERYWHERE):
                walk.needed.add(file)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def walk_all() -> list[Walk]:
    """An attach, a detach and a create on a separate node, with LVM and LIO."""
    service, drivers, helper = (
        f"lunshare/{part}/" for part in ("agent/service", "drivers", "helper")
    )
    access = (f"{service}attachments/", f"{drivers}targets/", f"{helper}lio/")
    disks = (f"{service}volumes/", f"{drivers}lvm/", f"{helper}lvm/")
    attach, detach = Walk("Attach", access), Walk("Detach", access)
    create = Walk("Create", disks)
    tracer, before = Tracer(), sys.gettrace()
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        with tempfile.TemporaryDirectory() as path, walked_node(Path(path)) as node:
            api = Api(node.assembly.app)
            api.volume()  # the first one starts the threads of jobs
            with tracer.follow(create):
                volume = api.volume()["id"]
            with tracer.follow(attach):
                row = api.attachment(volume, connector=connector("host"))
            with tracer.follow(detach):
                api("DELETE", f"/attachments/{row['id']}")
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return [attach, detach, create]


def section(walks: list[Walk]) -> str:
    """The part of ARCHITECTURE.md between the two marks."""
    parts = []
    for walk in walks:
        count = len(walk.spine)
        parts.append(f"**{walk.name}**, {count} files, {walk.lines} lines:\n\n")
        parts += [f"1. `{file}` ({lines(file)})\n" for file in walk.spine]
        parts.append("\n")
    return "".join(parts)


def main() -> None:
    """Write the section into ARCHITECTURE.md."""
    page = ROOT / "ARCHITECTURE.md"
    head, _, rest = page.read_text().partition(START)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{START}\n\n{section(walk_all())}{END}{tail}")


if __name__ == "__main__":
    main()
