# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A retried request waits for the first one, also when that was a killed helper's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import DeadlineExceeded
from lunshare.drivers.helper_client import Helper
from lunshare.drivers.protocol import frames
from lunshare.helper.disk_locks import DiskLocks
from lunshare.helper.lio.backstores import is_exported
from lunshare.helper.named_locks import Locks
from lunshare.helper.nfs.files import OpenShare
from lunshare.helper.nfs.files import create as create_file
from lunshare.helper.nfs.share_requests import NewFile
from lunshare.helper.verbs import NoteProgress
from tests.conformance.directory_shares import Directories, ShareHelper
from tests.stands.waiting import until
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

# A helper that is killed while a command that inherited the lock continues.
_KILLED = """
import os, subprocess, sys
from lunshare.helper.named_locks import Locks
from lunshare.helper.disk_locks import DiskLocks
with Locks(DiskLocks(sys.argv[1])).hold("disk", 10) as lock:
    child = subprocess.Popen(["sleep", "60"], stdin=lock.file, stdout=2)
    print(child.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_lock_of_a_killed_helper_lasts_as_long_as_its_command(directory: Path) -> None:
    line = [sys.executable, "-c", _KILLED, str(directory)]
    killed = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True)
    assert killed.returncode == -9
    locks = Locks(DiskLocks(str(directory)))
    with pytest.raises(DeadlineExceeded, match="an earlier change of disk"):
        locks.acquire("disk", 0.2)
    with locks.hold("another", 10):
        pass
    os.kill(int(killed.stdout), signal.SIGKILL)
    with locks.hold("disk", 10):
        assert (directory / "disk").stat().st_mode & 0o777 == 0o600
    assert locks._held == {}
    assert list(directory.iterdir()) == []


def test_lock_of_a_running_helper_lasts_as_long_as_its_command(directory: Path) -> None:
    """The helper has released it; the command that inherited it has not."""
    first, second = (Locks(DiskLocks(str(directory))) for _ in range(2))
    with first.hold("disk", 10) as lock:
        child = subprocess.Popen(["sleep", "60"], stdin=lock.file)
    for locks in (first, second):
        with pytest.raises(DeadlineExceeded):
            locks.acquire("disk", 0.1)
    child.kill()
    child.wait()
    with second.hold("disk", 10):
        pass
    assert list(directory.iterdir()) == []


def test_next_helper_reports_the_work_that_still_runs(directory: Path) -> None:
    first, ended = DiskLocks(str(directory)), list[str]()
    lock = first.acquire("disk", 0, "the copy of a disk")
    first.release("free", first.acquire("free", 0, "nothing"))
    assert DiskLocks(str(directory)).still_held(ended.append) == ("the copy of a disk",)
    assert ended == []
    first.release("disk", lock)
    until(lambda: ended)
    assert ended == ["the copy of a disk"]


def test_names_of_any_length_have_locks_of_their_own(directory: Path) -> None:
    locks, long = DiskLocks(str(directory)), "/" + "x" * 1000
    one, other = locks.acquire(long, 0), locks.acquire(long + "x", 0)
    with pytest.raises(DeadlineExceeded):
        locks.acquire(long, 0)
    locks.release(long, one)
    locks.release(long + "x", other)
    assert list(directory.iterdir()) == []


def test_a_hanging_step_holds_the_lock_against_the_next_helper(directory: Path) -> None:
    first, kernel = Locks(DiskLocks(str(directory))), threading.Event()
    with pytest.raises(DeadlineExceeded), first.hold("disk", 0.1) as lock:
        lock.run_step("ending", kernel.wait)
    second = Locks(DiskLocks(str(directory)))
    with pytest.raises(DeadlineExceeded):
        second.acquire("disk", 0.1)
    kernel.set()
    with second.hold("disk", 10):
        pass


def test_a_link_in_the_place_of_a_lock_is_not_followed(directory: Path) -> None:
    locks, target = DiskLocks(str(directory)), directory.with_name("target")
    (directory / "disk").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        locks.acquire("disk", 0)
    assert not target.exists()


def make(mounts: Directories, files: Path, name: str, meanwhile: NoteProgress) -> None:
    """The helper's verb; ``meanwhile`` is called while it fills ``<name>.new``."""
    [mount] = mounts.table()
    with mounts.enter(mount) as directory:
        share = OpenShare(directory, mount, mounts, is_exported, meanwhile)
        create_file(share, NewFile(str(files), name, MIB, preallocate=True))


def test_an_incomplete_file_never_gets_the_name_of_a_volume(
    driver, files, mounts
) -> None:
    """A killed helper's thread would give the name to the file of the next helper."""
    volume = new_volume(MIB)

    def another(_done: int) -> None:
        (files / f"{volume.name}.new").unlink()
        (files / f"{volume.name}.new").write_bytes(b"half")

    with pytest.raises(OSError, match="another process has replaced"):
        make(mounts, files, volume.name, another)
    assert [path.name for path in files.iterdir()] == [f"{volume.name}.new"]
    assert driver.create(volume).size == MIB


def test_a_file_that_appears_meanwhile_is_not_replaced(driver, files, mounts) -> None:
    """A host may have written to it since."""
    volume = new_volume(MIB)

    def another(_done: int) -> None:
        (files / volume.name).write_bytes(b"a host's")

    with pytest.raises(OSError, match="another process has created it"):
        make(mounts, files, volume.name, another)
    assert (files / volume.name).read_bytes() == b"a host's"
    assert [path.name for path in files.iterdir()] == [volume.name]


def test_a_retry_at_the_next_helper_waits_for_the_first_request(
    tmp_path, driver, files, mounts
) -> None:
    """Two helpers at once, as after a kill in the middle of a write."""
    volume, entered, again = new_volume(MIB), threading.Event(), threading.Event()
    name = {"point": str(files), "name": volume.name}
    made = {**name, "size": MIB, "preallocate": False, "mode": "0600"}

    def server(source: str) -> None:
        entered.set()
        again.wait(60)

    mounts.server = server
    helpers = [ShareHelper(tmp_path / each, mounts) for each in ("a", "b")]
    first = threading.Thread(
        target=lambda: helpers[0].client.call("share.create", timeout=60, **made)
    )
    first.start()
    assert entered.wait(10)
    mounts.server = lambda source: None
    with pytest.raises(DeadlineExceeded):
        helpers[1].client.call("share.create", timeout=0.3, **made)
    assert list(files.iterdir()) == []
    again.set()
    first.join(10)
    assert helpers[1].client.call("share.create", timeout=10, **made) == MIB
    for helper in helpers:
        helper.end()


def test_a_driver_retries_its_verb_when_the_helper_was_killed(driver, node, tmp_path):
    """The outcome is unknown: the verb is retried, and reads the state first."""
    path, volume = tmp_path / "killed", new_volume(MIB)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    next_one, asked = node._helper, list[str]()

    def live() -> None:
        """A helper that is killed in its first change."""
        connection, _ = listener.accept()
        with listener, connection:
            while True:
                message = frames.receive(connection)
                asked.append(message["call"])
                if message["call"] == "share.create":
                    node._helper = next_one
                    return
                value = next_one.call(message["call"], **message["arguments"])
                frames.send(connection, {"value": value})

    killed = threading.Thread(target=live)
    killed.start()
    node._helper = Helper(str(path))
    node.verbs.clear()
    assert driver.create(volume).size == MIB
    killed.join(10)
    assert asked[-1] == "share.create"
    assert node.verbs.count("share.create") == 2
