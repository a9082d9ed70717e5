# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""One connection of a client: its present state, its requests and answers."""

from __future__ import annotations

import asyncio
import enum
import io
import socket
import struct
import sys
import time
from typing import Any, Protocol, cast

import orjson

from lunshare.agent.http.answer import App, WsgiAnswer, call
from lunshare.agent.http.request_parser import ParsedRequest, Refusal, RequestParser
from lunshare.agent.http.sockets import bound_address
from lunshare.agent.http.tls import Certificates
from lunshare.agent.listen_addresses import Address
from lunshare.agent.request_scope import BEGAN, PROVEN, Credential

#: Bytes of an answer that are given to the socket at once. A connection with TLS keeps
#: a buffer of the largest.
_PIECE = 128 * 1024
#: Bytes that the kernel takes of an answer before its client reads, doubled for its own
#: use. Without it they are up to 4 MiB (tcp_wmem), which this thread copies.
_SEND_BUFFER = 64 * 1024
_PEER = "X_REMOTE_UID"
_PEER_FORM = struct.Struct("3i")  # pid, uid and gid: unix(7), SO_PEERCRED
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = (408, "requestTimeout", "The request did not come in time: send it again.")
_CUT = "The connection ended before the request did: send it again."
_TOO_LARGE = "413"  # its client may still send the body that was refused


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
        """``max_body``: bytes of the largest body. ``sock`` listens at the address."""
        self.app, self.address, self.max_body = app, address, max_body
        self.certificates, self.socket = tls, sock
        #: Whether a client may send another request after its present one.
        self.serves = True
        self.bind_addr = bound_address(sock)
        if not address.is_socket:  # connections that it accepts have the same
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        scheme = "http" if tls is None else "https"
        host, port = ("localhost", 80)
        if not isinstance(self.bind_addr, str):
            host, port = self.bind_addr
        self._environ = {
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

    def environ(self, client: socket.socket, address: Any) -> dict[str, Any]:
        """Return what all requests of a client have in the environment of WSGI."""
        if not self.address.is_socket:
            host, port, *_ = address
            return {**self._environ, "REMOTE_ADDR": host, "REMOTE_PORT": str(port)}
        option = socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_FORM.size
        _, uid, _ = _PEER_FORM.unpack(client.getsockopt(*option))
        return {**self._environ, _PEER: str(uid)}


class Owner(Protocol):
    """Who has the connections. Only the thread of its loop calls it."""

    #: Where all connections read, one after the other.
    buffer: memoryview

    def run(self, connection: Connection) -> None:
        """Let somebody call ``answer``, then ``send`` in the thread of the loop."""

    def holds_too_much(self, connection: Connection) -> bool:
        """Return whether its request is not small, and too many bytes are held."""

    def drop(self, connection: Connection) -> None:
        """Forget a connection that has ended."""


class Connection(asyncio.BufferedProtocol):
    """One connection of a client. Only ``answer`` may run in another thread."""

    #: Its socket, and what is written to: the socket, or TLS above it.
    socket: asyncio.Transport
    _stream: asyncio.Transport

    def __init__(
        self, owner: Owner, listener: Listener, environ: dict[str, Any]
    ) -> None:
        """``environ``: what all of its requests have in the environment of WSGI."""
        self._owner, self._listener, self._environ = owner, listener, environ
        self._parser = RequestParser(listener.max_body)
        self._has_tls = listener.certificates is not None
        #: The request that is complete, or an empty one.
        self.request = ParsedRequest()
        self.state, self.since = State.READING, time.monotonic()
        self._unsent, self._answer_size = memoryview(b""), 0
        self._is_accepted = self._is_cut = self._is_lost = False
        self._is_last = self._closes_at_once = False
        #: Whether the client is a process of this node at a unix socket.
        self.is_peer = _PEER in environ
        #: Who its client had proven to be before this request, and how by it.
        self.user, self.proof = cast(str | None, None), cast(Credential | None, None)
        #: Bytes that came, and requests that were complete.
        self.received = self.requests = 0

    @property
    def seconds_left(self) -> float:
        """Return the seconds left in its present state; negative if it is late."""
        return self.since + self.state.value - time.monotonic()

    @property
    def is_proven(self) -> bool:
        """Whether its last request has proven who the client is."""
        return self.is_peer or self.proof is not None

    @property
    def held(self) -> int:
        """Bytes that are held of requests which do not run yet."""
        return self._parser.held + self.request.size

    @property
    def unread(self) -> int:
        """Bytes that are held of an answer which the client has not read."""
        return self._answer_size if self.state is State.SENDING else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request; ``transport`` is the socket, or TLS above it."""
        self._stream = cast(asyncio.Transport, transport)
        if not self._has_tls:
            self.accept(self._stream)
        self._enter(State.READING)

    def accept(self, socket: asyncio.Transport) -> None:
        """Note the socket, above which TLS may begin."""
        socket.set_write_buffer_limits(0)
        self.socket, self._is_accepted = socket, True

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read so many bytes. While a request runs, they wait, and no more come."""
        self.received += nbytes
        if self.state is State.LINGERING:
            return
        data = self._owner.buffer[:nbytes]
        if self.state is not State.READING:
            self._parser.unparsed += data
            self.socket.pause_reading()
            return
        if not self._parser.is_begun:
            self._enter(State.READING)
        self._parser.feed(data)
        self._proceed()

    def eof_received(self) -> bool:
        """Note that the client sends no more; return whether it may get an answer."""
        self._is_cut = True
        if self._has_tls or self.state is State.LINGERING:
            return False
        self._proceed()
        return True

    def connection_lost(self, _error: BaseException | None) -> None:
        """Forget it, unless its request runs: then ``send`` does."""
        self._is_lost, self._unsent = True, memoryview(b"")
        if self.state is not State.RUNNING:
            self._owner.drop(self)

    def resume_writing(self) -> None:
        """Write more, when the transport is done: the kernel has taken it all."""
        asyncio.get_running_loop().call_soon(self._write)

    def _enter(self, state: State) -> None:
        self.state, self.since = state, time.monotonic()

    def _proceed(self) -> None:
        """Run a complete request; wait for the rest of an incomplete one."""
        if self.state is not State.READING:
            return
        try:
            request = self._parser.next()
        except Refusal as refusal:
            self.refuse(refusal)
            return
        if request is not None:
            request.environ[BEGAN] = time.perf_counter()
            self._enter(State.RUNNING)
            self.request = request
            self.requests += 1
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
        if self._parser.takes_expectation():
            self._stream.write(_CONTINUE)
        if self._owner.holds_too_much(self):
            self.abort()
        else:
            self.socket.resume_reading()

    def answer(self) -> bytes:
        """Run the request; return the bytes of its answer."""
        request = self.request
        request.size = 0
        environ = {**self._environ, **request.environ}
        environ["wsgi.input"] = io.BytesIO(request.body)
        environ["wsgi.input_terminated"] = "HTTP_TRANSFER_ENCODING" in environ
        result = call(self._listener.app, environ)
        self.proof = environ.get(PROVEN)
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        return result.data(is_head, self._connection_header(request, result))

    def _connection_header(self, request: ParsedRequest, result: WsgiAnswer) -> str:
        """Return it, and decide whether the connection ends with this answer."""
        is_cut = request.is_cut or result.status.startswith(_TOO_LARGE)
        self._closes_at_once = not (is_cut or request.keeps)
        self._is_last = is_cut or self._closes_at_once or not self._listener.serves
        if self._is_last:
            return "close"
        return "" if request.is_new else "Keep-Alive"

    def refuse(self, refusal: Refusal) -> None:
        """Send an error, without a worker, as the last answer of the connection."""
        fault = {"code": refusal.status, "message": refusal.message}
        status, kind = f"{refusal.status} {refusal.key}", "application/json"
        body = orjson.dumps({refusal.key: fault})
        self._is_last, self._closes_at_once = True, False
        answer = WsgiAnswer(status, [("Content-Type", kind)], body)
        self.send(answer.data(False, "close"))

    def send(self, data: bytes) -> None:
        """Send an answer; then wait for the next request, or end."""
        self.request = ParsedRequest()
        self._enter(State.SENDING)
        if self._is_lost:
            self._owner.drop(self)
            return
        self._unsent, self._answer_size = memoryview(data), len(data)
        self._write()

    def _write(self) -> None:
        """Write what the client reads now; after the last byte, proceed or end."""
        if self.state is not State.SENDING:
            return
        while self._unsent and self._is_writable:
            piece, self._unsent = self._unsent[:_PIECE], self._unsent[_PIECE:]
            self._stream.write(piece)
        if not self._is_writable:
            return
        self._unsent = memoryview(b"")  # its end, of no bytes, would keep the answer
        if self._is_last:
            self._end()
            return
        self._enter(State.READING)
        if self._parser.has_more or self._is_cut:
            asyncio.get_running_loop().call_soon(self._proceed)
        else:
            self.socket.resume_reading()

    @property
    def _is_writable(self) -> bool:
        """Whether the client is there, and the kernel has all that was written."""
        return not (self.socket.is_closing() or self.socket.get_write_buffer_size())

    def _end(self) -> None:
        """End after an answer. A close at once could lose it (RFC 9112, 9.6)."""
        self._enter(State.LINGERING)
        is_over = self._closes_at_once and not self._parser.has_more
        if self._has_tls or self._is_cut or is_over:
            self._stream.close()  # its client has sent all that it will send
        else:
            self._stream.write_eof()
        self.socket.resume_reading()

    def expire(self) -> None:
        """End it: its client is late."""
        if self.state is State.READING and self._parser.is_begun:
            self.refuse(Refusal(*_LATE))
        else:
            self.abort()

    def abort(self) -> None:
        """Close the socket, whatever is not sent."""
        if self._is_accepted:
            self.socket.abort()
