# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Trace real requests, and list the files to read to follow each of them.

``make walks`` writes the lists into ARCHITECTURE.md; test_walks compares them.

The spine of a request is the files on the call stack where the driver's verb runs,
and those files of its service package that it passes. Where a job does the work, the
stack of the request that waits for the job belongs to it too.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from lunshare.agent.service.jobs.job_runner import JobRunner
from lunshare.drivers.fake.fake_driver import FakeVolumes
from lunshare.drivers.targets.fake import FakeTarget
from tests.api.calls import Api
from tests.stands.node import Node, connector

ROOT = Path(__file__).resolve().parents[2]
START, END = "<!-- walks: written by `make walks` -->", "<!-- end of walks -->"

_DRIVERS = ("lunshare/drivers/fake", "lunshare/drivers/targets/")


@dataclass
class Walk:
    """The files of one request, in the order in which it enters them."""

    name: str
    package: str
    passed: list[str] = field(default_factory=list)
    stack: set[str] = field(default_factory=set)

    @property
    def spine(self) -> list[str]:
        """The files to read to follow the request, up to the driver's verb."""
        return [
            file
            for file in self.passed
            if (file in self.stack or file.startswith(self.package))
            and not file.startswith(_DRIVERS)
        ]

    @property
    def lines(self) -> int:
        """The lines of the spine."""
        return sum(lines(file) for file in self.spine)


def lines(file: str) -> int:
    """How many lines a file has."""
    return len((ROOT / file).read_text().splitlines())


def _file(frame: FrameType) -> str | None:
    """The path of our own code below the root, else None."""
    return _own(frame.f_code.co_filename)


@functools.cache
def _own(name: str) -> str | None:
    path = Path(name).resolve()
    if path.is_relative_to(ROOT / "lunshare"):
        return str(path.relative_to(ROOT))
    return None


@contextmanager
def traced(walk: Walk, *verbs: CodeType) -> Iterator[None]:
    """Note what is entered inside, and the call stack where a verb runs."""
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, arg: object) -> None:
        file = _file(frame)
        if file is None:
            return
        if file not in walk.passed:
            walk.passed.append(file)
        if frame.f_code in verbs:
            caller: FrameType | None = frame
            while caller is not None:
                walk.stack.add(_file(caller) or "")
                caller = caller.f_back

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


def walk_all() -> list[Walk]:
    """A create, an attach and a detach on a separate node."""
    service = "lunshare/agent/service"
    attachments, volumes = f"{service}/attachments/", f"{service}/volumes/"
    walks = [
        Walk("Attach", attachments),
        Walk("Detach", attachments),
        Walk("Create", volumes),
    ]
    with tempfile.TemporaryDirectory() as path:
        node = Node(Path(path), backends="walks").start()
        api = Api(node.assembly.app)
        made: dict[str, str] = {}

        def create() -> None:
            made["volume"] = api.volume()["id"]

        def attach() -> None:
            row = api.attachment(made["volume"], connector=connector("host"))
            made["attachment"] = row["id"]

        def detach() -> None:
            api("DELETE", f"/attachments/{made['attachment']}")

        # The threads of jobs start with the first create.
        requests: list[tuple[Walk, Callable[[], None]]] = [
            (walks[2], create),
            (walks[0], attach),
            (walks[1], detach),
        ]
        verbs = (FakeTarget.apply, FakeTarget.remove, FakeVolumes.create)
        codes = [each.__code__ for each in (*verbs, JobRunner.run_and_wait)]
        for walk, request in requests:
            with traced(walk, *codes):
                request()
        node.close()
    return walks


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
