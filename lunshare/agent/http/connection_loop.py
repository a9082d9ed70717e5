# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The connections of all clients, in one thread with a loop of asyncio.

The thread reads and writes; it never waits for a client, nor runs a request. It
passes complete requests to the workers, and sends their answers as fast as the
clients read. So a slow client, also one that is slow to begin TLS, uses a file
descriptor and some memory for a while, but no thread. Health checks are answered in
this thread, even if all workers are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from socket import socket as Socket
from typing import Any

from oslo_log import log

from lunshare.agent.http.connection import Connection, Listener, State
from lunshare.agent.http.known_clients import KnownClients
from lunshare.agent.http.request_parser import Refusal
from lunshare.agent.http.tls_records import LimitedTls, RecordTurns

LOG = log.getLogger(__name__)

#: Connections at once. One more replaces the one that has waited longest.
MAX_CONNECTIONS = 512
#: Complete requests that wait for a worker, or run. One more gets 503, so that there
#: are connections for health checks, whatever the workers wait for. A user may have as
#: many as are left for others; so may all clients together that no user is known of.
MAX_COMPLETE = 448
#: Bytes of requests that do not run yet, over all connections.
MAX_BUFFERED = 16 * 2**20
#: Bytes of answers that their clients have not read yet. Beyond it, those of the user
#: with the most are closed, first what has waited longest. A page of a list has up to
#: 4 MiB and a row (lunshare.agent.model.page_rows): 32 clients that read one each,
#: slowly, keep theirs.
MAX_UNREAD = 192 * 2**20

_TICK = 0.1  # seconds
#: Clients that one turn of the loop accepts. Beside 448 busy ones it takes 40 ms, and a
#: new client waits for all before it.
_NEWCOMERS = 4
#: Turns of the loop until a new client has been read once.
_TURNS_OF_NEWCOMER = 4
_READ_SIZE = 64 * 1024
_SMALL = 8 * 1024
_HEALTH_CHECKS = frozenset(
    f"{method} {path}"
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/healthcheck", "/readyz")
)
_LOG_SECONDS = 10.0  # between two lines about refused requests
#: The user of a process of this node at a unix socket.
_PEER = ""
_BUSY = (503, "serviceUnavailable", "Too many requests wait: try again later.")


