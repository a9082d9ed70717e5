# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What many clients, or one that resets its connection, can take from the server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lunshare.agent import listener
from lunshare.agent.listen_addresses import Address
from tests.api.calls import until

ASKED = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


class Node:
    """A server whose requests wait until ``go``, except health checks."""

    def __init__(self, path: Path, threads: int = 2) -> None:
        self.path, self.go = str(path), threading.Event()
        self.server = listener.serve(self._app, [Address(self.path)], threads)
        self.loop = self.server.loop

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            assert self.go.wait(20)
        start_response("200 OK", [])
        return []

    def client(self, sent: bytes) -> socket.socket:
        """A client that has sent these bytes."""
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(20)
        wire.connect(self.path)
        wire.sendall(sent)
        return wire


@contextmanager
def node(path: Path) -> Iterator[Node]:
    made = Node(path / "api.sock")
    try:
        yield made
    finally:
        made.go.set()
        made.server.stop()


def test_a_client_that_went_away_costs_no_processor_time(tmp_path: Path) -> None:
    """epoll reports its end also for events=0, again and again."""
    with node(tmp_path) as running:
        running.client(ASKED % 0).close()
        running.server.start()
        until(lambda: len(running.loop._all) == 1)
        (loop,) = (each for each in threading.enumerate() if each.name == "listener")
        assert loop.ident is not None
        clock = time.pthread_getcpuclockid(loop.ident)
        began, ended = time.clock_gettime(clock), time.monotonic() + 0.5
        until(lambda: time.monotonic() > ended)
        assert time.clock_gettime(clock) - began < 0.2


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
    made = [listener.Listener(_no_content, each, 1000, None) for each in addresses]
    made[1].socket = flooded = Flooded(fileno=made[1].socket.detach())
    server = listener.Server(made, 1)
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
