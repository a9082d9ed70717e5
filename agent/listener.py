# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The server of the API: every address it listens on, with the same few threads."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cheroot import wsgi

from lunshare.agent.client_connection import Connection, Gateway
from lunshare.agent.errors import StartupError
from lunshare.agent.http_connections import ConnectionLoop
from lunshare.agent.listen_addresses import Address
from lunshare.agent.tls import Certificates
from lunshare.agent.worker_turns import Workers

_BACKLOG = 256
#: Threads that run Python at once, without those that wait (agent/worker_turns).
_AT_ONCE = 1
_HEADERS_MAX = 64 * 1024
_GROUP = "lunshare"
_OWNER_AND_GROUP = 0o660
_HEALTH_CHECKS = tuple(
    f"{method} {path} HTTP/1.".encode()
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/healthcheck", "/readyz")
)

App = Callable[..., Any]


class Listener(wsgi.Server):
    """One address. Cheroot binds it, parses its requests and calls the app.

    ConnectionLoop has the connections: Cheroot's own loop (11.1) uses a thread per
    client that has sent a first byte. For a unix socket it removes any file at the
    path, also the socket of another daemon, and its new socket is open to everyone.
    """

    def __init__(
        self, app: App, address: Address, max_body: int, tls: Certificates | None
    ) -> None:
        super().__init__(address.bind, app, request_queue_size=_BACKLOG)
        self.gateway = Gateway
        self.address, self.tls = address, tls
        self._max_body = max_body
        self.peercreds_enabled = address.is_socket
        self.requests = _NoThreads()
        self.error_log = _ignore  # type: ignore[method-assign,assignment]
        self.max_request_header_size = _HEADERS_MAX
        # The app itself answers 413 and reads no more. This is a second limit.
        self.max_request_body_size = 4 * max_body

    def prepare(self) -> None:
        """Bind and listen.

        :raises OSError: the address is in use or not allowed.
        """
        super().prepare()
        vars(self).pop("_connections").close()  # of cheroot; unused

    def connect(self, client: socket.socket, address: Any) -> Connection:
        """Return the connection of an accepted socket, which does not block.

        :raises OSError: the client has ended it already.
        """
        if self.tls is not None:
            client = self.tls.wrap(client)
        connection = Connection(self, client, _HEADERS_MAX, self._max_body)
        if isinstance(address, tuple):
            connection.remote_addr, connection.remote_port = address[:2]
        return connection

    def bind_unix_socket(self, bind_addr: str) -> socket.socket:
        """Bind a path that does not exist, or has the socket of a killed daemon."""
        _remove_stale_socket(bind_addr)
        self.socket = bound = socket.socket(socket.AF_UNIX)
        os.fchmod(bound.fileno(), _OWNER_AND_GROUP)  # before it can be reached
        bound.bind(bind_addr)
        # A daemon that root runs by hand. The unit's daemon has this group already, and
        # its SystemCallFilter kills a process that calls chown(2).
        if os.geteuid() == 0:
            with contextlib.suppress(KeyError):
                os.chown(bind_addr, -1, grp.getgrnam(_GROUP).gr_gid)
        os.chmod(bind_addr, _OWNER_AND_GROUP)  # the umask may have changed it
        return bound

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Return whether a connection may have another request."""
        serving: bool = self.ready
        return serving


class _NoThreads:
    """Cheroot's pool of threads, of which a listener has none of its own."""

    def start(self) -> None:
        """Start no thread."""


class Server:
    """All listeners, whose requests the same threads answer.

    No thread waits for a client.
    """

    def __init__(self, listeners: Sequence[Listener], threads: int) -> None:
        """Serve these listeners, which are bound, with so many threads."""
        self.listeners = listeners
        self.requests = Workers("request", threads, _AT_ONCE, self._answer)
        self.loop = ConnectionLoop(
            [(listener.socket, listener.connect) for listener in listeners],
            self.requests.turns.put,
            _is_health_check,
        )
        self.requests.start()
        self._thread: threading.Thread | None = None
        self._running = True

    @property
    def addresses(self) -> str:
        """Return the addresses as the log shows them."""
        return ",".join(str(listener.address) for listener in self.listeners)

    @property
    def bind_addr(self) -> Any:
        """Return where the first listener is bound."""
        return self.listeners[0].bind_addr

    def start(self) -> None:
        """Serve requests in a thread of its own, until ``stop``."""
        self._thread = threading.Thread(target=self.serve, name="listener", daemon=True)
        self._thread.start()

    def serve(self) -> None:
        """Serve requests until ``stop``."""
        self.loop.run(self._tick)

    def reload(self) -> None:
        """Read the certificates again soon. A signal handler may call it."""
        for tls in self._certificates():
            tls.read_again()

    def stop(self, seconds: float = 5.0) -> None:
        """Wait up to ``seconds`` for requests in progress, then close connections.

        Answers that their clients have not fetched by then are lost.
        """
        if not self._running:
            return
        self._running = False
        for listener in self.listeners:
            listener.ready = False
        self.loop.refuse()
        self.requests.stop(time.monotonic() + seconds)
        self.loop.stop()
        for listener in self.listeners:
            listener.socket.close()
        if self._thread is not None:
            self._thread.join()

    def _tick(self) -> None:
        self.requests.turns.drop_late()
        for tls in self._certificates():
            tls.check()

    def _certificates(self) -> list[Certificates]:
        return [each.tls for each in self.listeners if each.tls is not None]

    def _answer(self, connection: Connection) -> None:
        """Run a request; a worker calls this."""
        connection.answer()
        self.loop.put(connection)


def serve(
    app: App,
    addresses: Sequence[Address],
    threads: int,
    max_body: int = 2**20,
    certificates: Callable[[Address], Certificates | None] = lambda _: None,
    *,
    option: str = "listen",
) -> Server:
    """Return a bound server. The caller starts and stops it.

    ``max_body``: the largest request body in bytes that the app accepts.
    ``certificates``: those of an address with TLS. ``option`` has the addresses.

    :raises StartupError: an address cannot be bound, or its certificate not used.
    """
    listeners: list[Listener] = []
    try:
        for address in addresses:
            tls = certificates(address)
            listeners.append(_bound(Listener(app, address, max_body, tls), option))
    except StartupError:
        for listener in listeners:
            listener.socket.close()
        raise
    return Server(listeners, threads)


def _bound(listener: Listener, option: str) -> Listener:
    try:
        listener.prepare()
    except OSError as error:
        raise StartupError(
            f"{option} = {listener.address} cannot be bound ({error}): check whether"
            " another daemon uses it"
        ) from error
    return listener


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
