# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What many clients, or one that resets its connection, can take from the server."""

from __future__ import annotations

import os
import re
import resource
import select
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lunshare.agent.http import connection_loop, listener
from lunshare.agent.http.connection import Listener
from lunshare.agent.http.sockets import listening_socket
from lunshare.agent.http.tls_records import LimitedTls
from lunshare.agent.listen_addresses import Address
from lunshare.agent.request_scope import PROVEN, Credential
from tests.stands.waiting import until

ROOT = Path(__file__).parents[2]
ASKED = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.0\r\n\r\n"


class GatedServer:
    """A server whose requests wait until ``go``, except health checks."""

    def __init__(self, path: Path) -> None:
        self.path, self.go = str(path), threading.Event()
        self.server = listener.serve(self._app, [Address(self.path)], 1)
        self.connections = self.server.connections
        self.answered = 0

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            assert self.go.wait(20)
        start_response("200 OK", [])
        self.answered += 1
        return [b"x" * 1_000_000] if environ["PATH_INFO"] == "/large" else []

    def client(self, sent: bytes) -> socket.socket:
        """A client that has sent these bytes."""
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(20)
        wire.connect(self.path)
        wire.sendall(sent)
        return wire


@contextmanager
def gated_server(path: Path) -> Iterator[GatedServer]:
    made = GatedServer(path / "api.sock")
    try:
        yield made
    finally:
        made.go.set()
        made.server.stop()


def answer(wire: socket.socket) -> bytes:
    """All that the client gets until the end of its connection."""
    with wire:
        return b"".join(iter(partial(wire.recv, 65536), b""))


def test_a_client_that_went_away_costs_no_processor_time(tmp_path: Path) -> None:
    """epoll reports its end also for events=0, again and again."""
    with gated_server(tmp_path) as running:
        running.client(ASKED % 0).close()
        running.server.start()
        until(lambda: len(running.connections.all) == 1)
        (loop,) = (each for each in threading.enumerate() if each.name == "listener")
        assert loop.ident is not None
        clock = time.pthread_getcpuclockid(loop.ident)
        began, ended = time.clock_gettime(clock), time.monotonic() + 0.5
        until(lambda: time.monotonic() > ended)
        assert time.clock_gettime(clock) - began < 0.2


def test_complete_requests_leave_connections_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_loop, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(connection_loop, "MAX_COMPLETE", 10)
    with gated_server(tmp_path) as running, ExitStack() as stack:
        wires = [stack.enter_context(running.client(ASKED % 0)) for _ in range(60)]
        running.server.start()
        assert answer(running.client(HEALTH)).startswith(b"HTTP/1.1 200 ")
        assert len(running.connections.all) <= 20
        running.go.set()
        firsts = [wire.recv(12) for wire in wires[:10]]
        assert firsts == [b"HTTP/1.1 200"] * 10
        assert wires[-1].recv(12) == b"HTTP/1.1 503"
    # 50 were refused at once.
    assert caplog.text.count("requests are refused") == 1


def test_the_requests_of_a_user_leave_places_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """448 of one member were all that the node took."""
    monkeypatch.setattr(connection_loop, "MAX_COMPLETE", 10)
    go = threading.Event()

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        user = environ["HTTP_AUTHORIZATION"]
        environ[PROVEN] = Credential(user, "HTTP_AUTHORIZATION")
        assert environ["PATH_INFO"] == "/known" or go.wait(20)
        start_response("200 OK", [])
        return []

    server = listener.serve(app, [Address(("127.0.0.1", 0))], 2)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)

        def client(user: str, path: str) -> socket.socket:
            wire = stack.enter_context(socket.create_connection(server.bind_addr, 20))
            head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {user}\r\n\r\n"
            wire.sendall(head.encode())
            return wire

        for user in ("anna", "ben"):
            assert client(user, "/known").recv(12) == b"HTTP/1.1 200"
        for user, refused in (("anna", 3), ("ben", 5)):
            wires = [client(user, "/x") for _ in range(8)]
            until(lambda w=wires, r=refused: len(answered(w)) == r)  # type: ignore[misc]
            heads = {wire.recv(12) for wire in answered(wires)}
            assert heads == {b"HTTP/1.1 503"}
        assert server.connections._running.total() == 8
        go.set()
        # Each request adds them up: nobody stays in it who has none.
        until(lambda: not server.connections._running, seconds=9)


