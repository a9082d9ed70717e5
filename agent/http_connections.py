# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Connections of the API's clients, all of them with one thread.

That thread reads and writes; it never waits for one client, nor works for one. A
request is handed to the workers when all of it is here, and their answer is sent
as fast as its client takes it. So a client that drips holds a file descriptor and
its bytes for a while, and no thread. What load balancers ask (``lane``) is
answered here, whatever the workers do.
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
#: Seconds that a client may leave its connection idle.
IDLE_SECONDS = 10.0
#: Seconds that a client may take to fetch an answer.
ANSWER_SECONDS = 30.0
#: Connections at once; a further one takes the place of the one that waits longest.
MOST = 512
#: Bytes of requests that are not whole yet, over all connections.
HELD_MAX = 16 * 2**20

_TICK = 0.1  # seconds
_LINGER_SECONDS = 2.0
_PIECE = 64 * 1024
_SMALL = 8 * 1024
_READ = select.EPOLLIN | select.EPOLLONESHOT
_WRITE = select.EPOLLOUT | select.EPOLLONESHOT
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = (408, "requestTimeout", "The request did not come in time: send it again.")
_LARGE = (413, "overLimit", "The request body has more bytes than are taken.")


class _Fields(HeaderReader):
    """The loop has answered Expect: cheroot shall not do it again."""

    def _allow_header(self, key_name: bytes) -> bool:
        return key_name != b"Expect"


class Request(HTTPRequest):
    """A request that is the last of its connection if its body came in chunks.

    Cheroot reads what an answer left of a body of known length, and nothing of
    a chunked one: the rest of it would be taken for the next request.
    """

    header_reader = _Fields()

    def parse_request(self) -> None:
        """Read the head, and decide what becomes of the connection."""
        super().parse_request()
        if b"Transfer-Encoding" in self.inheaders:
            self.close_connection = True


class _In(io.BytesIO):
    """The bytes of one request, as cheroot reads them."""

    bytes_read = 0

    def has_data(self) -> bool:
        """Nothing is left for another request."""
        return False


