# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The address of the API, and the server that listens there."""

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
from lunshare.agent.http_connections import Connection, ConnectionLoop
from lunshare.agent.worker_turns import Workers

_FORM = "give HOST:PORT, [IPV6]:PORT or unix:PATH"
_BACKLOG = 256
#: Threads that run Python at once, without those that wait (agent/worker_turns).
_AT_ONCE = 1
_HEADERS_MAX = 64 * 1024
_OWNER_AND_GROUP = 0o660
_HEALTH_CHECKS = tuple(
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
        """Return whether only processes of this machine can reach it."""
        if isinstance(self.bind, str):
            return True
        try:
            return ipaddress.ip_address(self.bind[0]).is_loopback
        except ValueError:
            return False  # the address of a name may change

    def __str__(self) -> str:
        if isinstance(self.bind, str):
            return f"unix:{self.bind}"
        host, port = self.bind
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(text: str, auth_strategy: str) -> Address:
    """Parse the option ``listen``.

    :raises StartupError: its form is unknown, or anyone could reach the API.
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
    """A server whose threads never wait for a client.

    Cheroot parses requests and calls the app; ConnectionLoop has the connections.
    Cheroot's own loop (11.1) uses a thread per client that has sent a first byte.
    For a unix socket it removes any file at the path, also the socket of another
    daemon, and its new socket is open to everyone.
    """

    def __init__(self, app: App, address: Address, threads: int, max_body: int) -> None:
        super().__init__(address.bind, app, request_queue_size=_BACKLOG)
        self.address = address
        self._max_body = max_body
        self._thread: threading.Thread | None = None
        self.requests = Workers("request", threads, _AT_ONCE, self._answer)

    def prepare(self) -> None:
        """Bind, listen, and start the threads.

        :raises OSError: the address is in use or not allowed.
        """
        super().prepare()
        vars(self).pop("_connections").close()  # of cheroot; unused
        self.loop = ConnectionLoop(
            self.socket, self._connect, self.requests.turns.put, _is_health_check
        )

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
        """Bind a path that does not exist, or has the socket of a killed daemon."""
        _remove_stale_socket(bind_addr)
        self.socket = bound = socket.socket(socket.AF_UNIX)
        os.fchmod(bound.fileno(), _OWNER_AND_GROUP)  # before it can be reached
        bound.bind(bind_addr)
        os.chmod(bind_addr, _OWNER_AND_GROUP)  # the umask may have changed it
        return bound

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Return whether a connection may have another request."""
        serving: bool = self.ready
        return serving

    def _connect(self, client: socket.socket, address: Any) -> Connection:
        connection = Connection(self, client, _HEADERS_MAX, self._max_body)
        if isinstance(address, tuple):
            connection.remote_addr, connection.remote_port = address[:2]
        return connection

    def _answer(self, connection: Connection) -> None:
        """Run a request; a worker calls this."""
        connection.answer()
        self.loop.put(connection)


def serve(app: App, address: Address, threads: int, max_body: int = 2**20) -> Server:
    """Return a bound server. The caller starts and stops it.

    ``max_body``: the largest request body in bytes that the app accepts.

    :raises StartupError: the address cannot be bound.
    """
    server = Server(app, address, threads, max_body)
    server.error_log = _ignore  # type: ignore[method-assign,assignment]
    server.max_request_header_size = _HEADERS_MAX
    # The app itself answers 413 and reads no more. This is a second limit.
    server.max_request_body_size = 4 * max_body
    try:
        server.prepare()
    except OSError as error:
        raise StartupError(
            f"listen = {address} cannot be bound ({error}): check whether another"
            " daemon uses it"
        ) from error
    return server


def _is_health_check(request: bytes) -> bool:
    """Return whether this request is answered at once, from memory."""
    return request.startswith(_HEALTH_CHECKS)


def _remove_stale_socket(path: str) -> None:
    """Remove a socket on which no process listens, and nothing else.

    :raises OSError: the path is not a socket, or a process listens there.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "the file there is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)


def _ignore(message: str = "", level: int = 20, traceback: bool = False) -> None:
    """Ignore the messages of cheroot, such as a client that disconnects."""