def answered(wires: list[socket.socket]) -> list[socket.socket]:
    """Those that can be read."""
    return select.select(wires, [], [], 0)[0]


def test_complete_requests_count_as_stored_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_loop, "MAX_BUFFERED", 200_000)
    with gated_server(tmp_path) as running, ExitStack() as stack:
        running.server.start()
        first = running.client(ASKED % 50_000 + b"x" * 50_000)
        wires = [stack.enter_context(first)]
        for number in range(1, 20):
            until(lambda number=number: len(running.connections.all) >= min(number, 3))  # type: ignore[misc]
            wire = running.client(ASKED % 50_000)
            wires.append(stack.enter_context(wire))
            with suppress(ConnectionError):  # it may be closed meanwhile
                wire.sendall(b"x" * 50_000)
        with suppress(ConnectionError):
            assert wires[-1].recv(12) in (b"", b"HTTP/1.1 503")
        stored = sum(each.held for each in list(running.connections.all))
        assert stored <= 300_000
        assert answer(running.client(HEALTH)).startswith(b"HTTP/1.1 200 ")


def test_answers_that_clients_do_not_read_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_loop, "MAX_UNREAD", 5_000_000)
    with gated_server(tmp_path) as running, ExitStack() as stack:
        running.go.set()
        running.server.start()
        asked = b"GET /large HTTP/1.0\r\n\r\n"
        wires = [stack.enter_context(running.client(asked)) for _ in range(12)]
        until(lambda: running.answered == 12)
        until(lambda: len(running.connections.all) <= 5)
        came = [len(answer(wire)) for wire in wires]
        assert 1 <= sum(each > 1_000_000 for each in came) <= 5


