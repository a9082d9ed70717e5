# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read requests with llhttp (httptools), into the names that WSGI has (PEP 3333).

What two programs could read in two ways is refused (RFC 9112, 11.2): to a proxy before
this node it could be another request. llhttp refuses most of it. The rest is here: two
Hosts, a coding that is not chunked alone, chunks in HTTP/1.0.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import httptools

#: Bytes of a request that are not its body: head, sizes of chunks, trailers.
HEAD_MAX = 64 * 1024
#: Bytes that are parsed at once. Requests in the same piece wait for their turn.
_PIECE = 1024
_HOST = re.compile(
    r"(?:[A-Za-z0-9._~%-]{0,255}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~-]{1,64})?\])"
    "(?::[0-9]{0,5})?"
)
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})?")
# A quoted slash is part of a name. No percent sign is left that is not one of these.
_STAYS = {b"/": b"%2F", b"%": b"%25"}
#: Fields that are there once: where a request ends, and which server it is for.
_SINGLE = frozenset({"CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "HTTP_HOST"})
_CHUNKED = "Transfer-Encoding: chunked"
_WITHOUT_PREFIX = frozenset({"CONTENT_LENGTH", "CONTENT_TYPE"})
_SHORT = 64  # characters of a name that is remembered
#: Header lines and trailers. To join 16,000 of one name takes 8 ms, for all clients.
_FIELDS_MAX = 256


class Refusal(Exception):
    """The answer to what is not run: its status, and the fault in its body."""

    def __init__(self, status: int, key: str, message: str) -> None:
        super().__init__(message)
        self.status, self.key, self.message = status, key, message


TOO_LARGE = (413, "overLimit", "The request is too large: send fewer bytes.")
_VERSION = (505, "badRequest", "Send a request of HTTP/1.1 or HTTP/1.0.")


def _malformed(reason: object) -> Refusal:
    return Refusal(400, "badRequest", f"Malformed request: {reason}")


@dataclass(slots=True)
class ParsedRequest:
    """A request. ``environ``: its part of the environment of WSGI."""

    environ: dict[str, Any] = field(default_factory=dict)
    #: Of HTTP/1.1, not of HTTP/1.0.
    is_new: bool = True
    #: Whether the client may send another request on this connection.
    keeps: bool = False
    body: bytearray = field(default_factory=bytearray)
    #: Whether the rest of the connection is never read: its body is too large.
    is_cut: bool = False
    #: Bytes that are held of it.
    size: int = 0

    @property
    def target(self) -> str:
        """The method and the path."""
        return f"{self.environ['REQUEST_METHOD']} {self.environ['PATH_INFO']}"


class RequestParser:
    """The requests of one connection, of which more and more bytes arrive."""

    def __init__(self, body_max: int) -> None:
        """``body_max``: the largest body, in bytes."""
        self._body_max = body_max
        self._parser = httptools.HttpRequestParser(self)
        self._complete: deque[ParsedRequest] = deque()
        self._refusal: Refusal | None = None
        self._request, self._target = ParsedRequest(), b""
        self._has_head = False  # the rest is its body
        self._fields = self._head_size = 0
        #: Whether there are bytes of a request that is not complete.
        self.is_begun = False
        #: Bytes behind a complete request, not parsed yet.
        self.unparsed = b""

    @property
    def held(self) -> int:
        """Bytes that are held of requests which are not returned yet."""
        size = sum(request.size for request in self._complete)
        size += self._head_size + len(self._request.body)
        return size + len(self.unparsed)

    @property
    def has_more(self) -> bool:
        """Whether ``next`` may return a request without more bytes."""
        return bool(self._complete or self.unparsed or self._refusal)

    def takes_expectation(self) -> bool:
        """Return, once, whether the client waits for "100 Continue"."""
        if not (self._has_head and self._request.is_new):
            return False
        value = self._request.environ.pop("HTTP_EXPECT", "")
        return bool(value.lower() == "100-continue")

    def feed(self, data: memoryview) -> None:
        """Parse these bytes. Behind a complete request, keep them for later."""
        if self.unparsed:
            data, self.unparsed = memoryview(self.unparsed + data), b""
        position = 0
        while position < len(data) and not (self._complete or self._refusal):
            self._parse(data[position : position + _PIECE])
            position += _PIECE
        self.unparsed += data[position:]

    def next(self) -> ParsedRequest | None:
        """Return the next complete request, if there is one.

        :raises Refusal: answer it, and read no more of this connection.
        """
        if self.unparsed and not self._complete:
            self.feed(memoryview(b""))
        if self._complete:
            return self._complete.popleft()
        if self._refusal is not None:
            raise self._refusal
        return None

    def _parse(self, piece: memoryview) -> None:
        self.is_begun = True
        self._head_size += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(piece[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refusal = _refusal(error)
        if self._head_size > HEAD_MAX and not self._refusal:
            self._refusal = Refusal(*TOO_LARGE)

    def _ignore_upgrade(self, following: memoryview) -> None:
        """Read the body of a request that asks for another protocol.

        A server may ignore that (RFC 9110, 7.8). llhttp ends such a request with its
        head, so that its body would be the next one.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._has_head:
            length = self._request.environ.get("CONTENT_LENGTH")
            framing = f"Content-Length: {length}" if length else _CHUNKED
            self._parse(memoryview(f"POST / HTTP/1.1\r\n{framing}\r\n\r\n".encode()))
        if following and not self._refusal:
            self._head_size -= len(following)
            self._parse(following)

    def on_message_begin(self) -> None:
        """Begin a request. httptools calls this and the next five."""
        if not self._has_head:
            self.is_begun = True
            self._request, self._target, self._fields = ParsedRequest(), b"", 0

    def on_url(self, part: bytes) -> None:
        """Read a part of what the first line asks for."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a field. One that is there twice has both values.

        Those with an underscore are left out: in the environment of WSGI they would
        replace the same name with a hyphen, such as one that a proxy has checked.
        Trailers are counted and left out.
        """
        self._fields += 1
        if self._fields > _FIELDS_MAX:
            raise _malformed(f"There are more than {_FIELDS_MAX} header lines.")
        if self._has_head:
            return
        environ = self._request.environ
        key = _key(name) if len(name) <= _SHORT else _new_key(name)
        text = value.strip(b" \t").decode("latin-1")
        if key in environ:
            if key in _SINGLE:
                raise _malformed(f"The header {name.decode()} is there twice.")
            text = f"{environ[key]}, {text}"
        if key:
            environ[key] = text

    def on_headers_complete(self) -> None:
        """Check the head, and what decides where the request ends."""
        if self._has_head:
            return
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Refusal(*_VERSION)
        request, self._has_head = self._request, True
        environ, request.is_new = request.environ, version == "1.1"
        _check_host(environ.get("HTTP_HOST"), request.is_new)
        _check_coding(environ.get("HTTP_TRANSFER_ENCODING"), request.is_new)
        path, _, query = self._target.partition(b"?")
        environ["REQUEST_METHOD"] = self._parser.get_method().decode()
        environ["SERVER_PROTOCOL"] = f"HTTP/{version}"
        environ["PATH_INFO"] = _path(path)
        environ["QUERY_STRING"] = query.decode("latin-1")
        request.keeps = self._parser.should_keep_alive() and not _is_last(environ)
        if int(environ.get("CONTENT_LENGTH", 0)) > self._body_max:
            request.is_cut = True  # the application refuses it by its head
            self._end()
            raise Refusal(*TOO_LARGE)

    def on_body(self, part: bytes) -> None:
        """Read a part of the body."""
        self._request.body += part
        self._head_size -= len(part)
        if len(self._request.body) > self._body_max:
            raise Refusal(*TOO_LARGE)

    def on_message_complete(self) -> None:
        """End the request, unless llhttp leaves out its body: see _ignore_upgrade."""
        if not (self._parser.should_upgrade() and _has_body(self._request.environ)):
            self._end()

    def _end(self) -> None:
        request, self._request = self._request, ParsedRequest()
        request.size = len(request.body) + self._head_size
        self._complete.append(request)
        self._head_size, self.is_begun, self._has_head = 0, False, False


def _refusal(error: httptools.HttpParserError) -> Refusal:
    """Return the answer to what llhttp, or a method that it called, refuses."""
    if isinstance(error.__context__, Refusal):
        return error.__context__
    if isinstance(error, httptools.HttpParserCallbackError):
        raise error
    is_version = str(error) == "Invalid HTTP version"
    return Refusal(*_VERSION) if is_version else _malformed(error)


def _is_last(environ: dict[str, str]) -> bool:
    """Return whether the client ends the connection; llhttp obeys keep-alive first."""
    words = environ.get("HTTP_CONNECTION", "").lower().split(",")
    return "close" in (word.strip() for word in words)


def _has_body(environ: dict[str, str]) -> bool:
    length = environ.get("CONTENT_LENGTH", "0")
    return "HTTP_TRANSFER_ENCODING" in environ or int(length) > 0


def _check_host(host: str | None, is_new: bool) -> None:
    """:raises Refusal: it is missing (RFC 9112, 3.2), or has another form."""
    if host is None:
        if is_new:
            raise _malformed("HTTP/1.1 needs the header Host: send one.")
    elif not _HOST.fullmatch(host):
        raise _malformed("The header Host must be a name or an address, and a port.")


def _check_coding(coding: str | None, is_new: bool) -> None:
    """:raises Refusal: the body has another coding, or one that HTTP/1.0 has not."""
    if coding is not None and (coding.lower() != "chunked" or not is_new):
        raise _malformed("Transfer-Encoding must be chunked, and needs HTTP/1.1.")


def _path(path: bytes) -> str:
    """Return the path without its quoting, except for %2F and %25.

    A quoted slash is part of a name. The names of a path are unquoted when it has been
    split into them (lunshare.agent.api.middleware).

    :raises Refusal: it does not begin with a slash, or has a fragment.
    """
    if not path.startswith(b"/") or b"#" in path:
        raise _malformed("The first line has no path that begins with a slash.")
    return _QUOTED.sub(_unquoted, path).decode("latin-1")


def _unquoted(match: re.Match[bytes]) -> bytes:
    code = bytes.fromhex((match[1] or b"25").decode())
    return _STAYS.get(code, code)


def _new_key(name: bytes) -> str:
    """Return the name of a field in the environment of WSGI, "" if it has none."""
    if b"_" in name:
        return ""
    key = name.decode().upper().replace("-", "_")
    return key if key in _WITHOUT_PREFIX else f"HTTP_{key}"


_key = functools.lru_cache(maxsize=1024)(_new_key)
