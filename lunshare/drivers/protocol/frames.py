# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Frames of JSON on a stream socket, between helper and client.

A frame is a length of four bytes, big-endian, then so many bytes of JSON: a message
(lunshare.drivers.protocol.messages).
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import orjson

#: A wanted state with 10,000 connectors is about 2.5 MB, of 70,000 values; 100,000
#: addresses of hosts are at most 4.2 MB.
MAX_REQUEST, MAX_VALUES = 5 * 1024 * 1024, 200_000
#: A frame of more bytes is a large frame.
LARGE = 64 * 1024
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_CHUNK = 4096  # enough for most frames; a longer one gets a buffer of its size


class BadFrame(Exception):
    """The received bytes are not a frame; the connection cannot be used any more."""


class Closed(Exception):
    """The other side closed the connection; ``clean`` when between two frames."""

    def __init__(self, clean: bool) -> None:
        super().__init__("the connection was closed")
        self.clean = clean


def connect(path: str, seconds: float) -> socket.socket:
    """Connect to the unix socket at ``path``; wait so long while its queue is full.

    A timeout of Python's would make the connect non-blocking, and that fails at once
    when the queue is full (unix(7), EAGAIN). Under eventlet, as in cinder-volume, every
    connect is non-blocking, and is repeated until that timeout (eventlet 0.41).

    :raises OSError: nobody listens, or the queue is full for so long, or another user
        than root and this one listens.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        whole = int(seconds)
        timeval = struct.pack("ll", whole, int((seconds - whole) * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        # eventlet removes select.poll, which shows that it has replaced sockets too.
        connection.settimeout(None if hasattr(select, "poll") else seconds)
        connection.connect(path)
        _need_root_or_self(connection)
    except (BlockingIOError, TimeoutError):
        connection.close()
        raise ConnectionError("it accepts no connections") from None
    except BaseException:
        connection.close()
        raise
    return connection


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the other side (SO_PEERCRED, unix(7)).

    Of a client that is the user who has called listen(2): with systemd's socket, root.
    """
    data = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    return int(_CREDENTIALS.unpack(data)[1])


def _need_root_or_self(connection: socket.socket) -> None:
    """Another user could have created the socket, and answer that access is closed."""
    uid = peer_uid(connection)
    if uid not in (0, os.geteuid()):
        raise ConnectionError(f"user {uid}, not root, listens there")


def send(connection: socket.socket, message: object) -> None:
    """Send one frame."""
    connection.sendall(encode(message))


def encode(message: object) -> bytes:
    """Return the frame of a message.

    :raises TypeError: it is not JSON.
    """
    body = orjson.dumps(message)
    return _LENGTH.pack(len(body)) + body


def receive(
    connection: socket.socket,
    limit: int | None = None,
    seconds: float | None = None,
    large: Callable[[float], None] | None = None,
) -> Any:
    """Return the next frame's content.

    There is no time limit for the first byte. All others have to come within
    ``seconds``, and the connection's own timeout is how often that is checked.
    ``large`` is called with the seconds that are left before a large frame is read.

    :raises Closed: the connection ended before the frame was complete.
    :raises BadFrame: it is longer than ``limit`` bytes, not JSON, or too slow.
    """
    frame = _Frame(connection, seconds)
    frame.read(_LENGTH.size)
    (length,) = _LENGTH.unpack_from(frame.buffer)
    if limit is not None and length > limit:
        raise BadFrame(f"a frame of {length} bytes; the limit is {limit}")
    if large and length > LARGE:
        large(frame.left())
    frame.read(_LENGTH.size + length)
    body = memoryview(frame.buffer)[_LENGTH.size : _LENGTH.size + length]
    if limit is not None and length > LARGE:
        _need_few(frame.buffer)
    try:
        return orjson.loads(body)
    except ValueError:
        raise BadFrame("a frame that is not JSON") from None


class _Frame:
    """One buffer, filled as the bytes come.

    No byte of the next frame is read: an answer may follow a progress frame at once.
    """

    def __init__(self, connection: socket.socket, seconds: float | None) -> None:
        self._connection, self._seconds = connection, seconds
        self.buffer = bytearray(_CHUNK)
        self._held = 0
        self._until: float | None = None

    def left(self) -> float:
        """Seconds until the frame has to be complete."""
        if self._until is None:
            return self._seconds or 0.0
        return max(0.0, self._until - time.monotonic())

    def read(self, wanted: int) -> None:
        """Read until the buffer has ``wanted`` bytes."""
        if wanted > len(self.buffer):
            # The kernel provides a page of memory only when it is written to.
            complete = bytearray(wanted)
            complete[: self._held] = self.buffer[: self._held]
            self.buffer = complete
        with memoryview(self.buffer) as free:
            while self._held < wanted:
                self._held += self._piece(free[self._held : wanted])

    def _piece(self, free: memoryview) -> int:
        while True:
            try:
                length = self._connection.recv_into(free)
            except BlockingIOError:  # SO_RCVTIMEO
                self._need_time()
                continue
            if not length:
                raise Closed(clean=self._held == 0)
            self._need_time()
            return length

    def _need_time(self) -> None:
        """Check the time of the frame, which starts with its first byte."""
        if self._seconds is None:
            return
        if self._until is None and self._held:
            self._until = time.monotonic() + self._seconds
        elif self._until is not None and not self.left():
            raise BadFrame(f"a frame took longer than {self._seconds:g} seconds")


def _need_few(text: bytearray) -> None:
    """Limit the values: a list is two bytes in JSON, and over 60 in memory."""
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise BadFrame(f"a frame of {values} values; the limit is {MAX_VALUES}")