def test_the_user_with_the_most_unread_answers_loses_them_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that had waited longest were closed, whoever had the most."""
    monkeypatch.setattr(connection_loop, "MAX_UNREAD", 5_000_000)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        user = environ["HTTP_AUTHORIZATION"]
        environ[PROVEN] = Credential(user, "HTTP_AUTHORIZATION")
        start_response("200 OK", [])
        return [bytes(1_500_000)] if environ["PATH_INFO"] == "/large" else []

    server = listener.serve(app, [Address(("127.0.0.1", 0))], 1)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        wires = {"ben": 1, "anna": 8}
        for user, count in wires.items():
            head = f"HTTP/1.1\r\nHost: a\r\nAuthorization: {user}\r\n\r\n"
            for _ in range(count):
                wire = stack.enter_context(socket.create_connection(server.bind_addr))
                wire.sendall(f"GET /known {head}".encode())
                assert wire.recv(12) == b"HTTP/1.1 200"
                wire.sendall(f"GET /large {head}".encode())
        until(lambda: len(server.connections.all) <= 3)
        users = [connection.user for connection in server.connections.all]
    assert "ben" in users


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_that_was_sent_or_given_up_is_not_kept(
    tmp_path: Path, reads: bool
) -> None:
    """A connection kept its last answer: 88 MB of 20 clients that had gone."""
    with gated_server(tmp_path) as running, ExitStack() as stack:
        running.go.set()
        running.server.start()
        asked = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        wires = [stack.enter_context(running.client(asked)) for _ in range(12)]
        until(lambda: running.answered == 12)
        for wire in wires:
            if reads:
                read_answer(wire)
            else:
                wire.close()
        until(lambda: tracemalloc.get_traced_memory()[0] < 3_000_000, seconds=9)
        until(lambda: len(running.connections.all) == (12 if reads else 0))


def read_answer(wire: socket.socket) -> None:
    """Read an answer with a million bytes, and leave the connection open."""
    size = 0
    while size < 1_000_000:
        size += len(wire.recv(65536))


def test_the_kernel_takes_little_of_an_answer_before_its_client_reads() -> None:
    """It would take up to 4 MiB, which the thread of all connections copies."""
    server = listener.serve(_large, [Address(("127.0.0.1", 0))], 1)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        wire = stack.enter_context(socket.create_connection(server.bind_addr, 20))
        wire.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: any(client.unread for client in server.connections.all))
        (connection,) = server.connections.all
        buffered = connection.socket.get_write_buffer_size() + len(connection._unsent)
        assert buffered > 4 * 2**20 - 1_000_000


def _large(environ: object, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [bytes(4 * 2**20)]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """A process that cannot open anything."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack, open(os.devnull, "rb") as null:
        resource.setrlimit(resource.RLIMIT_NOFILE, (null.fileno() + 1, limits[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(null.fileno()))
        yield


@pytest.mark.parametrize("waiting", [0, 3])
def test_health_checks_are_answered_without_descriptors(
    tmp_path: Path, waiting: int
) -> None:
    with gated_server(tmp_path) as running, ExitStack() as stack:
        running.server.start()
        wires = [stack.enter_context(running.client(b"G")) for _ in range(waiting)]
        until(lambda: len(running.connections.all) == len(wires))
        checks = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(5)]
        with no_descriptors():
            for wire in checks:
                wire.settimeout(20)
                wire.connect(running.path)
                wire.sendall(HEALTH)
                assert answer(wire).startswith(b"HTTP/1.1 200 ")


class Flooded(socket.socket):
    """A listening socket on which another client waits at any time."""

    dry = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the connection of a client that has gone."""
        if self.dry:
            raise BlockingIOError
        mine, other = socket.socketpair()
        other.close()
        return mine, ""


def test_new_clients_do_not_delay_those_that_are_connected(tmp_path: Path) -> None:
    addresses = [Address(str(tmp_path / name)) for name in ("a.sock", "b.sock")]
    first, second = (listening_socket(str(each.bind)) for each in addresses)
    flooded = Flooded(fileno=second.detach())
    made = [
        Listener(_no_content, address, 1000, None, sock)
        for address, sock in zip(addresses, (first, flooded), strict=True)
    ]
    server = listener.HttpServer(made, 1)
    with socket.socket(socket.AF_UNIX) as flood, socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(10)
        flood.connect(str(addresses[1].bind))
        wire.connect(str(addresses[0].bind))
        server.start()
        try:
            wire.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert wire.recv(12) == b"HTTP/1.1 204"
        finally:
            flooded.dry = True
            server.stop()


def _no_content(environ: object, start_response: Any) -> list[bytes]:
    start_response("204 No Content", [])
    return []


@pytest.mark.parametrize("name", ["lunshared", "lunshare-helper", "lunshare-backup"])
def test_units_have_a_limit_of_memory(name: str) -> None:
    unit = (ROOT / "systemd" / f"{name}.service").read_text()
    assert re.search(r"^MemoryMax=\d+[GM]$", unit, re.M)


def test_clients_leave_descriptors_for_the_database_and_the_helper() -> None:
    """The API and the metrics have their own connections. systemd's default is 1024."""
    unit = (ROOT / "systemd" / "lunshared.service").read_text()
    found = re.search(r"^LimitNOFILE=(\d+)$", unit, re.M)
    assert (
        int(found[1] if found else 1024) >= 2 * connection_loop.MAX_CONNECTIONS + 1024
    )


def test_connections_of_known_clients_are_closed_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strangers that open connections ended those that known clients keep."""
    monkeypatch.setattr(connection_loop, "MAX_CONNECTIONS", 20)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ[PROVEN] = Credential("anna", "HTTP_AUTHORIZATION")
        start_response("200 OK", [])
        return [b"x"]

    server = listener.serve(app, [Address(("127.0.0.1", 0))], 1)
    server.start()
    asked = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic x\r\n\r\n"
    with ExitStack() as stack:
        stack.callback(server.stop)
        wires = (
            stack.enter_context(socket.create_connection(server.bind_addr, 20))
            for _ in range(61)
        )
        client = next(wires)
        client.sendall(asked)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        for wire in list(wires)[:40]:
            with suppress(ConnectionError):
                assert wire.recv(1) == b""
        client.sendall(asked)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_connection_with_tls_has_a_small_buffer() -> None:
    """asyncio's own is 256 KiB, for each of MAX_CONNECTIONS."""
    assert LimitedTls.max_size * connection_loop.MAX_CONNECTIONS <= 8 * 2**20
