# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where the API listens, and who may be let in there without a password."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cheroot import wsgi

from lunshare.agent.errors import StartupError
from lunshare.agent.http_connections import Connection, Loop
from lunshare.agent.worker_turns import Workers

_FORM = "give HOST:PORT, [IPV6]:PORT or unix:PATH"
_BACKLOG = 256
#: Threads that run Python at once; one that waits does not count (agent/worker_turns).
_AT_ONCE = 1
_HEADERS_MAX = 64 * 1024
_OWNER_AND_GROUP = 0o660
_LANE = tuple(
    f"{method} {path} HTTP/1.".encode()
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/healthcheck", "/readyz")
)

App = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Address:
    """A checked listen address."""

    bind: tuple[str, int] | str

    @property
    def private(self) -> bool:
        """Whether only this machine's own processes can reach it."""
        if isinstance(self.bind, str):
            return True
        try:
            return ipaddress.ip_address(self.bind[0]).is_loopback
        except ValueError:
            return False  # a name may mean another address tomorrow

    def __str__(self) -> str:
        if isinstance(self.bind, str):
            return f"unix:{self.bind}"
        host, port = self.bind
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(text: str, auth_strategy: str) -> Address:
    """Read the option ``listen``.

    :raises StartupError: it has no form that is known, or would let anyone in.
    """
    address = _parse(text)
    if auth_strategy == "noauth" and not address.private:
        raise StartupError(
            f"listen = {text} with auth_strategy = noauth would make everyone who"
            " reaches it an administrator: listen on a loopback address such as"
            " 127.0.0.1:8776, or on unix:PATH"
        )
    return address


def _parse(text: str) -> Address:
    if text.startswith("unix:/"):
        return Address(text.removeprefix("unix:"))
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isdecimal() and int(port) < 65536):
        raise StartupError(f"listen = {text} is not valid: {_FORM}")
    if host == "localhost":
        host = "127.0.0.1"
    return Address((host, int(port)))


class Server(wsgi.Server):
    """A server whose threads never wait for a client, nor take another's socket.

    Cheroot reads requests and calls the app; the connections are in our own loop.
    Its own (11.1) gives a thread to each client that has sent a first byte, and
    removes whatever stands at the path of a unix socket, another daemon's socket
    or a file, and lets everyone connect to what it makes there.
    """

    def __init__(self, app: App, address: Address, threads: int, max_body: int) -> None:
        super().__init__(address.bind, app, request_queue_size=_BACKLOG)
        self.address = address
        self._max_body = max_body
        self._thread: threading.Thread | None = None
        self.requests = Workers("request", threads, _AT_ONCE, self._answer)

    def prepare(self) -> None:
        """Bind, listen, and start the threads.

        :raises OSError: the address cannot be had.
        """
        super().prepare()
        vars(self).pop("_connections").close()  # cheroot's; ours is the loop
        self.loop = Loop(self.socket, self._connect, self.requests.turns.put, _lane)

    def start(self) -> None:
        """Serve requests in a thread of its own, until ``stop``."""
        self._thread = threading.Thread(target=self.serve, name="listener", daemon=True)
        self._thread.start()

    def serve(self) -> None:
        """Serve requests until ``stop``."""
        self.loop.run(self.requests.turns.drop_late)

    def stop(self, seconds: float = 5.0) -> None:
        """Wait up to ``seconds`` for requests in progress, then close connections.

        Answers that their clients have not fetched by then are lost.
        """
        if self.ready:
            self.ready = False
            self.loop.refuse()
            self.requests.stop(time.monotonic() + seconds)
            self.loop.stop()
            self.socket.close()
            if self._thread is not None:
                self._thread.join()

    def bind_unix_socket(self, bind_addr: str) -> socket.socket:
        """Bind where nothing is, or where a killed daemon left its socket."""
        _make_room(bind_addr)
        self.socket = made = socket.socket(socket.AF_UNIX)
        os.fchmod(made.fileno(), _OWNER_AND_GROUP)  # and no more, from the first
        made.bind(bind_addr)
        os.chmod(bind_addr, _OWNER_AND_GROUP)  # whatever the umask took
        return made

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Whether this answer is not the last one of its connection."""
        serving: bool = self.ready
        return serving

    def _connect(self, client: socket.socket, address: Any) -> Connection:
        made = Connection(self, client, _HEADERS_MAX, self._max_body)
        if isinstance(address, tuple):
            made.remote_addr, made.remote_port = address[:2]
        return made

    def _answer(self, connection: Connection) -> None:
        """A worker's part."""
        connection.answer()
        self.loop.put(connection)


def serve(app: App, address: Address, threads: int, max_body: int = 2**20) -> Server:
    """Bind; the caller runs ``serve()`` on what is returned, and ``stop()``.

    ``max_body`` is the largest request body in bytes that the app takes.

    :raises StartupError: the address cannot be had.
    """
    server = Server(app, address, threads, max_body)
    server.error_log = _quiet  # type: ignore[method-assign,assignment]
    server.max_request_header_size = _HEADERS_MAX
    # The app says 413 itself and reads no further. This is the wall behind it.
    server.max_request_body_size = 4 * max_body
    try:
        server.prepare()
    except OSError as error:
        raise StartupError(
            f"listen = {address} cannot be bound ({error}): is another daemon there?"
        ) from error
    return server


def _lane(request: bytes) -> bool:
    """Whether nothing may hold this up: it is answered from memory, at once."""
    return request.startswith(_LANE)


def _make_room(path: str) -> None:
    """Remove the socket that a killed daemon left, and nothing else.

    :raises OSError: something else is there, or somebody answers.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "something that is no socket is there")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "somebody answers there")
    os.unlink(path)


def _quiet(message: str = "", level: int = 20, traceback: bool = False) -> None:
    """Cheroot's own words (a client went away) are not our operator's business."""
