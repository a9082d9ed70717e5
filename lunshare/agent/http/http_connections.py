# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The connections of all clients of the API, in one thread.

The thread reads and writes; it never waits for a client, nor runs a request. It
passes complete requests to the workers, and sends their answers as fast as the
clients read. So a slow client, also one that is slow to begin TLS, uses a file
descriptor and some memory for a while, but no thread. Health checks
(``is_immediate``) are answered in this thread, even if all workers are busy.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from oslo_log import log

from lunshare.agent.http.client_connection import Connection
from lunshare.agent.http.http_framing import TooLarge
from lunshare.agent.http.http_head import Malformed, OtherVersion

LOG = log.getLogger(__name__)

#: Connections at once. One more replaces the one that has waited longest.
MAX_CONNECTIONS = 512
#: Complete requests that wait for a worker, or run. One more gets 503, so that there
#: are connections for health checks, whatever the workers wait for.
MAX_COMPLETE = 448
#: Bytes of requests that do not run yet, over all connections.
MAX_BUFFERED = 16 * 2**20
#: Bytes of answers that their clients have not read yet. Beyond it, those that have
#: waited longest are closed.
MAX_UNREAD = 64 * 2**20

_TICK = 0.1  # seconds
_READ_SIZE = 64 * 1024
#: Connections accepted at once, so that new clients do not delay the others.
_ACCEPT = 64
_SMALL = 8 * 1024
_LOG_SECONDS = 10.0  # between two lines about refused requests
_READ = select.EPOLLIN | select.EPOLLONESHOT
_WRITE = select.EPOLLOUT | select.EPOLLONESHOT
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = (408, "requestTimeout", "The request did not come in time: send it again.")
_LARGE = (413, "overLimit", "The request is too large: send fewer bytes.")
_BUSY = (503, "serviceUnavailable", "Too many requests wait: try again later.")
_VERSION = (505, "badRequest", "Send a request of HTTP/1.1 or HTTP/1.0.")
_CUT = (
    400,
    "badRequest",
    "The connection ended before the request did: send it again.",
)


#: Creates the connection of an accepted socket and its address.
Connect = Callable[[socket.socket, Any], Connection]


