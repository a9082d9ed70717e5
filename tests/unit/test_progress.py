# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Work on bytes is limited by its progress: it may take long, but not stop."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lunshare.drivers import migration
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.errors import DriverError, Stalled
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames, messages
from lunshare.drivers.values import GIB, Disk, DiskKind, Snapshot
from lunshare.helper.copying import CopyVerbs
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.named_locks import Locks
from lunshare.helper.served import Served
from lunshare.helper.server import Server
from lunshare.helper.verbs import LongVerb, NoteProgress, Report
from tests.stands.waiting import until
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

TIB = 1024 * GIB
LIMIT = 1.5  # seconds
SERVED = Served(directories=("/",))


class Working:
    """A helper with one long verb, whose work is the test's."""

    def __init__(self, path: Path, work: Callable[[NoteProgress], object]) -> None:
        self._locks, self._work = Locks(), work
        self.path = path
        self.ended = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self.server = Server(
            self._listener, {"work": LongVerb(self._do)}, {os.getuid()}
        )
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def _do(self, _: Mapping[str, Any], seconds: float, report: Report) -> str:
        with self._locks.hold("disk", seconds, report=report) as lock:
            lock.run_step("the work", self._run, lock.progress("the work"))
        return "done"

    def _run(self, note_progress: NoteProgress) -> None:
        try:
            self._work(note_progress)
        finally:
            self.ended.set()

    def end(self) -> None:
        self.server.close()
        self._thread.join(10)


@contextmanager
def working(path: Path, work: Callable[[NoteProgress], object]) -> Iterator[Working]:
    made = Working(path, work)
    try:
        yield made
    finally:
        made.end()


def test_work_with_progress_may_exceed_its_timeout(tmp_path: Path) -> None:
    """Its client would have given up one second behind the timeout."""

    until = time.monotonic() + LIMIT + 1.5

    def work(note_progress: NoteProgress) -> None:
        while time.monotonic() < until:
            time.sleep(LIMIT / 10)  # what the disk takes for it
            note_progress(512)

    with working(tmp_path / "socket", work) as helper:
        client = Helper(str(helper.path))
        assert client.call("work", timeout=LIMIT) == "done"
        assert client.call("work", timeout=LIMIT) == "done"  # nothing is left behind
        client.close()


def test_work_without_progress_fails_and_reports_its_bytes(tmp_path: Path) -> None:
    hung = threading.Event()

    def work(note_progress: NoteProgress) -> None:
        note_progress(4096)
        hung.wait(60)
        note_progress(4096)

    with working(tmp_path / "socket", work) as helper:
        asked = messages.request("work", 0.2, {})
        answer = helper.server.answer(asked)
        assert answer == {
            "error": Stalled.code,
            "fields": {"what": "the work", "seconds": 0.2, "done": 4096},
        }
        assert not helper.ended.is_set()
        hung.set()
        assert helper.ended.wait(10)  # it ends when no client waits for it
    assert str(Stalled("it", 0.2, 4096)).endswith("for 0.2 seconds, after 4096 bytes")


def test_work_ends_and_unlocks_its_disk_when_the_client_is_gone(tmp_path: Path) -> None:
    steps: list[int] = []

    def work(note_progress: NoteProgress) -> None:
        while len(steps) < 10_000:
            time.sleep(0.01)  # what the disk takes for it
            note_progress(1)
            steps.append(1)

    with working(tmp_path / "socket", work) as helper:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(helper.path))
            asked = messages.request("work", 60, {})
            frames.send(client, asked)
            assert frames.receive(client)["progress"] == 0
            assert frames.receive(client)["progress"] > 0
        assert helper.ended.wait(10)
        assert len(steps) < 10_000
        with helper._locks.hold("disk", 10):
            pass


def test_work_whose_client_ended_in_the_queue_does_not_start(tmp_path: Path) -> None:
    """Its retry has finished, and a host has written to the disk since."""
    started: list[None] = []
    with working(tmp_path / "socket", lambda _: started.append(None)) as helper:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with helper._locks.hold("disk", 10), client:
            client.connect(str(helper.path))
            frames.send(client, messages.request("work", 60, {}))
            until(lambda: helper._locks._held["disk"][1] == 2)
        until(lambda: not helper._locks._held)
        assert started == []
        retry = Helper(str(helper.path))
        assert retry.call("work", timeout=LIMIT) == "done"
        assert started == [None]
        retry.close()


# 4 TiB


@pytest.mark.parametrize("clone", [True, False])
def test_volume_of_4_tib_is_created_copied_reverted_and_migrated(
    build, driver, mounts, node, clone
) -> None:
    """Only some of it holds bytes: the last one among them."""
    mounts.total = 64 * TIB
    driver = build(nfs_clone=clone)
    volume = new_volume(4 * TIB)
    disk = driver.create(volume)
    marks = {0: b"first", 2 * TIB + 4096: b"middle", 4 * TIB - 4: b"last"}
    _write(disk, marks)
    snapshot = Snapshot(str(uuid.uuid4()), volume.id, 4 * TIB)
    driver.create_snapshot(snapshot)
    _write(disk, dict.fromkeys(list(marks)[:2], b"other"))
    assert _read(driver.revert(snapshot), marks) == marks
    other = driver.create_from(new_volume(4 * TIB + GIB), snapshot)
    assert _read(other, marks) == marks
    moved = driver.create(new_volume(4 * TIB + GIB))
    migration.fill(node, moved, other, 30)
    assert (_read(moved, marks), moved.size) == (marks, 4 * TIB + GIB)


def _write(disk: Disk, marks: Mapping[int, bytes]) -> None:
    file = os.open(disk.path, os.O_WRONLY)
    for offset, data in marks.items():
        os.pwrite(file, data, offset)
    os.close(file)


def _read(disk: Disk, marks: Mapping[int, bytes]) -> dict[int, bytes]:
    file = os.open(disk.path, os.O_RDONLY)
    found = {
        offset: os.pread(file, len(data), offset) for offset, data in marks.items()
    }
    os.close(file)
    return found


def test_a_copy_of_an_unlimited_size_is_accepted(driver, node) -> None:
    """The old deadline depended on the size, and was at most a day (86485 s)."""
    timeouts: list[float] = []

    class Root:
        def run(self, *argv: str, timeout: float = 60.0) -> str:
            raise AssertionError(argv)

        def call(self, verb: str, *, timeout: float = 30.0, **given: Any) -> Any:
            timeouts.append(timeout)
            return node.call(verb, timeout=timeout, **given)

    large = Disk(str(uuid.uuid4()), "/nowhere/x", 4 * TIB, DiskKind.FILE)
    with pytest.raises(DriverError):
        migration.fill(Root(), large, large, 7)
    assert timeouts == [7]


def test_long_copy_is_not_stopped(tmp_path: Path) -> None:
    """It reports its progress, so its client continues to wait."""
    identity = str(uuid.uuid4())
    source, target = (
        tmp_path / f"volume-{identity}",
        tmp_path / "b" / f"volume-{identity}",
    )
    target.parent.mkdir()
    source.write_bytes(os.urandom(24 * 1024**2))
    target.touch()
    os.truncate(target, 24 * 1024**2)
    seen: list[int] = []
    given = {
        name: asdict(Disk(identity, str(path), 24 * 1024**2, DiskKind.FILE))
        for name, path in {"source": source, "target": target}.items()
    }
    CopyVerbs(SERVED, is_exported).copy(given, 60, seen.append)
    assert seen == sorted(seen)
    assert target.read_bytes() == source.read_bytes()
