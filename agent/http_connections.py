# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The connections of all clients of the API, in one thread.

The thread reads and writes; it never waits for a client, nor runs a request. It
passes complete requests to the workers, and sends their answers as fast as the
clients read. So a slow client uses a file descriptor and some memory for a while,
but no thread. Health checks (``is_immediate``) are answered in this thread, even
if all workers are busy.
"""

from __future__ import annotations

import contextlib
import errno
import io
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cheroot.server import HeaderReader, HTTPConnection, HTTPRequest

from lunshare.agent.http_framing import Framing, TooLarge

#: Seconds from the first byte of a request to its last one.
REQUEST_SECONDS = 10.0
#: Seconds that a connection may be idle.
IDLE_SECONDS = 10.0
#: Seconds that a client may take to read an answer.
ANSWER_SECONDS = 30.0
#: Connections at once. One more replaces the one that has waited longest.
MAX_CONNECTIONS = 512
#: Bytes of incomplete requests, over all connections.
MAX_BUFFERED = 16 * 2**20

_TICK = 0.1  # seconds
_LINGER_SECONDS = 2.0
_READ_SIZE = 64 * 1024
_SMALL = 8 * 1024
_READ = select.EPOLLIN | select.EPOLLONESHOT
_WRITE = select.EPOLLOUT | select.EPOLLONESHOT
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = (408, "requestTimeout", "The request did not come in time: send it again.")
_LARGE = (413, "overLimit", "The request body is too large: send fewer bytes.")


class _HeaderFields(HeaderReader):
    """Header fields without Expect, which the loop has answered already."""

    def _allow_header(self, key_name: bytes) -> bool:
        return key_name != b"Expect"


class Request(HTTPRequest):
    """A request. A body in chunks makes it the last one of its connection.

    Cheroot reads the rest of a body of known length, but not of a chunked one;
    that rest would be read as the next request.
    """

    header_reader = _HeaderFields()

    def parse_request(self) -> None:
        """Read the head, and decide whether the connection ends with the request."""
        super().parse_request()
        if b"Transfer-Encoding" in self.inheaders:
            self.close_connection = True


class _Input(io.BytesIO):
    """The bytes of one request, as cheroot reads them."""

    bytes_read = 0

    def has_data(self) -> bool:
        """Return False: the bytes are of one request."""
        return False


class _Output:
    """The bytes of one answer, collected until it is complete."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes_written = 0

    def write(self, data: bytes) -> int:
        """Add bytes."""
        self.parts.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        """Return all bytes, and forget them."""
        answer = b"".join(self.parts)
        self.parts = []
        return answer


class Connection(HTTPConnection):
    """One connection of a client. At a time the loop or one worker uses it."""

    RequestHandlerClass = Request

    def __init__(
        self, server: Any, sock: socket.socket, heads: int, bodies: int
    ) -> None:
        super().__init__(server, sock, lambda *_: _Input())
        self._sizes = (heads, bodies)
        self.rfile, self.wfile = _Input(), _Output()
        self.buffered = bytearray()
        self.unsent: memoryview | bytes = b""
        self.ending = self.lingering = False
        self.since = time.monotonic()
        self.framing = Framing(*self._sizes)

    @property
    def seconds_left(self) -> float:
        """Return the seconds left in its present state; negative if it is late."""
        if self.lingering:
            most = _LINGER_SECONDS
        elif self.unsent:
            most = ANSWER_SECONDS
        else:
            most = REQUEST_SECONDS if self.buffered else IDLE_SECONDS
        return self.since + most - time.monotonic()

    def next_request(self) -> bool:
        """Return whether a request is complete; ``communicate`` then reads it."""
        end = self.framing.end(self.buffered) if self.buffered else None
        if end is not None:
            self._cut(end)
        return end is not None

    def last_request(self) -> None:
        """Use all bytes as a request, since the client sends no more."""
        self.framing.broken = True
        self._cut(len(self.buffered))

    def _cut(self, end: int) -> None:
        self.rfile = _Input(self.buffered[:end])
        del self.buffered[:end]
        self.ending = self.framing.broken
        self.framing = Framing(*self._sizes)

    def answer(self) -> None:
        """Run the request, and send as much of the answer as the client reads now."""
        again = self.communicate()  # type: ignore[no-untyped-call]
        self.ending = self.ending or not again
        self.unsent = self.wfile.drain()
        self.since = time.monotonic()
        self.send()

    def refuse(self, status: int, key: str, message: str) -> None:
        """Send an error, without a worker, as the last answer of the connection."""
        body = f'{{"{key}":{{"code":{status},"message":"{message}"}}}}'
        head = f"HTTP/1.1 {status} {key}\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self.ending, self.unsent = True, (head + body).encode()
        self.since = time.monotonic()
        self.send()

    def send(self) -> None:
        """Send as much as the client reads now."""
        left = memoryview(self.unsent)
        try:
            while left:
                left = left[self.socket.send(left) :]
        except BlockingIOError:
            pass
        except OSError:
            self.ending, self.lingering, left = True, True, left[:0]
        self.unsent = left


