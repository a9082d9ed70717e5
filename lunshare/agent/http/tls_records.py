# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a client of TLS sends, before OpenSSL reads it: how much, and how fast.

A record need not carry data: a KeyUpdate of 27 bytes costs 25 us, and anybody may
send it. So the bytes without data are limited for each request, and the time that all
connections with TLS take in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from typing import cast

from lunshare.agent.http.connection import Connection, State

#: Bytes of one request that may carry no data: one incomplete record (16.6 KiB), or a
#: handshake; and as a share of its data, for the heads of its records.
_MAX_OVERHEAD = 20 * 1024
_DATA_FOR_OVERHEAD = 4
#: Seconds of one turn of the loop for records. What came later waits for the next.
_TURN_SECONDS = 0.01
_SHUTDOWN_SECONDS = State.LINGERING.value


class RecordTurns:
    """The time for records in each turn of a loop, in the order of their arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Only the thread of the loop may use it."""
        self._loop = loop
        self._late: deque[Callable[[], None]] = deque()
        self._spent = 0.0
        self._is_scheduled = False

    def run(self, function: Callable[[], None]) -> bool:
        """Call it, if this turn has time and nobody waits; return whether it had."""
        if has_time := self._spent < _TURN_SECONDS and not self._late:
            self._run(function)
        return has_time

    def run_later(self, function: Callable[[], None]) -> None:
        """Call it in a turn that has time for it."""
        self._late.append(function)
        self._schedule()

    def _run(self, function: Callable[[], None]) -> None:
        began = time.perf_counter()
        function()
        self._spent += time.perf_counter() - began
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn with those that had no time in the last one."""
        self._spent, self._is_scheduled = 0.0, False
        while self._late and self._spent < _TURN_SECONDS:
            self._run(self._late.popleft())
        if self._late:
            self._schedule()


class LimitedTls(sslproto.SSLProtocol):
    """The TLS of a connection: asyncio's, between its socket and the connection."""

    # asyncio allocates 256 KiB for each, whatever its client sends. It reads so much at
    # once, which is 4 ms of OpenSSL's time if these are records without data.
    max_size = 4 * 1024

    def __init__(
        self, turns: RecordTurns, connection: Connection, context: ssl.SSLContext
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            connection,
            context,
            cast("asyncio.Future[None]", None),  # as for a server of asyncio
            server_side=True,
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self._turns, self._connection = turns, connection
        self._late = bytearray()
        self._requests = self._size = self._before = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; the connection begins after it."""
        self._connection.accept(cast(asyncio.Transport, transport))
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        """Read so many bytes, now or when it is their turn."""
        if not self._late and self._turns.run(lambda: self._read(nbytes)):
            return
        if not self._late:
            self._turns.run_later(self._resume)
        self._late += self.get_buffer(-1)[:nbytes]
        self._connection.socket.pause_reading()

    def _resume(self) -> None:
        """Read more, and what had to wait; that may pause it again."""
        self._connection.socket.resume_reading()
        self._read_late()

    def _read_late(self) -> None:
        late, self._late = self._late, bytearray()
        while late and not self._connection.socket.is_closing():
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(late))
            buffer[:size] = late[:size]
            del late[:size]
            self._read(size)

    def _read(self, size: int) -> None:
        """Read bytes of the buffer; end a connection that sends no data."""
        if self._requests != self._connection.requests:
            self._requests = self._connection.requests
            self._size, self._before = 0, self._connection.received
        self._size += size
        super().buffer_updated(size)
        data = self._connection.received - self._before
        if self._size - data > _MAX_OVERHEAD + data // _DATA_FOR_OVERHEAD:
            self._connection.abort()

    def eof_received(self) -> None:
        """Read what had to wait: no more comes."""
        self._read_late()
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the connection, also before it has begun."""
        self._late.clear()
        super().connection_lost(exc)
        self._connection.connection_lost(exc)

    def resume_writing(self) -> None:
        """Write more, and let the connection write more."""
        super().resume_writing()
        self._connection.resume_writing()