class _Out:
    """What is to be sent, kept until the answer is whole."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes_written = 0

    def write(self, data: bytes) -> int:
        """Keep it."""
        self.parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """All of it, once."""
        whole = b"".join(self.parts)
        self.parts = []
        return whole


class Connection(HTTPConnection):
    """One client. Either the loop has it, or one worker."""

    RequestHandlerClass = Request

    def __init__(
        self, server: Any, sock: socket.socket, heads: int, bodies: int
    ) -> None:
        super().__init__(server, sock, lambda *_: _In())
        self._sizes = (heads, bodies)
        self.rfile, self.wfile = _In(), _Out()
        self.held = bytearray()
        self.unsent: memoryview | bytes = b""
        self.ending = self.lingers = False
        self.since = time.monotonic()
        self.framing = Framing(*self._sizes)

    @property
    def waits(self) -> float:
        """How long it may go on like this; less than 0 is too long."""
        if self.lingers:
            most = _LINGER_SECONDS
        elif self.unsent:
            most = ANSWER_SECONDS
        else:
            most = REQUEST_SECONDS if self.held else IDLE_SECONDS
        return self.since + most - time.monotonic()

    def take(self) -> bool:
        """Whether a request is whole; then it is what ``communicate`` reads."""
        end = self.framing.end(self.held) if self.held else None
        if end is not None:
            self._cut(end)
        return end is not None

    def take_rest(self) -> None:
        """The client sends no more: what there is, is its request."""
        self.framing.broken = True
        self._cut(len(self.held))

    def _cut(self, end: int) -> None:
        self.rfile = _In(self.held[:end])
        del self.held[:end]
        self.ending = self.framing.broken
        self.framing = Framing(*self._sizes)

    def answer(self) -> None:
        """Answer the request that was taken, and send what the client takes now."""
        again = self.communicate()  # type: ignore[no-untyped-call]
        self.ending = self.ending or not again
        self.unsent = self.wfile.taken()
        self.since = time.monotonic()
        self.send()

    def say(self, status: int, key: str, message: str) -> None:
        """A last word, without a worker."""
        body = f'{{"{key}":{{"code":{status},"message":"{message}"}}}}'
        head = f"HTTP/1.1 {status} {key}\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self.ending, self.unsent = True, (head + body).encode()
        self.since = time.monotonic()
        self.send()

    def send(self) -> None:
        """Send as much as the client takes now."""
        left = memoryview(self.unsent)
        try:
            while left:
                left = left[self.socket.send(left) :]
        except BlockingIOError:
            pass
        except OSError:
            self.ending, self.lingers, left = True, True, left[:0]
        self.unsent = left


class Loop:
    """The thread that has every connection which no worker has."""

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[socket.socket, Any], Connection],
        hand: Callable[[Connection], None],
        lane: Callable[[bytes], bool],
    ) -> None:
        """``hand`` gives a connection with a whole request to a worker, who calls
        ``put`` when it has answered. ``lane``: which requests are answered here.
        """
        self._listening = listening
        self._connect, self._hand, self._lane = connect, hand, lane
        self._epoll = select.epoll()
        self._all: dict[int, Connection] = {}
        self._with_us: dict[int, Connection] = {}
        self._again: deque[Connection] = deque()
        self._refuses = self._stopped = False
        self._runs, self._closed = threading.Event(), threading.Event()
        listening.setblocking(False)
        self._epoll.register(listening.fileno(), select.EPOLLIN)

    def run(self, each_tick: Callable[[], None]) -> None:
        """Until ``stop``; then every connection is closed."""
        self._runs.set()
        tick = time.monotonic()
        while not self._stopped:
            for descriptor, _ in self._epoll.poll(0 if self._again else _TICK):
                self._ready(descriptor)
            for _ in range(len(self._again)):
                self._go(self._again.popleft())
            if time.monotonic() - tick > _TICK:
                tick = time.monotonic()
                each_tick()
                self._expire()
        self._close()

    def refuse(self) -> None:
        """Accept nobody any more, and take no request; answers are still sent."""
        self._refuses = True

    def stop(self) -> None:
        """Close every connection."""
        self._stopped = True
        if not self._runs.is_set():
            self._close()
        self._closed.wait()

    def _close(self) -> None:
        for connection in list(self._all.values()):
            self._drop(connection)
        self._epoll.close()
        self._closed.set()

    def put(self, connection: Connection) -> None:
        """Take a connection back; any thread may."""
        if connection.unsent:
            self._arm(connection, _WRITE)
        elif connection.ending:
            self._linger(connection)
        elif connection.held:
            self._go(connection)
        else:
            self._arm(connection, _READ)

    def _ready(self, descriptor: int) -> None:
        if descriptor == self._listening.fileno():
            self._accept()
            return
        connection = self._with_us.pop(descriptor, None)
        if connection is None:
            return
        if self._refuses and not connection.unsent:
            self._drop(connection)
        elif connection.unsent:
            connection.send()
            self.put(connection)
        else:
            self._read(connection)

    def _accept(self) -> None:
        """All who wait to be let in."""
        while not self._refuses:
            try:
                client, address = self._listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._make_room()
                return
            client.setblocking(False)
            if len(self._all) >= MOST:
                self._make_room()
            connection = self._connect(client, address)
            self._all[client.fileno()] = connection
            self._epoll.register(client.fileno(), 0)
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            piece = connection.socket.recv(_PIECE)
        except BlockingIOError:
            return self._arm(connection, _READ)
        except OSError:
            return self._drop(connection)
        if connection.lingers:
            return self._arm(connection, _READ) if piece else self._drop(connection)
        if not piece:
            return self._rest(connection)
        if not connection.held:
            connection.since = time.monotonic()
        connection.held += piece
        return self._go(connection)

    def _rest(self, connection: Connection) -> None:
        if not connection.held:
            return self._drop(connection)
        connection.take_rest()
        return self._hand(connection)

    def _go(self, connection: Connection) -> None:
        """Have a whole request answered; wait for the rest of any other."""
        try:
            whole = connection.take()
        except TooLarge:
            connection.say(*_LARGE)
            return self.put(connection)
        if not whole:
            return self._wait(connection)
        if not self._lane(connection.rfile.getvalue()):
            return self._hand(connection)
        connection.answer()
        if connection.held and not connection.ending and not connection.unsent:
            return self._again.append(connection)  # when others had their turn
        return self.put(connection)

    def _wait(self, connection: Connection) -> None:
        if connection.framing.expects:
            connection.framing.expects = False
            with contextlib.suppress(OSError):
                connection.socket.send(_CONTINUE)
        if len(connection.held) > _SMALL and self._held() > HELD_MAX:
            return self._drop(connection)
        return self._arm(connection, _READ)

    def _held(self) -> int:
        return sum(len(each.held) for each in list(self._with_us.values()))

    def _linger(self, connection: Connection) -> None:
        """Read what is still coming: to close at once could lose the answer."""
        if not connection.lingers:
            connection.lingers, connection.since = True, time.monotonic()
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        self._arm(connection, _READ)

    def _arm(self, connection: Connection, events: int) -> None:
        descriptor = connection.socket.fileno()
        self._with_us[descriptor] = connection
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._epoll.modify(descriptor, events)

    def _expire(self) -> None:
        """End what has waited for too long."""
        for connection in list(self._with_us.values()):
            if connection.waits < 0:
                del self._with_us[connection.socket.fileno()]
                self._end(connection)

    def _end(self, connection: Connection) -> None:
        if connection.held and not connection.unsent and not connection.lingers:
            connection.say(*_LATE)
            self.put(connection)
        else:
            self._drop(connection)

    def _make_room(self) -> None:
        """Close the connection that has waited longest."""
        waiting = sorted(self._with_us.values(), key=lambda each: each.since)
        for connection in waiting[:1]:
            del self._with_us[connection.socket.fileno()]
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._all.pop(connection.socket.fileno(), None)
        self._with_us.pop(connection.socket.fileno(), None)
        connection.close()
