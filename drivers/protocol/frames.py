# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the helper and its client speak: frames of JSON on a stream socket.

A frame is a length of four bytes, big-endian, then so many bytes of JSON. The
client sends ``{"verb", "timeout", "arguments"}``; the answer is ``{"value"}`` or
``{"error", "fields"}`` with the code and the constructor arguments of a class
of lunshare.drivers.errors. Before it there may be any number of ``{"progress"}``,
with the bytes that are done, of a verb that works on bytes: its timeout counts from
the last.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import orjson

#: A wanted state with 10,000 connectors is about 2.5 MB, of 70,000 values.
MAX_REQUEST, MAX_VALUES = 4 * 1024 * 1024, 200_000
#: A frame of more bytes is a large one.
LARGE = 64 * 1024
_LENGTH = struct.Struct(">I")
_CHUNK = 4096  # most frames; a longer one gets a buffer of its size, once it is known


class BadFrame(Exception):
    """What came is not a frame; this connection is of no more use."""


class Closed(Exception):
    """The other side went away. ``clean`` when it was between two frames."""

    def __init__(self, clean: bool) -> None:
        super().__init__("the connection was closed")
        self.clean = clean


def send(connection: socket.socket, message: object) -> None:
    """Send one frame."""
    body = orjson.dumps(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(
    connection: socket.socket,
    limit: int | None = None,
    seconds: float | None = None,
    large: Callable[[float], None] | None = None,
) -> Any:
    """Return the next frame's content.

    The first byte is waited for; all others have to come within ``seconds``, and the
    connection's own timeout is how often that is looked at. ``large`` is called with
    the seconds that are left before a large frame is read.

    :raises Closed: there is none, or not all of it.
    :raises BadFrame: it is longer than ``limit`` bytes, no JSON, or does not come.
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

    The two sides take turns, so nothing of a next frame can follow.
    """

    def __init__(self, connection: socket.socket, seconds: float | None) -> None:
        self._connection, self._seconds = connection, seconds
        self.buffer = bytearray(_CHUNK)
        self._held = 0
        self._until: float | None = None

    def left(self) -> float:
        """Seconds until all of it has to be there."""
        if self._until is None:
            return self._seconds or 0.0
        return max(0.0, self._until - time.monotonic())

    def read(self, wanted: int) -> None:
        """Read until so many bytes are there."""
        if wanted > len(self.buffer):
            # Memory comes with the bytes: a page that nobody wrote to is none.
            whole = bytearray(wanted)
            whole[: self._held] = self.buffer[: self._held]
            self.buffer = whole
        with memoryview(self.buffer) as room:
            while self._held < wanted:
                self._held += self._piece(room[self._held :])

    def _piece(self, room: memoryview) -> int:
        while True:
            try:
                found = self._connection.recv_into(room)
            except BlockingIOError:  # SO_RCVTIMEO
                self._need_time()
                continue
            if not found:
                raise Closed(clean=self._held == 0)
            self._need_time()
            return found

    def _need_time(self) -> None:
        """A frame begins with its first byte; before it nobody is in a hurry."""
        if self._seconds is None:
            return
        if self._until is None and self._held:
            self._until = time.monotonic() + self._seconds
        elif self._until is not None and not self.left():
            raise BadFrame(f"a frame took longer than {self._seconds:g} seconds")


def _need_few(text: bytearray) -> None:
    """A list in JSON is two bytes, and sixty and more in memory."""
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise BadFrame(f"a frame of {values} values; the limit is {MAX_VALUES}")
