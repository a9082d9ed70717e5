# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One connection of a client: its bytes, its present state, its request.

Cheroot parses a request, from bytes that are complete, and runs it.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import io
import socket
import ssl
import time
from typing import Any

from cheroot import wsgi
from cheroot.server import HeaderReader, HTTPConnection, HTTPRequest

from lunshare.agent.http_framing import Framing
from lunshare.agent.request_scope import BEGAN

#: Seconds from the first byte of a request to its last one.
REQUEST_SECONDS = 10.0
#: Seconds until the client and this node have agreed on the keys of TLS.
HANDSHAKE_SECONDS = 10.0
#: Seconds that a connection may be idle.
IDLE_SECONDS = 10.0
#: Seconds that a client may take to read an answer.
ANSWER_SECONDS = 30.0
_LINGER_SECONDS = 2.0


class _HeaderFields(HeaderReader):
    """Header fields without Expect, which the loop has answered already.

    Nor those with an underscore: in the environment of WSGI they would replace the
    same name with a hyphen, such as one that a proxy has checked.
    """

    def _allow_header(self, key_name: bytes) -> bool:
        return key_name != b"Expect" and b"_" not in key_name


class Request(HTTPRequest):
    """A request. A body in chunks makes it the last one of its connection.

    Cheroot reads the rest of a body of known length, but not of a chunked one;
    that rest would be read as the next request.
    """

    header_reader = _HeaderFields()

    def __init__(self, server: Any, conn: Connection) -> None:
        super().__init__(server, conn)
        if isinstance(conn.socket, ssl.SSLSocket):
            self.scheme = b"https"

    def parse_request(self) -> None:
        """Read the head, and decide whether the connection ends with the request."""
        super().parse_request()
        if b"Transfer-Encoding" in self.inheaders:
            self.close_connection = True

    def send_headers(self) -> None:
        """Send the head of the answer, with the date."""
        self.outheaders.append((b"Date", _date(int(time.time()))))
        super().send_headers()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """Return the time of an answer. Its text changes once a second."""
    return email.utils.formatdate(second, usegmt=True).encode()


class Gateway(wsgi.Gateway_10):
    """Calls the application, which gets to know when its request was complete."""

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the environment of WSGI."""
        environ: dict[str, Any]
        environ = super().get_environ()  # type: ignore[no-untyped-call]
        environ[BEGAN] = self.req.conn.complete_at
        return environ


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
        self.handshaking = isinstance(sock, ssl.SSLSocket)
        self.since = time.monotonic()
        self.complete_at = time.perf_counter()
        self.framing = Framing(*self._sizes)

    @property
    def seconds_left(self) -> float:
        """Return the seconds left in its present state; negative if it is late."""
        if self.lingering:
            most = _LINGER_SECONDS
        elif self.unsent:
            most = ANSWER_SECONDS
        elif self.handshaking:
            most = HANDSHAKE_SECONDS
        else:
            most = REQUEST_SECONDS if self.buffered else IDLE_SECONDS
        return self.since + most - time.monotonic()

    def shake_hands(self) -> None:
        """Go on with the handshake of TLS, if it is not done.

        :raises OSError: it needs more bytes of the client, or it failed.
        """
        if self.handshaking:
            self.socket.do_handshake()
            self.handshaking = False
            self.since = time.monotonic()

    def finish(self) -> None:
        """Tell the client that nothing more is sent."""
        with contextlib.suppress(OSError, ValueError):
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket.unwrap()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

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
        self.complete_at = time.perf_counter()
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
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.ending, self.lingering, left = True, True, left[:0]
        self.unsent = left
