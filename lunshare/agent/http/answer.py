# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Call the application (WSGI, PEP 3333), and return the bytes of its answer."""

from __future__ import annotations

import email.utils
import functools
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from oslo_log import log

LOG = log.getLogger(__name__)

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Headers = list[tuple[str, str]]

_WITHOUT_BODY = ("1", "204", "304")
_FAILED = "500 Internal Server Error"
_LENGTH = "content-length"
_LINE_END = re.compile("[\r\n\0]")


class WsgiAnswer:
    """The answer to one request, from which its bytes are made."""

    def __init__(self, status: str, headers: Headers, body: bytes = b"") -> None:
        """Join the head.

        :raises ValueError: a header has the end of a line, or is not of Latin-1.
        """
        lines = [f"HTTP/1.1 {status}", *(f"{key}: {value}" for key, value in headers)]
        head = "\r\n".join(lines)
        if len(_LINE_END.findall(head)) != 2 * (len(lines) - 1):
            raise ValueError("a header has the end of a line")
        self.status, self._body = status, body
        self._head = head.encode("latin-1")
        self._has_length = any(key.lower() == _LENGTH for key, _ in headers)

    def data(self, is_head: bool, connection: str) -> bytes:
        """Return all bytes; ``connection``: the header of that name, or ""."""
        is_empty = is_head or self.status.startswith(_WITHOUT_BODY)
        body = b"" if is_empty else self._body
        lines = [self._head, _date_header(int(time.time()))]
        if not (is_empty or self._has_length):
            lines.append(b"Content-Length: %d" % len(body))
        if connection:
            lines.append(b"Connection: " + connection.encode())
        return b"\r\n".join((*lines, b"", body))


def call(app: App, environ: dict[str, Any]) -> WsgiAnswer:
    """Return the answer of the application; 500 if it fails."""
    status, headers, body = _FAILED, Headers(), list[bytes]()

    def start_response(line: str, fields: Headers, exc_info: object = None) -> Any:
        nonlocal status, headers
        status, headers = line, fields
        return body.append

    try:
        parts = app(environ, start_response)
        try:
            body.extend(parts)
        finally:
            if close := getattr(parts, "close", None):
                close()
        return WsgiAnswer(status, headers, b"".join(body))
    except Exception:
        LOG.exception("[http] request failed unexpectedly")
        return WsgiAnswer(_FAILED, [])


@functools.lru_cache(maxsize=1)
def _date_header(second: int) -> bytes:
    """Return the header with the time of an answer."""
    return f"Date: {email.utils.formatdate(second, usegmt=True)}".encode()
