# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The server of the API: every address it listens on, with the same few threads."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lunshare.agent.http.answer import App
from lunshare.agent.http.connection import Connection, Listener
from lunshare.agent.http.connection_loop import ConnectionLoop
from lunshare.agent.http.sockets import Bind, listening_socket
from lunshare.agent.http.tls import Certificates
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from lunshare.agent.threads.limit import share_of
from lunshare.agent.threads.turn import Workers

_CERTIFICATE_SECONDS = 0.1  # until a look at them, which most times does nothing


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
        self.connections = ConnectionLoop(listeners, self._put)
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
        """Serve requests until ``stop``; return at once."""
        if self._certificates():
            watch = threading.Thread(target=self._watch_certificates, daemon=True)
            watch.start()
        self.connections.start()

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
            listener.serves = False
        self.connections.refuse()
        until = time.monotonic() + seconds
        known, others = self.requests.stop(until), self.strangers.stop(until)
        self.connections.stop()
        for listener in self.listeners:
            listener.socket.close()
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
        """Let a worker run a request. No user waits for all those of another one."""
        is_stranger = connection.user is None
        workers = self.strangers if is_stranger else self.requests
        workers.put(connection, connection.user)

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
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []
        for address in addresses:
            tls = certificates(address)
            sock = stack.enter_context(_bound(address, option, listen))
            listeners.append(Listener(app, address, max_body, tls, sock))
        stack.pop_all()
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
