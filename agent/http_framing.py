# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find the end of an HTTP request in the bytes received so far.

It only decides when a request is complete, so that a worker never waits for the
client. The HTTP library parses the request, from exactly these bytes. A request that
two programs can end in different places is refused (RFC 9112, 11.2): to a proxy
before this node, what follows would be another request.
"""

from __future__ import annotations

import re

_HEAD_END = re.compile(rb"\n\r?\n")
_SIZE_LINE = 1024  # bytes of a chunk's size with its extensions
_FIELD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n"  # RFC 9110, 5.1
_FIELDS = re.compile(rb"(?:%b)*\r\n" % _FIELD)
_TRAILER = re.compile(_FIELD)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
#: The fields that decide where a request ends, and which server it is for.
_SINGLE = re.compile(
    rb"^(content-length|transfer-encoding|host):[ \t]*([^\r\n]*?)[ \t]*\r$",
    re.IGNORECASE | re.MULTILINE,
)


class TooLarge(Exception):
    """The body in chunks has more bytes than are allowed."""


class Malformed(Exception):
    """The request has no certain end. The text says why."""


class Framing:
    """The end of one request, of which more and more bytes arrive."""

    def __init__(self, head_max: int, body_max: int) -> None:
        """``head_max``, ``body_max``: largest number of bytes of head and body."""
        self._head_max, self._body_max = head_max, body_max
        self._seen = 0
        self._body = 0
        self._length = 0
        self._chunked, self._decoded, self._last = False, 0, False
        #: The client waits for "100 Continue" before it sends the body.
        self.expects = False
        #: The rest of the request is not read, so the connection ends with it.
        self.broken = False

    def end(self, data: bytearray) -> int | None:
        """Return the end of the request, or None while it is incomplete.

        A request that is too large ends where the bytes end; the HTTP library, or
        the application, answers it with an error.

        :raises TooLarge: 413.
        :raises Malformed: 400.
        """
        if not self._body and not self._head(data):
            return self._broken(data) if len(data) > self._head_max else None
        if self._chunked:
            return self._chunks(data)
        if self._length > self._body_max:
            self.broken = True  # the application refuses it by its head
            return self._body
        end = self._body + self._length
        return end if len(data) >= end else None

    def _head(self, data: bytearray) -> bool:
        """Return whether the head is complete; if so, read it."""
        found = _HEAD_END.search(data, self._seen)
        if found is None:
            self._seen = max(0, len(data) - 3)
            return False
        self._body = self._seen = found.end()
        line, _, fields = bytes(data[: self._body]).lstrip().partition(b"\n")
        if not line.endswith(b"\r") or not _FIELDS.fullmatch(fields):
            raise Malformed("A header line is not a name, a colon and a value.")
        self._read(line, _single(fields))
        self.expects = b"100-continue" in fields.lower()
        return True

    def _read(self, line: bytes, fields: dict[bytes, bytes]) -> None:
        """Decide how the body ends."""
        length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
        if length is not None and not _LENGTH.fullmatch(length):
            raise Malformed("Content-Length must be a decimal number.")
        if coding is None:
            self._length = int(length or 0)
            return
        if length is not None:
            raise Malformed("Send Content-Length or Transfer-Encoding, not both.")
        if coding.lower() != b"chunked" or not line.endswith(b" HTTP/1.1\r"):
            raise Malformed("Transfer-Encoding must be chunked, and needs HTTP/1.1.")
        self._chunked = True

    def _chunks(self, data: bytearray) -> int | None:
        """Skip complete chunks; return the end of the last one, or None."""
        while (stop := data.find(b"\n", self._seen)) >= 0:
            line = bytes(data[self._seen : stop + 1])
            if self._last:
                self._seen = stop + 1
                if line == b"\r\n":
                    return self._seen
                if not _TRAILER.fullmatch(line):
                    raise Malformed("A trailer of the body is not a header line.")
            elif not self._chunk(line, stop, data):
                return None
        if len(data) - self._seen > _SIZE_LINE:
            raise _bad_chunk()
        return None

    def _chunk(self, line: bytes, stop: int, data: bytearray) -> bool:
        """Return whether this chunk is complete; if so, skip it."""
        found = _SIZE.fullmatch(line)
        if found is None:
            raise _bad_chunk()
        size = int(found[1], 16)
        if self._decoded + size > self._body_max:
            raise TooLarge
        self._last = not size
        behind = stop + 1 + (size + 2 if size else 0)
        if behind > len(data):
            return False
        if size and data[behind - 2 : behind] != b"\r\n":
            raise _bad_chunk()
        self._seen, self._decoded = behind, self._decoded + size
        return True

    def _broken(self, data: bytearray) -> int:
        self.broken = True
        return len(data)


def _single(fields: bytes) -> dict[bytes, bytes]:
    """Return the value of each field that a request has once, by its name.

    :raises Malformed: it has one twice, also with the same value.
    """
    found: dict[bytes, bytes] = {}
    for name, value in _SINGLE.findall(fields):
        if name.lower() in found:
            raise Malformed(f"The header {name.decode()} is there twice: send one.")
        found[name.lower()] = value
    return found


def _bad_chunk() -> Malformed:
    return Malformed("A chunk of the body has no valid size, or another length.")
