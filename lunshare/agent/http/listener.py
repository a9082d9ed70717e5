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
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lunshare.agent.http.client_connection import Connection
from lunshare.agent.http.http_answer import App
from lunshare.agent.http.http_connections import ConnectionLoop
from lunshare.agent.http.tls import Certificates
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from lunshare.agent.threads.turn import Workers

_BACKLOG = 256
_HEADERS_MAX = 64 * 1024
_GROUP = "lunshare"
_OWNER_AND_GROUP = 0o660
_HEALTH_CHECKS = frozenset(
    f"{method} {path}"
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/healthcheck", "/readyz")
)
_PEER = struct.Struct("3i")  # pid, uid and gid: unix(7), SO_PEERCRED
_EVERY_ADDRESS = "::"


class Listener:
    """One address, bound, and what its connections have in common."""

    def __init__(
        self, app: App, address: Address, max_body: int, tls: Certificates | None
    ) -> None:
        """Bind and listen.

        :raises OSError: the address is in use or not allowed.
        """
        self.address, self.tls, self._app = address, tls, app
        self._sizes = (_HEADERS_MAX, max_body)
        self.ready = True
        self.socket = _listening(address.bind)
        self.bind_addr = _bound_address(self.socket)
        self._environ = _environ(self.bind_addr, "http" if tls is None else "https")

    def connect(self, client: socket.socket, address: Any) -> Connection:
        """Return the connection of an accepted socket, which does not block.

        :raises OSError: the client has ended it already.
        """
        environ = dict(self._environ)
        if self.address.is_socket:
            environ["X_REMOTE_UID"] = _peer_uid(client)
        else:
            environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = address[0], str(address[1])
        if self.tls is not None:
            client = self.tls.wrap(client)
        return Connection(client, self._app, environ, self._sizes, self._serves)

    def _serves(self) -> bool:
        return self.ready


def _environ(bound: tuple[str, int] | str, scheme: str) -> dict[str, Any]:
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
    found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return str(_PEER.unpack(found)[1])


def _listening(bind: tuple[str, int] | str) -> socket.socket:
    """Return a socket that listens at this address; raise OSError if it cannot."""
    sock = _unix_socket(bind) if isinstance(bind, str) else _tcp_socket(*bind)
    sock.listen(_BACKLOG)
    return sock


def _bound_address(sock: socket.socket) -> tuple[str, int] | str:
    """Return the path, or the host and the port, where it is bound."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))


def _tcp_socket(host: str, port: int) -> socket.socket:
    """Bind the first address of the host that can be bound."""
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = socket.getaddrinfo(host, port, type=kind, flags=passive)
    for family, _, _, _, address in found[:-1]:
        with contextlib.suppress(OSError):
            return _bound_tcp(family, address)
    family, _, _, _, address = found[-1]
    return _bound_tcp(family, address)


def _bound_tcp(family: socket.AddressFamily, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    host, port, *_ = address
    try:
        if port:  # not for any free port, which another process could have then
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host == _EVERY_ADDRESS:  # those of IPv4 too
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _unix_socket(path: str) -> socket.socket:
    """Bind a path that does not exist, or has the socket of a killed daemon."""
    _remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(bound.fileno(), _OWNER_AND_GROUP)  # before it can be reached
        bound.bind(path)
        # A daemon that root runs by hand. The unit's daemon has this group already, and
        # its SystemCallFilter kills a process that calls chown(2).
        if os.geteuid() == 0:
            with contextlib.suppress(KeyError):
                os.chown(path, -1, grp.getgrnam(_GROUP).gr_gid)
        os.chmod(path, _OWNER_AND_GROUP)  # the umask may have changed it
    except OSError:
        bound.close()
        raise
    return bound


class Server:
    """All listeners, whose requests the same threads answer.

    No thread waits for a client.
    """

    def __init__(self, listeners: Sequence[Listener], threads: int) -> None:
        """Serve these listeners, which are bound, with so many threads."""
        self.listeners = listeners
        self.requests = Workers("request", threads, self._answer)
        self.loop = ConnectionLoop(
            [(listener.socket, listener.connect) for listener in listeners],
            self.requests.put,
            _is_health_check,
        )
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

    def stop(self, seconds: float = 5.0) -> bool:
        """Wait up to ``seconds`` for requests in progress, then close connections.

        Return whether all of them were answered. Answers that their clients have not
        fetched by then are lost. A second call does nothing, and returns False.
        """
        if not self._running:
            return False
        self._running = False
        for listener in self.listeners:
            listener.ready = False
        self.loop.refuse()
        answered = self.requests.stop(time.monotonic() + seconds)
        self.loop.stop()
        for listener in self.listeners:
            listener.socket.close()
        if self._thread is not None:
            self._thread.join()
        return answered

    def _tick(self) -> None:
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
            listeners.append(_bound(app, address, max_body, tls, option))
    except StartupError:
        for listener in listeners:
            listener.socket.close()
        raise
    return Server(listeners, threads)


def _bound(
    app: App, address: Address, max_body: int, tls: Certificates | None, option: str
) -> Listener:
    try:
        return Listener(app, address, max_body, tls)
    except OSError as error:
        raise StartupError(
            f"{option} = {address} cannot be bound ({error}): check whether"
            " another daemon uses it"
        ) from error


def _is_health_check(asked: str) -> bool:
    """Return whether this method and path are answered at once, from memory."""
    return asked in _HEALTH_CHECKS


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
