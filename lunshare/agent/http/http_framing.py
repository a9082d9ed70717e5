# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find the end of an HTTP request in the bytes received so far.

So a worker gets a complete request, and never waits for the client. A request that
two programs can end in different places is refused (RFC 9112, 11.2): to a proxy
before this node, what follows would be another request.
"""

from __future__ import annotations

import re

from lunshare.agent.http import http_head
from lunshare.agent.http.http_head import Head, Malformed

_HEAD_END = re.compile(rb"\n\r?\n")
_SIZE_LINE = 1024  # bytes of a chunk's size with its extensions, or of a trailer
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n")  # RFC 9110, 5.1
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_LENGTH = re.compile("[0-9]{1,18}")


class TooLarge(Exception):
    """The head, or a body in chunks, has more bytes than are allowed.

    What is not data in the chunks may have as many bytes as a head.
    """


class Framing:
    """The end of one request, of which more and more bytes arrive."""

    def __init__(self, head_max: int, body_max: int) -> None:
        """``head_max``, ``body_max``: largest number of bytes of head and body."""
        self._head_max, self._body_max = head_max, body_max
        self._seen = 0
        self._body = 0
        self._length = 0
        self._chunked, self._last = False, False
        #: What the chunks have contained so far.
        self.decoded = bytearray()
        #: The head, when it is complete.
        self.head: Head | None = None
        #: The client waits for "100 Continue" before it sends the body.
        self.expects = False
        #: The rest of the request is not read, so the connection ends with it.
        self.broken = False

    def end(self, data: bytearray) -> int | None:
        """Return the end of the request, or None while it is incomplete.

        A request whose body is too large by its Content-Length ends with its head; the
        application answers it with an error.

        :raises TooLarge: 413.
        :raises Malformed: 400.
        :raises OtherVersion: 505.
        """
        if self.head is None and not self._read_head(data):
            return None
        if self._chunked:
            return self._chunks(data)
        if self._length > self._body_max:
            self.broken = True  # the application refuses it by its head
            return self._body
        end = self._body + self._length
        return end if len(data) >= end else None

    def body(self, data: bytearray, end: int) -> bytes:
        """Return the body of the request, which ends there."""
        if self._chunked:
            return bytes(self.decoded)
        return bytes(data[self._body : end])

    def _read_head(self, data: bytearray) -> bool:
        """Return whether the head is complete; if so, read it."""
        found = _HEAD_END.search(data, self._seen)
        if (len(data) if found is None else found.end()) > self._head_max:
            raise TooLarge
        if found is None:
            self._seen = max(0, len(data) - 3)
            return False
        self._body = self._seen = found.end()
        # One empty line before a request is ignored (RFC 9112, 2.2), no other space.
        lines = bytes(data[: self._body]).removeprefix(b"\r\n")
        line, _, fields = lines.partition(b"\n")
        head = http_head.read(line, fields)
        self._decide(head)
        expected = head.environ.pop("HTTP_EXPECT", "").lower()
        self.expects = head.is_new and expected == "100-continue"
        self.head = head
        return True

    def _decide(self, head: Head) -> None:
        """Decide how the body ends."""
        length = head.environ.get("CONTENT_LENGTH")
        coding = head.environ.get("HTTP_TRANSFER_ENCODING")
        if length is not None and not _LENGTH.fullmatch(length):
            raise Malformed("Content-Length must be a decimal number.")
        if coding is None:
            self._length = int(length or 0)
            return
        if length is not None:
            raise Malformed("Send Content-Length or Transfer-Encoding, not both.")
        if coding.lower() != "chunked" or not head.is_new:
            raise Malformed("Transfer-Encoding must be chunked, and needs HTTP/1.1.")
        self._chunked = True

    def _chunks(self, data: bytearray) -> int | None:
        """Skip complete chunks; return the end of the last one, or None."""
        while (stop := data.find(b"\n", self._seen)) >= 0:
            line = bytes(data[self._seen : stop + 1])
            if len(line) > _SIZE_LINE:
                raise _bad_chunk()
            if stop - self._body - len(self.decoded) > self._head_max:
                raise TooLarge
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
        if len(self.decoded) + size > self._body_max:
            raise TooLarge
        self._last = not size
        behind = stop + 1 + (size + 2 if size else 0)
        if behind > len(data):
            return False
        if size and data[behind - 2 : behind] != b"\r\n":
            raise _bad_chunk()
        self.decoded += data[stop + 1 : stop + 1 + size]
        self._seen = behind
        return True


def _bad_chunk() -> Malformed:
    return Malformed("A chunk of the body has no valid size, or another length.")