class ConnectionLoop:
    """The thread that has every connection that no worker uses."""

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[socket.socket, Any], Connection],
        run: Callable[[Connection], None],
        is_immediate: Callable[[bytes], bool],
    ) -> None:
        """Take connections from the socket ``listening``.

        ``run`` passes a connection with a complete request to a worker, which calls
        ``put`` after its answer. ``is_immediate``: whether a request is answered
        in this thread.
        """
        self._listening = listening
        self._connect, self._run_request = connect, run
        self._is_immediate = is_immediate
        self._epoll = select.epoll()
        self._all: dict[int, Connection] = {}
        self._waiting: dict[int, Connection] = {}
        self._postponed: deque[Connection] = deque()
        self._refusing = self._stopped = False
        self._started, self._closed = threading.Event(), threading.Event()
        listening.setblocking(False)
        self._epoll.register(listening.fileno(), select.EPOLLIN)

    def run(self, each_tick: Callable[[], None]) -> None:
        """Serve until ``stop``; then close every connection."""
        self._started.set()
        tick = time.monotonic()
        while not self._stopped:
            for descriptor, _ in self._epoll.poll(0 if self._postponed else _TICK):
                self._ready(descriptor)
            for _ in range(len(self._postponed)):
                self._process(self._postponed.popleft())
            if time.monotonic() - tick > _TICK:
                tick = time.monotonic()
                each_tick()
                self._expire()
        self._close()

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
            self._linger(connection)
        elif connection.buffered:
            self._process(connection)
        else:
            self._arm(connection, _READ)

    def _ready(self, descriptor: int) -> None:
        if descriptor == self._listening.fileno():
            self._accept()
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

    def _accept(self) -> None:
        """Accept all connections that wait."""
        while not self._refusing:
            try:
                client, address = self._listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._close_oldest()
                return
            client.setblocking(False)
            if len(self._all) >= MAX_CONNECTIONS:
                self._close_oldest()
            connection = self._connect(client, address)
            self._all[client.fileno()] = connection
            self._epoll.register(client.fileno(), 0)
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            piece = connection.socket.recv(_READ_SIZE)
        except BlockingIOError:
            return self._arm(connection, _READ)
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
        connection.last_request()
        return self._run_request(connection)

    def _process(self, connection: Connection) -> None:
        """Run a complete request; wait for the rest of an incomplete one."""
        try:
            complete = connection.next_request()
        except TooLarge:
            connection.refuse(*_LARGE)
            return self.put(connection)
        if not complete:
            return self._wait(connection)
        if not self._is_immediate(connection.rfile.getvalue()):
            return self._run_request(connection)
        connection.answer()
        if connection.buffered and not connection.ending and not connection.unsent:
            return self._postponed.append(connection)  # after other connections
        return self.put(connection)

    def _wait(self, connection: Connection) -> None:
        if connection.framing.expects:
            connection.framing.expects = False
            with contextlib.suppress(OSError):
                connection.socket.send(_CONTINUE)
        if len(connection.buffered) > _SMALL and self._buffered() > MAX_BUFFERED:
            return self._drop(connection)
        return self._arm(connection, _READ)

    def _buffered(self) -> int:
        return sum(len(each.buffered) for each in list(self._waiting.values()))

    def _linger(self, connection: Connection) -> None:
        """Read what the client still sends; a close at once could lose the answer."""
        if not connection.lingering:
            connection.lingering, connection.since = True, time.monotonic()
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        self._arm(connection, _READ)

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