class ConnectionLoop:
    """The thread that has every connection that no worker uses."""

    def __init__(
        self,
        listening: Sequence[tuple[socket.socket, Connect]],
        work: Callable[[Connection], None],
        is_immediate: Callable[[str], bool],
    ) -> None:
        """Take connections from these sockets.

        Beside each is what creates a connection of an accepted socket. It raises
        OSError if the client has ended it. A connection with a complete request
        goes to ``work``, for a worker, which calls ``put`` after its answer.
        ``is_immediate``: whether a method and path are answered in this thread.
        """
        self._listening = {sock.fileno(): (sock, to) for sock, to in listening}
        self._work = work
        self._is_immediate = is_immediate
        self._epoll = select.epoll()
        self._all: dict[int, Connection] = {}
        self._waiting: dict[int, Connection] = {}
        self._postponed: deque[Connection] = deque()
        self._refusing = self._stopped = False
        self._log_after = 0.0
        self._started, self._closed = threading.Event(), threading.Event()
        for sock, _ in listening:
            sock.setblocking(False)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def run(self, each_tick: Callable[[], None]) -> None:
        """Serve until ``stop``; then close every connection."""
        self._started.set()
        tick = time.monotonic()
        while not self._stopped:
            for descriptor, _ in self._events():
                self._ready(descriptor)
            for _ in range(len(self._postponed)):
                self._process(self._postponed.popleft())
            if time.monotonic() - tick > _TICK:
                tick = time.monotonic()
                each_tick()
                self._expire()
        self._close()

    def _events(self) -> list[tuple[int, int]]:
        """Return the descriptors that are ready."""
        return self._epoll.poll(0 if self._postponed else _TICK)

    def refuse(self) -> None:
        """Accept no more connections and requests. Answers are still sent."""
        self._refusing = True

    def stop(self) -> None:
        """Close every connection."""
        self._stopped = True
        if not self._started.is_set():
            self._close()
        self._closed.wait()

    def _close(self) -> None:
        for connection in list(self._all.values()):
            self._drop(connection)
        self._epoll.close()
        self._closed.set()

    def put(self, connection: Connection) -> None:
        """Give a connection back to the loop. Any thread may call it."""
        if connection.unsent:
            self._arm(connection, _WRITE)
        elif connection.ending:
            self._end(connection)
        elif connection.buffered:
            self._process(connection)
        else:
            self._arm(connection, _READ)

    def _ready(self, descriptor: int) -> None:
        if descriptor in self._listening:
            self._accept(*self._listening[descriptor])
            return
        connection = self._waiting.pop(descriptor, None)
        if connection is None:
            return
        if self._refusing and not connection.unsent:
            self._drop(connection)
        elif connection.unsent:
            connection.send()
            self.put(connection)
        else:
            self._read(connection)

    def _accept(self, listening: socket.socket, connect: Connect) -> None:
        """Accept connections that wait; more of them at the next turn of the loop."""
        for _ in range(_ACCEPT):
            if self._refusing:
                return
            try:
                client, address = listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._close_oldest()
                return
            client.setblocking(False)
            if len(self._all) >= MAX_CONNECTIONS:
                self._close_oldest()
            try:
                connection = connect(client, address)
            except OSError:
                client.close()
                continue
            self._all[connection.socket.fileno()] = connection
            # Without EPOLLONESHOT, the end of a client whose request is running
            # is reported without a pause (epoll_ctl(2): EPOLLHUP is always).
            self._epoll.register(connection.socket.fileno(), select.EPOLLONESHOT)
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            connection.shake_hands()
            piece = connection.socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return self._arm(connection, _READ)
        except ssl.SSLWantWriteError:
            return self._arm(connection, _WRITE)
        except OSError:
            return self._drop(connection)
        if connection.lingering:
            return self._arm(connection, _READ) if piece else self._drop(connection)
        if not piece:
            return self._ended(connection)
        if not connection.buffered:
            connection.since = time.monotonic()
        connection.buffered += piece
        return self._process(connection)

    def _ended(self, connection: Connection) -> None:
        if not connection.buffered:
            return self._drop(connection)
        connection.refuse(*_CUT)
        return self.put(connection)

    def _process(self, connection: Connection) -> None:
        """Run a complete request; wait for the rest of an incomplete one."""
        try:
            complete = connection.next_request()
        except (TooLarge, Malformed, OtherVersion) as error:
            connection.refuse(*_refusal(error))
            return self.put(connection)
        if not complete:
            return self._wait(connection)
        if not self._is_immediate(connection.asked):
            return self._run_or_refuse(connection)
        connection.answer()
        if connection.buffered and not connection.ending and not connection.unsent:
            return self._postponed.append(connection)  # after other connections
        return self.put(connection)

    def _run_or_refuse(self, connection: Connection) -> None:
        complete = len(self._all) - len(self._waiting)
        if complete > MAX_COMPLETE or self._holds_too_much(connection):
            self._log_refusals(complete)
            connection.refuse(*_BUSY)
            return self.put(connection)
        return self._work(connection)

    def _log_refusals(self, complete: int) -> None:
        """Log that requests are refused, once in a while."""
        moment = time.monotonic()
        if moment > self._log_after:
            self._log_after = moment + _LOG_SECONDS
            LOG.warning("[http] requests are refused: %d wait or run", complete)

    def _wait(self, connection: Connection) -> None:
        if connection.framing.expects:
            connection.framing.expects = False
            with contextlib.suppress(OSError):
                connection.socket.send(_CONTINUE)
        if self._holds_too_much(connection):
            return self._drop(connection)
        return self._arm(connection, _READ)

    def _holds_too_much(self, connection: Connection) -> bool:
        """Whether its request is not small, and too many bytes are stored."""
        if connection.held <= _SMALL:
            return False
        return sum(each.held for each in list(self._all.values())) > MAX_BUFFERED

    def _end(self, connection: Connection) -> None:
        """Read what the client still sends; a close at once could lose the answer."""
        if not connection.lingering:
            if connection.is_done:
                return self._drop(connection)
            connection.lingering, connection.since = True, time.monotonic()
            connection.finish()
        return self._arm(connection, _READ)

    def _arm(self, connection: Connection, events: int) -> None:
        descriptor = connection.socket.fileno()
        self._waiting[descriptor] = connection
        with contextlib.suppress(OSError, ValueError):  # closed in the meantime
            self._epoll.modify(descriptor, events)

    def _expire(self) -> None:
        """End connections that have waited too long."""
        for connection in list(self._waiting.values()):
            if connection.seconds_left < 0:
                del self._waiting[connection.socket.fileno()]
                self._expire_one(connection)
        self._drop_slow_readers()

    def _drop_slow_readers(self) -> None:
        late = [each for each in list(self._waiting.values()) if each.unread]
        stored = sum(each.unread for each in late)
        for connection in sorted(late, key=lambda each: each.since):
            if stored <= MAX_UNREAD:
                return
            stored -= connection.unread
            self._drop(connection)

    def _expire_one(self, connection: Connection) -> None:
        if connection.buffered and not connection.unsent and not connection.lingering:
            connection.refuse(*_LATE)
            self.put(connection)
        else:
            self._drop(connection)

    def _close_oldest(self) -> None:
        """Close the connection that has waited longest."""
        oldest = sorted(self._waiting.values(), key=lambda each: each.since)
        for connection in oldest[:1]:
            del self._waiting[connection.socket.fileno()]
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._all.pop(connection.socket.fileno(), None)
        self._waiting.pop(connection.socket.fileno(), None)
        connection.close()


def _refusal(error: Exception) -> tuple[int, str, str]:
    if isinstance(error, TooLarge):
        return _LARGE
    if isinstance(error, OtherVersion):
        return _VERSION
    return 400, "badRequest", f"Malformed request: {error}"
