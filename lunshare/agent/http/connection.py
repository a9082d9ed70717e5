# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One connection of a client: its present state, its requests and answers."""

from __future__ import annotations

import asyncio
import enum
import io
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import orjson

from lunshare.agent.http.answer import App, WsgiAnswer, call, date_header
from lunshare.agent.http.request_parser import ParsedRequest, Refusal, RequestParser
from lunshare.agent.request_scope import BEGAN, PROVEN, Credential

#: Bytes of an answer that are given to the socket at once.
_PIECE = 128 * 1024
_PEER = "X_REMOTE_UID"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = (408, "requestTimeout", "The request did not come in time: send it again.")
_CUT = "The connection ended before the request did: send it again."


class State(enum.Enum):
    """What it waits for, and the seconds until it must be over."""

    #: The keys of TLS; then a request, from its first byte to its last.
    READING = 10.0
    #: A worker; it has no deadline.
    RUNNING = float("inf")
    #: The client, which reads an answer.
    SENDING = 30.0
    #: The client, which gets no more answers, but may still send.
    LINGERING = 2.0


class Owner(Protocol):
    """Who has the connections. Only the thread of its loop calls it."""

    @property
    def buffer(self) -> memoryview:
        """Where all connections read, one after the other."""

    def run(self, connection: Connection) -> None:
        """Let somebody call ``answer``, then ``send`` in the thread of the loop."""

    def call_soon(self, function: Callable[[], None]) -> object:
        """Call it after what other connections do now."""

    def holds_too_much(self, connection: Connection) -> bool:
        """Return whether its request is not small, and too many bytes are held."""

    def drop(self, connection: Connection) -> None:
        """Forget a connection that has ended."""


