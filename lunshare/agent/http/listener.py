# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The server of the API: every address it listens on, with the same few threads."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lunshare.agent.http.answer import App
from lunshare.agent.http.binding import Bind, bound_address, listening_socket
from lunshare.agent.http.connection import Connection, Owner
from lunshare.agent.http.connection_loop import ConnectionLoop
from lunshare.agent.http.tls import Certificates
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from lunshare.agent.threads.limit import share_of
from lunshare.agent.threads.turn import Workers

_HEALTH_CHECKS = frozenset(
    f"{method} {path}"
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/healthcheck", "/readyz")
)
_CERTIFICATE_SECONDS = 0.1  # until a look at them, which most times does nothing
_PEER = struct.Struct("3i")  # pid, uid and gid: unix(7), SO_PEERCRED


class Listener:
    """One address, bound, and what its connections have in common."""

    def __init__(
        self,
        app: App,
        address: Address,
        max_body: int,
        tls: Certificates | None,
        sock: socket.socket,
    ) -> None:
        """``sock`` listens at the address."""
        self.address, self.certificates = address, tls
        self._app, self._max_body = app, max_body
        self.ready = True
        self.socket = sock
        self.bind_addr = bound_address(self.socket)
        self._environ = _environ(self.bind_addr, "http" if tls is None else "https")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The certificate of new connections, if they have TLS."""
        return None if self.certificates is None else self.certificates.context

    def connect(self, owner: Owner, client: socket.socket, address: Any) -> Connection:
        """Return the connection of an accepted socket.

        :raises OSError: the client has ended it already.
        """
        environ = dict(self._environ)
        if self.address.is_socket:
            environ["X_REMOTE_UID"] = _peer_uid(client)
        else:
            environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = address[0], str(address[1])
        return Connection(owner, self._app, environ, self._max_body, self._serves)

    def _serves(self) -> bool:
        return self.ready


def _environ(bound: Bind, scheme: str) -> dict[str, Any]:
    """Return what all requests at an address have in the environment of WSGI."""
    host, port = ("localhost", 80) if isinstance(bound, str) else bound
    return {
        "SCRIPT_NAME": "",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "REMOTE_ADDR": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _peer_uid(client: socket.socket) -> str:
    """Return the user of the process at the other end of a unix socket."""
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return str(_PEER.unpack(peer)[1])


class HttpServer:
    """All listeners, whose requests the same threads answer.

    No thread waits for a client.
    """

    def __init__(self, listeners: Sequence[Listener], threads: int) -> None:
        """Serve these listeners, which are bound, with so many threads."""
        self.listeners = listeners
        self.requests = Workers("request", threads, self._answer)
        # A half of them may wait for Keystone, or compute.
        strangers = min(threads, 2 * share_of(threads))
        self.strangers = Workers("stranger", strangers, self._answer)
        self.connections = ConnectionLoop(listeners, self._put, _is_health_check)
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

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
        if self._certificates():
            watch = threading.Thread(target=self._watch_certificates, daemon=True)
            watch.start()
        self.connections.serve()

    def reload(self) -> None:
        """Read the certificates again soon. A signal handler may call it."""
        for tls in self._certificates():
            tls.read_again()

    def stop(self, seconds: float = 5.0) -> bool:
        """Wait up to ``seconds`` for requests in progress, then close connections.

        Return whether all of them were answered. Answers that their clients have not
        fetched by then are lost. A second call does nothing, and returns False.
        """
        if self._stopped.is_set():
            return False
        self._stopped.set()
        for listener in self.listeners:
            listener.ready = False
        self.connections.refuse()
        until = time.monotonic() + seconds
        known, others = self.requests.stop(until), self.strangers.stop(until)
        self.connections.stop()
        for listener in self.listeners:
            listener.socket.close()
        if self._thread is not None:
            self._thread.join()
        return known and others

    def _watch_certificates(self) -> None:
        """Read certificates that have changed, however long that takes.

        A file may be one that nobody writes (a FIFO), or on storage that hangs.
        """
        while not self._stopped.wait(_CERTIFICATE_SECONDS):
            for tls in self._certificates():
                tls.check()

    def _certificates(self) -> list[Certificates]:
        pairs = [listener.certificates for listener in self.listeners]
        return [certificates for certificates in pairs if certificates is not None]

    def _put(self, connection: Connection) -> None:
        """Let a worker run a request. Known clients do not wait for strangers."""
        (self.requests if connection.is_known else self.strangers).put(connection)

    def _answer(self, connection: Connection) -> None:
        """Run a request; a worker calls this."""
        self.connections.answered(connection, connection.answer())


def serve(
    app: App,
    addresses: Sequence[Address],
    threads: int,
    max_body: int = 2**20,
    certificates: Callable[[Address], Certificates | None] = lambda _: None,
    *,
    option: str = "listen",
    listen: Callable[[Bind], socket.socket] = listening_socket,
) -> HttpServer:
    """Return a bound server. The caller starts and stops it.

    ``max_body``: the largest request body in bytes that the app accepts.
    ``certificates``: those of an address with TLS. ``option`` has the addresses.
    ``listen``: returns a socket that listens at an address.

    :raises StartupError: an address cannot be bound, or its certificate not used.
    """
    listeners: list[Listener] = []
    try:
        for address in addresses:
            tls, sock = certificates(address), _bound(address, option, listen)
            listeners.append(Listener(app, address, max_body, tls, sock))
    except StartupError:
        for listener in listeners:
            listener.socket.close()
        raise
    return HttpServer(listeners, threads)


def _bound(
    address: Address, option: str, listen: Callable[[Bind], socket.socket]
) -> socket.socket:
    try:
        return listen(address.bind)
    except OSError as error:
        raise StartupError(
            f"{option} = {address} cannot be bound ({error}): check whether"
            " another daemon uses it"
        ) from error


def _is_health_check(target: str) -> bool:
    """Return whether this method and path are answered at once, from memory."""
    return target in _HEALTH_CHECKS
