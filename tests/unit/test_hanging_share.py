# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A share's server whose work has no end delays only its own share.

NFS needs a server that tests do not have. So the one system call that hangs is
replaced.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lunshare.drivers.conformance.fixtures import MIB, new_volume
from lunshare.drivers.errors import DeadlineExceeded, DriverError, Stalled
from lunshare.helper.nfs import answering, contents
from lunshare.helper.thread_limits import THREADS
from tests.conformance.directory_shares import Node
from tests.stands.waiting import until
from tests.unit.nfs_fixtures import build, driver, files, mounts, node

__all__ = ["build", "driver", "files", "mounts", "node"]

SIZE = 2 * MIB
NEW, SNAPSHOT = f"volume-{uuid.uuid4()}", f"_snapshot-{uuid.uuid4()}"


class Asked:
    """A request in a thread of its own, and how it ended."""

    def __init__(self, node: Node, verb: str, timeout: float, **given: Any) -> None:
        self.error: DriverError | None = None
        self._thread = threading.Thread(
            target=self._ask, args=(node, verb, timeout, given)
        )
        self._thread.start()

    def _ask(
        self, node: Node, verb: str, timeout: float, given: dict[str, Any]
    ) -> None:
        try:
            node.call(verb, timeout=timeout, **given)
        except DriverError as error:
            self.error = error

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


class Server:
    """What hangs at the server, until it is let go."""

    def __init__(self) -> None:
        self.entered, self.may_continue = threading.Event(), threading.Event()

    def hang(self, *_given: object) -> None:
        self.entered.set()
        assert self.may_continue.wait(60)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.may_continue.set()
    until(lambda: not THREADS._waiting)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes, and how often a server is asked, are short here."""
    monkeypatch.setattr(answering, "ANSWERING_SECONDS", 1.0)
    monkeypatch.setattr(answering, "_CHECK_SECONDS", 0.1)


def cloned(files: Path, name: str = NEW, **changed: Any) -> dict[str, Any]:
    given = {"point": str(files), "name": name, "source": SNAPSHOT, "size": SIZE}
    given |= {"preallocate": False, "mode": "0600", "replace": False, "clone": True}
    return given | changed


# a server that answers, but whose request has no end


@pytest.mark.usefixtures("impatient")
def test_clone_without_an_end_fails_while_the_server_answers(
    driver, files, node, server, monkeypatch
) -> None:
    """FICLONE shows no progress and cannot be interrupted."""
    (files / SNAPSHOT).write_bytes(bytes(SIZE))

    def ficlone(*_given: object) -> None:
        server.hang()

    monkeypatch.setattr(contents, "fcntl", SimpleNamespace(ioctl=ficlone))
    clone = Asked(node, "share.copy", 0.5, **cloned(files))
    assert server.entered.wait(10)
    began = time.monotonic()
    assert clone.ended(10)
    assert isinstance(clone.error, Stalled)
    assert time.monotonic() - began >= 1.0  # it had its time
    # Its thread is counted, its name is locked, and other names are not.
    assert THREADS._waiting[str(files)] == 1
    again = Asked(node, "share.delete", 0.3, point=str(files), name=NEW)
    assert again.ended(10)
    assert isinstance(again.error, DeadlineExceeded)
    driver.create(new_volume(SIZE))
    # When the server is done, the file that nobody waits for is removed.
    server.may_continue.set()
    until(lambda: not THREADS._waiting)
    assert not (files / NEW).exists()
    assert not (files / f"{NEW}.new").exists()


@pytest.mark.usefixtures("impatient")
def test_delete_without_an_end_fails_while_the_server_answers(
    driver, files, node, server, monkeypatch
) -> None:
    volume, unlink = new_volume(SIZE), os.unlink
    driver.create(volume)

    def hanging(*given: Any, **more: Any) -> None:
        server.hang()
        unlink(*given, **more)

    monkeypatch.setattr(os, "unlink", hanging)
    delete = Asked(node, "share.delete", 0.5, point=str(files), name=volume.name)
    assert server.entered.wait(10)
    assert delete.ended(10)
    assert isinstance(delete.error, Stalled)


@pytest.mark.usefixtures("impatient")
def test_threads_that_ask_a_server_are_counted(
    driver, files, node, server, monkeypatch
) -> None:
    """Each clone has one more thread, and that hangs as well when the server does."""
    (files / SNAPSHOT).write_bytes(bytes(SIZE))
    kernel = SimpleNamespace(ioctl=server.hang)
    monkeypatch.setattr(contents, "fcntl", kernel)
    monkeypatch.setattr(os, "fstatvfs", server.hang)
    clone = Asked(node, "share.copy", 0.3, **cloned(files))
    assert clone.ended(10)
    assert isinstance(clone.error, Stalled)
    asking = [each for each in threading.enumerate() if each.name == "server check"]
    assert THREADS._waiting[str(files)] == 1 + len(asking) == 2


def test_revert_that_was_given_up_does_not_replace_the_file_later(
    driver, files, node, server, monkeypatch
) -> None:
    """Meanwhile the volume may be exported: its host would write to a removed file."""
    (files / SNAPSHOT).write_bytes(b"new".ljust(SIZE, b"."))
    (files / NEW).write_bytes(b"old".ljust(SIZE, b"."))
    fsync, flushed = os.fsync, list[int]()

    def counted(file: int) -> None:
        flushed.append(file)
        fsync(file)

    revert = cloned(files, replace=True, clone=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted)
        node.call("share.copy", **revert)
    last = len(flushed) - 1  # of the file; the directory's follows
    (files / NEW).write_bytes(b"old".ljust(SIZE, b"."))
    before = (files / NEW).stat().st_ino
    flushed.clear()

    def late(file: int) -> None:
        counted(file)
        if len(flushed) == last:
            server.hang()

    monkeypatch.setattr(os, "fsync", late)
    given_up = Asked(node, "share.copy", 0.5, **revert)
    assert given_up.ended(10)
    assert isinstance(given_up.error, Stalled)
    assert server.entered.is_set()
    server.may_continue.set()
    until(lambda: not THREADS._waiting)
    assert (files / NEW).stat().st_ino == before
    assert not (files / f"{NEW}.new").exists()
