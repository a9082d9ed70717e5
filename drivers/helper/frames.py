# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""How the helper and its client speak: frames of JSON on a stream socket.

A frame is a length of four bytes, big-endian, then so many bytes of JSON. The
client sends ``{"verb", "timeout", "arguments"}``; the answer is ``{"value"}`` or
``{"error", "fields"}`` with the code and the constructor arguments of a class
of drivers.errors.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import orjson

#: A wanted state with 10,000 connectors is about 2.5 MB.
MAX_REQUEST = 4 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_CHUNK = 4096  # most frames; a longer one is asked for whole, once it is known


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


def receive(connection: socket.socket, limit: int | None = None) -> Any:
    """Return the next frame's content.

    :raises Closed: there is none, or not all of it.
    :raises BadFrame: it is longer than ``limit`` bytes or no JSON.
    """
    data = _more(connection, _LENGTH.size, b"")
    (length,) = _LENGTH.unpack_from(data)
    if limit is not None and length > limit:
        raise BadFrame(f"a frame of {length} bytes; the limit is {limit}")
    data = _more(connection, _LENGTH.size + length, data)
    try:
        return orjson.loads(data[_LENGTH.size : _LENGTH.size + length])
    except ValueError:
        raise BadFrame("a frame that is not JSON") from None


def _more(connection: socket.socket, wanted: int, data: bytes) -> bytes:
    """Read until ``data`` has ``wanted`` bytes.

    The two sides take turns, so nothing of a next frame can follow.
    """
    if len(data) >= wanted:
        return data
    chunks, held = [data], len(data)
    while held < wanted:
        chunk = connection.recv(max(_CHUNK, wanted - held))
        if not chunk:
            raise Closed(clean=held == 0)
        chunks.append(chunk)
        held += len(chunk)
    return b"".join(chunks)
