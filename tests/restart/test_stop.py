# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How long the end of the daemon takes while everything hangs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lunshare.agent.assemble import IDLE_SECONDS
from lunshare.agent.http import listener
from lunshare.agent.listen_addresses import Address
from lunshare.agent.main import close
from lunshare.agent.timers import Timer
from tests.restart.killing import attach_request
from tests.stands.node import CTX, Node
from tests.stands.waiting import until

STOP_WAIT = 1.0


class Hung:
    """Work that has started and does not end before the test does."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.released = threading.Event()

    def __call__(self, *_: object) -> list[bytes]:
        self.started.release()
        self.released.wait()
        return []

    def step(self, _volume: str) -> None:
        self()


@pytest.fixture
def hung() -> Iterator[Hung]:
    made = Hung()
    yield made
    made.released.set()


def test_the_end_takes_stop_wait_once_whatever_hangs(
    hung: Hung, tmp_path: Path
) -> None:
    node = Node(tmp_path).start()
    server = listener.serve(hung, [Address(("127.0.0.1", 0))], threads=4)
    timer = Timer("hung", 0.01, hung)
    assembly = node.assembly
    assembly.timers = {"hung": timer}
    for each in (server, timer):
        each.start()
    job = node.assembly.jobs.submit(hung.step, "volume", "fake")
    with socket.create_connection(server.bind_addr) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(3):
            assert hung.started.acquire(timeout=20)
        started = time.monotonic()
        close(assembly, server, STOP_WAIT)
        took = time.monotonic() - started
    assert STOP_WAIT <= took < STOP_WAIT + IDLE_SECONDS + 0.4
    hung.released.set()
    job.result(timeout=20)
    until(lambda: not timer.alive)
    node.close()


def test_an_attach_whose_answer_was_lost_at_the_end_can_be_repeated(
    hung: Hung, tmp_path: Path
) -> None:
    node = Node(tmp_path).start()
    new = attach_request(node.plain_volume().id, "first", "rw")
    ids = list[str]()

    def attach(*_: object) -> list[bytes]:
        ids.append(node.services.attachments.create(CTX, new).id)
        return hung()

    server = listener.serve(attach, [Address(("127.0.0.1", 0))], threads=4)
    server.start()
    with socket.create_connection(server.bind_addr) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert hung.started.acquire(timeout=20)
        close(node.assembly, server, 0.1)
    second = Node(tmp_path).start()
    ids.append(second.services.attachments.create(CTX, new).id)
    second.close()
    assert ids[0] == ids[1]


def test_the_end_is_immediate_where_nothing_hangs(tmp_path: Path) -> None:
    node = Node(tmp_path).start()
    started = time.monotonic()
    assert node.assembly.close(STOP_WAIT)
    assert time.monotonic() - started < STOP_WAIT


def test_the_end_does_not_wait_for_a_disk_of_the_database_that_hangs(
    hung: Hung, tmp_path: Path
) -> None:
    node = Node(tmp_path).start()

    def write() -> None:
        with node.assembly.database.writing():
            hung()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert hung.started.acquire(timeout=20)
    ended = list[bool]()
    closing = threading.Thread(
        target=lambda: ended.append(node.assembly.close(0)), daemon=True
    )
    started = time.monotonic()
    closing.start()
    closing.join(20)
    took = time.monotonic() - started
    hung.released.set()
    writer.join(20)
    assert ended == [False]
    assert took < IDLE_SECONDS + 0.4
    until(lambda: all(each.name != "database" for each in threading.enumerate()))
