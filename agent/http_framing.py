# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Find the end of an HTTP request in the bytes received so far.

It only decides when a request is complete, so that a worker never waits for the
client. The HTTP library parses the request, from exactly these bytes. If the two
differ about its end, the connection is closed.
"""

from __future__ import annotations

import io
import re

from cheroot.server import HeaderReader

_HEAD_END = re.compile(rb"\n\r?\n")
_SIZE_LINE = 1024  # bytes of a chunk's size with its extensions


class TooLarge(Exception):
    """The body in chunks has more bytes than are allowed."""


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
        #: The end is not certain, so the connection ends with this request.
        self.broken = False

    def end(self, data: bytearray) -> int | None:
        """Return the end of the request, or None while it is incomplete.

        A request that is too large or malformed ends where the bytes end; the HTTP
        library answers it with an error.

        :raises TooLarge: 413.
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
        head = bytes(data[: self._body])
        lower = head.lower()
        if b"content-length" in lower or b"transfer-encoding" in lower:
            self._read(head)
            self.expects = b"100-continue" in lower
        return True

    def _read(self, head: bytes) -> None:
        """Read the head with the parser of the library."""
        try:
            fields = HeaderReader()(io.BytesIO(head.lstrip().partition(b"\n")[2]))
            self._length = max(0, int(fields.get(b"Content-Length", 0)))
        except ValueError:
            self.broken = True
            return
        self._chunked = b"chunked" in fields.get(b"Transfer-Encoding", b"").lower()

    def _chunks(self, data: bytearray) -> int | None:
        """Skip complete chunks; return the end of the last one, or None."""
        while (stop := data.find(b"\n", self._seen)) >= 0:
            line = bytes(data[self._seen : stop]).strip()
            if self._last:
                self._seen = stop + 1
                if not line:
                    return self._seen
            elif not self._chunk(line, stop, len(data)):
                return self._broken(data) if self.broken else None
        if len(data) - self._seen > _SIZE_LINE:
            return self._broken(data)
        return None

    def _chunk(self, line: bytes, stop: int, have: int) -> bool:
        """Return whether this chunk is complete; if so, skip it."""
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            self.broken = True
            return False
        if self._decoded + size > self._body_max:
            raise TooLarge
        self._last = not size
        behind = stop + 1 + (size + 2 if size else 0)
        if behind > have:
            return False
        self._seen, self._decoded = behind, self._decoded + size
        return True

    def _broken(self, data: bytearray) -> int:
        self.broken = True
        return len(data)
