# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One connection of a client: its bytes, its present state, its request."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from lunshare.agent.http import http_answer
from lunshare.agent.http.http_answer import App
from lunshare.agent.http.http_framing import Framing
from lunshare.agent.http.http_head import Head
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


class Connection:
    """One connection of a client. At a time the loop or one worker uses it."""

    def __init__(
        self,
        sock: socket.socket,
        app: App,
        environ: Mapping[str, Any],
        sizes: tuple[int, int],
        serves: Callable[[], bool],
    ) -> None:
        """``environ``: what all of its requests have in the environment of WSGI.

        ``sizes``: the largest head and body, in bytes. ``serves``: whether there may
        be another request after this one.
        """
        self.socket = sock
        self._app, self._environ, self._serves = app, environ, serves
        self._sizes = sizes
        self.buffered = bytearray()
        self.unsent: memoryview | bytes = b""
        self.ending = self.lingering = False
        self.handshaking = isinstance(sock, ssl.SSLSocket)
        self.since = time.monotonic()
        self.framing = Framing(*sizes)
        self._request: tuple[Head, bytes, float] | None = None
        self._request_size = self._answer_size = 0
        self._was_last = False

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
        if self.handshaking and isinstance(self.socket, ssl.SSLSocket):
            self.socket.do_handshake()
            self.handshaking = False
            self.since = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether its client has sent all that it will send, and got the answer.

        To close it loses no answer then: bytes that come to a closed socket would
        (RFC 9112, 9.6). With TLS the client still answers to the end of the stream.
        """
        if (
            not self._was_last
            or self.buffered
            or isinstance(self.socket, ssl.SSLSocket)
        ):
            return False
        try:
            return not self.socket.recv(1)
        except OSError:
            return True

    def finish(self) -> None:
        """Tell the client that nothing more is sent."""
        with contextlib.suppress(OSError, ValueError):
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket.unwrap()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def next_request(self) -> bool:
        """Return whether a request is complete; ``answer`` then answers it.

        :raises TooLarge, Malformed, OtherVersion: ``refuse`` it.
        """
        framing = self.framing
        end = framing.end(self.buffered) if self.buffered else None
        if end is None or framing.head is None:
            return False
        body = framing.body(self.buffered, end)
        self._request = framing.head, body, time.perf_counter()
        self._request_size = end + len(framing.decoded)
        del self.buffered[:end]
        self.ending = framing.broken
        self.framing = Framing(*self._sizes)
        return True

    @property
    def asked(self) -> str:
        """The method and the path of the request that is complete."""
        environ = self._complete()[0].environ
        return f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"

    @property
    def held(self) -> int:
        """Bytes that are held of requests which do not run yet."""
        return len(self.buffered) + len(self.framing.decoded) + self._request_size

    @property
    def unread(self) -> int:
        """Bytes that are held of an answer which the client has not read."""
        return self._answer_size if self.unsent else 0

    def _complete(self) -> tuple[Head, bytes, float]:
        if self._request is None:
            raise AssertionError("there is no complete request")
        return self._request

    def answer(self) -> None:
        """Run the request, and send as much of the answer as the client reads now."""
        head, body, complete_at = self._complete()
        self._request, self._request_size = None, 0
        environ = {**self._environ, **head.environ, BEGAN: complete_at}
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = "HTTP_TRANSFER_ENCODING" in environ
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        answer = http_answer.of(self._app, environ)
        self._begin(answer.data(is_head, self._connection_header(head, answer)))

    def _connection_header(self, head: Head, answer: http_answer.Answer) -> str:
        """Return it, and decide whether the connection ends with this answer."""
        ends = self.ending or answer.ends_connection
        self._was_last = not ends and not head.keeps
        self.ending = ends or self._was_last or not self._serves()
        if self.ending:
            return "close"
        return "" if head.is_new else "Keep-Alive"

    def refuse(self, status: int, key: str, message: str) -> None:
        """Send an error, without a worker, as the last answer of the connection."""
        body = f'{{"{key}":{{"code":{status},"message":"{message}"}}}}'
        head = f"HTTP/1.1 {status} {key}\r\nContent-Type: application/json\r\n"
        head += f"{http_answer.date_header().decode()}\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request, self._request_size = None, 0
        self.ending = True
        self._begin((head + body).encode())

    def _begin(self, data: bytes) -> None:
        """Begin to send an answer."""
        self.unsent, self._answer_size = data, len(data)
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

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