class Connection(asyncio.BufferedProtocol):
    """One connection of a client. Only ``answer`` may run in another thread."""

    def __init__(
        self,
        owner: Owner,
        app: App,
        environ: Mapping[str, Any],
        body_max: int,
        serves: Callable[[], bool],
    ) -> None:
        """``environ``: what all of its requests have in the environment of WSGI.

        ``body_max``: the largest body, in bytes. ``serves``: whether there may be
        another request after this one.
        """
        self._owner, self._app, self._environ = owner, app, environ
        self._serves = serves
        self._parser = RequestParser(body_max)
        #: Its socket, and what is written to: the socket, or TLS above it.
        self.socket: asyncio.Transport | None = None
        self._stream: asyncio.Transport | None = None
        self.state, self.since = State.READING, time.monotonic()
        self._request: ParsedRequest | None = None
        self._complete_at = 0.0
        self._unsent = memoryview(b"")
        self._answer_size = 0
        self._is_full = self._is_cut = self._is_lost = False
        self._is_last = self._closes_at_once = False
        #: Whether its client had proven who it is before this request, and how by it.
        self.is_known, self.proof = False, cast(Credential | None, None)
        #: Bytes that came, and requests that were complete.
        self.received = self.requests = 0

    @property
    def seconds_left(self) -> float:
        """Return the seconds left in its present state; negative if it is late."""
        state = State.SENDING if self.unread else self.state
        return self.since + state.value - time.monotonic()

    @property
    def target(self) -> str:
        """The method and the path of the request that is complete."""
        environ = self._complete().environ
        return f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"

    @property
    def environ(self) -> Mapping[str, Any]:
        """What the request that is complete has in the environment of WSGI."""
        return self._complete().environ

    @property
    def is_peer(self) -> bool:
        """Whether the client is a process of this node at a unix socket."""
        return _PEER in self._environ

    @property
    def is_proven(self) -> bool:
        """Whether its last request has proven who the client is."""
        return self.is_peer or self.proof is not None

    @property
    def held(self) -> int:
        """Bytes that are held of requests which do not run yet."""
        return self._parser.held + (self._request.size if self._request else 0)

    @property
    def unread(self) -> int:
        """Bytes that are held of an answer which the client has not read."""
        is_sending = self.state is State.SENDING or self._has_unwritten()
        return self._answer_size if is_sending else 0

    def _complete(self) -> ParsedRequest:
        if self._request is None:
            raise AssertionError("there is no complete request")
        return self._request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin without TLS."""
        self.socket = cast(asyncio.Transport, transport)
        self.begin(self.socket)

    def begin(self, stream: asyncio.Transport) -> None:
        """Wait for a request. ``stream``: the socket, or TLS above it."""
        stream.set_write_buffer_limits(high=1, low=0)
        self._stream = stream
        self._enter(State.READING)
        self._proceed()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read so many bytes. While a request runs, they wait, and no more come."""
        self.received += nbytes
        if self.state is State.LINGERING:
            return
        data = self._owner.buffer[:nbytes]
        if self.state is not State.READING or self._stream is None:
            self._parser.unparsed += data
            self._pause(True)
            return
        if not self._parser.is_begun:
            self._enter(State.READING)
        self._parser.feed(data)
        self._proceed()

    def eof_received(self) -> bool:
        """Note that the client sends no more; return whether it may get an answer."""
        self._is_cut = True
        if self._stream is not self.socket or self.state is State.LINGERING:
            return False
        if self.state is State.READING:
            self._proceed()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it, unless its request runs: then ``send`` does."""
        self._is_lost = True
        if self.state is not State.RUNNING:
            self._owner.drop(self)

    def pause_writing(self) -> None:
        """Note that the client has not read what was written."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Write more."""
        self._is_full = False
        if self.state is State.SENDING:
            self.write()

    def _enter(self, state: State) -> None:
        self.state, self.since = state, time.monotonic()

    def _pause(self, pauses: bool) -> None:
        if self.socket is not None:
            self.socket.pause_reading() if pauses else self.socket.resume_reading()

    def _proceed(self) -> None:
        """Run a complete request; wait for the rest of an incomplete one."""
        if self.state is not State.READING:
            return
        try:
            self._request = self._parser.next()
        except Refusal as refusal:
            self.refuse(refusal)
            return
        if self._request is not None:
            self._enter(State.RUNNING)
            self.requests += 1
            self._complete_at = time.perf_counter()
            self._owner.run(self)
        elif self._is_cut:
            self._end_early()
        else:
            self._wait()

    def _end_early(self) -> None:
        if self._parser.is_begun:
            self.refuse(Refusal(400, "badRequest", _CUT))
        else:
            self.abort()

    def _wait(self) -> None:
        if self._parser.takes_expectation() and self._stream is not None:
            self._stream.write(_CONTINUE)
        if self._owner.holds_too_much(self):
            self.abort()
        else:
            self._pause(False)

    def answer(self) -> bytes:
        """Run the request; return the bytes of its answer."""
        request = self._complete()
        request.size = 0
        environ = {**self._environ, **request.environ, BEGAN: self._complete_at}
        environ["wsgi.input"] = io.BytesIO(request.body)
        environ["wsgi.input_terminated"] = "HTTP_TRANSFER_ENCODING" in environ
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        result = call(self._app, environ)
        self.proof = environ.get(PROVEN)
        return result.data(is_head, self._connection_header(request, result))

    def _connection_header(self, request: ParsedRequest, result: WsgiAnswer) -> str:
        """Return it, and decide whether the connection ends with this answer."""
        is_cut = request.is_cut or result.ends_connection
        self._closes_at_once = not (is_cut or request.keeps)
        self._is_last = is_cut or self._closes_at_once or not self._serves()
        if self._is_last:
            return "close"
        return "" if request.is_new else "Keep-Alive"

    def refuse(self, refusal: Refusal) -> None:
        """Send an error, without a worker, as the last answer of the connection."""
        status, key = refusal.status, refusal.key
        body = orjson.dumps({key: {"code": status, "message": refusal.message}})
        head = f"HTTP/1.1 {status} {key}\r\nContent-Type: application/json\r\n"
        head += f"{date_header().decode()}\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self._is_last, self._closes_at_once = True, False
        self.send(head.encode() + body)

    def send(self, data: bytes) -> None:
        """Send an answer; then wait for the next request, or end."""
        self._request = None
        self._enter(State.SENDING)
        if self._is_lost:
            self._owner.drop(self)
            return
        self._unsent, self._answer_size = memoryview(data), len(data)
        self.write()

    def write(self) -> None:
        """Write as much of the answer as the client reads now."""
        while self._unsent and not self._is_full and self._stream is not None:
            piece, self._unsent = self._unsent[:_PIECE], self._unsent[_PIECE:]
            self._stream.write(piece)
        if self._is_lost or self._is_full:
            return
        if not self._is_last:
            self._enter(State.READING)
            if self._parser.has_more or self._is_cut:
                self._owner.call_soon(self._proceed)
            else:
                self._pause(False)  # paused if the request came before ``begin``
        elif not self._has_unwritten():
            self._end()

    def _has_unwritten(self) -> bool:
        """Whether TLS has given the socket more than it could send."""
        return self.socket is not None and self.socket.get_write_buffer_size() > 0

    def _end(self) -> None:
        """End after an answer. A close at once could lose it (RFC 9112, 9.6)."""
        self._enter(State.LINGERING)
        if self._stream is None:
            return
        if self._stream is not self.socket or self._is_cut:
            self._stream.close()
        elif self._closes_at_once and not self._parser.has_more:
            self._stream.close()  # its client has sent all that it will send
        else:
            self._stream.write_eof()
        self._pause(False)

    def expire(self) -> None:
        """End it: its client is late."""
        if self.state is State.READING and self._parser.is_begun:
            self.refuse(Refusal(*_LATE))
        else:
            self.abort()

    def abort(self) -> None:
        """Close the socket, whatever is not sent."""
        if self.socket is not None:
            self.socket.abort()
