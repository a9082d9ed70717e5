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
_TOO_LARGE = "413"
_FAILED = "500 Internal Server Error"
_FAILED_HEAD = f"HTTP/1.1 {_FAILED}".encode()
_LINE_END = re.compile("[\r\n\0]")


class WsgiAnswer:
    """The answer of the application to one request."""

    def __init__(self) -> None:
        self._status = _FAILED
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._head = _FAILED_HEAD

    @property
    def ends_connection(self) -> bool:
        """Whether the client may still send the body that was refused."""
        return self._status.startswith(_TOO_LARGE)

    def fill(self, app: App, environ: dict[str, Any]) -> None:
        """Call the application.

        :raises ValueError: a header has the end of a line, or is not of Latin-1.
        """
        parts = app(environ, self._start)
        try:
            self._parts.extend(parts)
        finally:
            getattr(parts, "close", _nothing)()
        lines = [f"HTTP/1.1 {self._status}"]
        lines += [f"{name}: {value}" for name, value in self._headers]
        head = "\r\n".join(lines)
        if len(_LINE_END.findall(head)) != 2 * (len(lines) - 1):
            raise ValueError("a header has the end of a line")
        self._head = head.encode("latin-1")

    def data(self, is_head: bool, connection: str) -> bytes:
        """Return all bytes; ``connection``: the header of that name, or ""."""
        is_empty = is_head or self._status.startswith(_WITHOUT_BODY)
        body = b"" if is_empty else b"".join(self._parts)
        more = [self._head, date_header()]
        if not (is_empty or self._has_length):
            more.append(b"Content-Length: %d" % len(body))
        if connection:
            more.append(b"Connection: " + connection.encode())
        return b"\r\n".join((*more, b"", body))

    def _start(self, status: str, headers: Headers, exc_info: object = None) -> Any:
        """Note the status and the headers: ``start_response`` of WSGI."""
        self._status, self._headers = status, headers
        return self._parts.append

    @property
    def _has_length(self) -> bool:
        return any(name.lower() == "content-length" for name, _ in self._headers)


def call(app: App, environ: dict[str, Any]) -> WsgiAnswer:
    """Return the answer of the application; 500 if it fails."""
    answer = WsgiAnswer()
    try:
        answer.fill(app, environ)
    except Exception:
        LOG.exception("[http] request failed unexpectedly")
        return WsgiAnswer()
    return answer


def _nothing() -> None:
    """Close what has no method close."""


def date_header() -> bytes:
    """Return the header with the time of an answer."""
    return _date_header(int(time.time()))


@functools.lru_cache(maxsize=1)
def _date_header(second: int) -> bytes:
    """Return it for this second."""
    return f"Date: {email.utils.formatdate(second, usegmt=True)}".encode()