class ConnectionLoop:
    """The thread that has every connection, and their limits."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        work: Callable[[Connection], None],
    ) -> None:
        """Take connections from these listeners.

        A connection with a complete request goes to ``work``, for a worker, which
        calls ``answered``.
        """
        self._listeners, self._work = listeners, work
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_error)
        self._records = RecordTurns(self._loop)
        self.buffer = memoryview(bytearray(_READ_SIZE))
        self.all: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_refusing = self._is_woken = False
        self._running: Counter[str | None] = Counter()
        self._known = KnownClients()
        self._answers: deque[tuple[Connection, bytes]] = deque()
        self._full_turns, self._log_after = 0, 0.0
        # For a client that comes when the process has no other descriptor.
        self._spare = Socket()
        self._thread = threading.Thread(None, self._serve, "listener", daemon=True)

    def start(self) -> None:
        """Serve in a thread of its own, until ``stop``."""
        self._thread.start()

    def _serve(self) -> None:
        for listener in self._listeners:
            listener.socket.setblocking(False)
            self._listen(listener)
        self._loop.call_soon(self._tick)
        self._loop.run_forever()

    def _listen(self, listener: Listener) -> None:
        """Accept its clients from now on."""
        if not self._is_refusing:
            self._loop.add_reader(listener.socket, self._accept, listener)

    def refuse(self) -> None:
        """Accept no more connections and requests. Answers are still sent."""
        self._call(self._refuse)

    def stop(self) -> None:
        """Close every connection, and end the thread."""
        if self._thread.ident is not None:
            self._call(lambda: self._run_task(self._close()))
            self._thread.join()
        self._loop.close()
        self._spare.close()

    def answered(self, connection: Connection, data: bytes) -> None:
        """Send an answer soon. Any thread may call it.

        One wakeup of the loop serves all answers that came before it: a wakeup is a
        system call, which hands the interpreter to another thread.
        """
        self._answers.append((connection, data))
        if not self._is_woken:
            self._is_woken = True
            self._call(self._send_answers)

    def _send_answers(self) -> None:
        self._is_woken = False  # before the look: what comes later wakes again
        while self._answers:
            connection, data = self._answers.popleft()
            self._running[connection.user] -= 1
            if not self._running[connection.user]:
                del self._running[connection.user]
            if connection.proof:
                self._known.add(connection.request.environ, connection.proof)
            self._loop.call_soon(connection.send, data)

    def _call(self, function: Callable[[], object]) -> None:
        """Call it in the thread of the loop, if that has not ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _run_task(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self) -> None:
        self._is_refusing = True
        for listener in self._listeners:
            self._loop.remove_reader(listener.socket)

    async def _close(self) -> None:
        self._refuse()
        for _ in range(_TURNS_OF_NEWCOMER):
            for connection in list(self.all):
                connection.abort()
            await asyncio.sleep(0)
        self._loop.stop()

    def _accept(self, listener: Listener) -> None:
        """Accept a few clients: the others are served before the next ones."""
        if len(self.all) >= MAX_CONNECTIONS and not self._makes_room():
            return
        for _ in range(min(_NEWCOMERS, MAX_CONNECTIONS - len(self.all))):
            try:
                client, address = listener.socket.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._find_descriptor(listener)
                return
            client.setblocking(False)
            environ = listener.environ(client, address)
            connection = Connection(self, listener, environ)
            self.all.add(connection)
            self._run_task(self._connect(connection, client, listener))

    def _makes_room(self) -> bool:
        """Close the oldest connection, when the last newcomers have been read."""
        self._full_turns = (self._full_turns + 1) % _TURNS_OF_NEWCOMER
        return self._full_turns == 0 and self._close_oldest()

    def _find_descriptor(self, listener: Listener) -> None:
        """Free a descriptor for the next client. If there is none, try again soon."""
        if self._close_oldest():
            return
        if self._has_spare:
            self._spare.close()
            return
        self._loop.remove_reader(listener.socket)
        self._loop.call_later(_TICK, self._listen, listener)

    @property
    def _has_spare(self) -> bool:
        return self._spare.fileno() >= 0

    async def _connect(
        self, connection: Connection, client: Socket, listener: Listener
    ) -> None:
        protocol: asyncio.BufferedProtocol = connection
        if tls := listener.certificates:
            protocol = LimitedTls(self._records, connection, tls.context)
        await self._loop.connect_accepted_socket(lambda: protocol, client)

    def run(self, connection: Connection) -> None:
        """Give a complete request to a worker, or answer it at once."""
        if self._is_refusing:
            connection.abort()
        elif connection.request.target in _HEALTH_CHECKS:
            connection.send(connection.answer())
        else:
            self._run_or_refuse(connection)

    def _run_or_refuse(self, connection: Connection) -> None:
        environ = connection.request.environ
        connection.user = _PEER if connection.is_peer else self._known.user(environ)
        if self._is_full(connection.user) or self.holds_too_much(connection):
            self._log_refusals()
            connection.refuse(Refusal(*_BUSY))
        else:
            self._running[connection.user] += 1
            self._work(connection)

    def _is_full(self, user: str | None) -> bool:
        """Return whether no more requests may wait, of this user or of anybody."""
        places = MAX_COMPLETE - self._running.total()
        return places <= (0 if user == _PEER else self._running[user])

    def _log_refusals(self) -> None:
        """Log that requests are refused, once in a while."""
        count, moment = self._running.total(), time.monotonic()
        if moment > self._log_after:
            self._log_after = moment + _LOG_SECONDS
            LOG.warning("[http] requests are refused: %d wait or run", count)

    def holds_too_much(self, connection: Connection) -> bool:
        """Return whether its request is not small, and too many bytes are held."""
        if connection.held <= _SMALL:
            return False
        return sum(other.held for other in self.all) > MAX_BUFFERED

    def drop(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self.all.discard(connection)

    def _tick(self) -> None:
        if not self._has_spare:
            with contextlib.suppress(OSError):
                self._spare = Socket()
        for connection in list(self.all):
            if connection.seconds_left < 0:
                connection.expire()
        self._drop_slow_readers()
        self._loop.call_later(_TICK, self._tick)

    def _drop_slow_readers(self) -> None:
        slow = [connection for connection in self.all if connection.unread]
        stored: Counter[str | None] = Counter()
        for connection in slow:
            stored[connection.user] += connection.unread
        for connection in sorted(slow, key=lambda one: (-stored[one.user], one.since)):
            if stored.total() <= MAX_UNREAD:
                return
            stored[connection.user] -= connection.unread
            connection.abort()

    def _close_oldest(self) -> bool:
        """Close the connection that has waited longest; return whether there is one.

        Those of known clients are the last.
        """
        waiting = [other for other in self.all if other.state is not State.RUNNING]
        if waiting:
            oldest = min(waiting, key=lambda other: (other.is_proven, other.since))
            oldest.abort()
            self.drop(oldest)
        return bool(waiting)


def _log_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what has failed in the loop; it has closed that connection."""
    LOG.error("[http] %s", context["message"], exc_info=context.get("exception"))
