# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Read the head of a request into the names that WSGI has for it (PEP 3333).

What two programs could read in two ways is refused (RFC 9112, 11.2): to a proxy before
this node it could be another request.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, 5.6.2
_FIELDS = re.compile(rb"(?:%b:[^\r\n\0]*\r\n)*\r\n" % _TOKEN)
_METHOD = rb"[!#$%&'*+\-.^_`|~0-9A-Z]+"
_LINE = re.compile(rb"(%b) ([^\0- \x7f]+) HTTP/([0-9])\.([0-9])\r" % _METHOD)
_HOST = re.compile(
    r"(?:[A-Za-z0-9._~%-]{0,255}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~-]{1,64})?\])"
    "(?::[0-9]{0,5})?"
)
_SLASH = re.compile(rb"%2F", re.IGNORECASE)
#: The fields that decide where a request ends, and which server it is for.
_SINGLE = frozenset({"CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "HTTP_HOST"})
_WITHOUT_PREFIX = frozenset({"CONTENT_LENGTH", "CONTENT_TYPE"})
_SHORT = 64  # characters of a name that is remembered
#: Header lines of a request. To join 16,000 of one name takes 8 ms, for all clients.
_MOST_FIELDS = 256


class Malformed(Exception):
    """The request is not of HTTP, or has no certain end. The text says why."""


class OtherVersion(Exception):
    """The request is of another version of HTTP than 1.0 and 1.1."""


@dataclass(slots=True)
class Head:
    """The head of one request. ``environ``: its part of the environment of WSGI."""

    environ: dict[str, str]
    #: Of HTTP/1.1, not of HTTP/1.0.
    is_new: bool

    @property
    def keeps(self) -> bool:
        """Whether the client may send another request on this connection."""
        asked = self.environ.get("HTTP_CONNECTION")
        if asked is None:
            return self.is_new
        words = {word.strip() for word in asked.lower().split(",")}
        return "close" not in words and (self.is_new or "keep-alive" in words)


def read(line: bytes, fields: bytes) -> Head:
    """Return the head of a request.

    ``line`` is its first line with its CR, ``fields`` all others and the empty line.

    :raises Malformed: 400.
    :raises OtherVersion: 505.
    """
    if not line.endswith(b"\r") or not _FIELDS.fullmatch(fields):
        raise Malformed("A header line is not a name, a colon and a value.")
    found = _LINE.fullmatch(line)
    if found is None:
        raise Malformed("The first line is not a method, a path and HTTP/1.1.")
    method, target, major, minor = found.groups()
    if major != b"1" or minor not in b"01":
        raise OtherVersion
    environ = _environ(fields)
    environ["REQUEST_METHOD"] = method.decode()
    environ["SERVER_PROTOCOL"] = "HTTP/1.1" if minor == b"1" else "HTTP/1.0"
    _check_host(environ.get("HTTP_HOST"), minor)
    path, _, query = target.partition(b"?")
    environ["PATH_INFO"] = _path(path)
    environ["QUERY_STRING"] = query.decode("latin-1")
    return Head(environ, minor == b"1")


def _check_host(host: str | None, minor: bytes) -> None:
    """:raises Malformed: it is missing (RFC 9112, 3.2), or has another form."""
    if host is None:
        if minor == b"1":
            raise Malformed("HTTP/1.1 needs the header Host: send one.")
    elif not _HOST.fullmatch(host):
        raise Malformed("The header Host must be a name or an address, and a port.")


def _path(path: bytes) -> str:
    """Return the path without its quoting; %2F is part of a name, so it stays.

    :raises Malformed: it does not begin with a slash, or has a fragment.
    """
    if not path.startswith(b"/") or b"#" in path:
        raise Malformed("The first line has no path that begins with a slash.")
    if b"%" in path:
        parts = _SLASH.split(path)
        path = b"%2F".join(unquote_to_bytes(part) for part in parts)
    return path.decode("latin-1")


def _environ(fields: bytes) -> dict[str, str]:
    """Return the values of all fields. One that is there twice has both values.

    Those with an underscore are left out: in the environment of WSGI they would
    replace the same name with a hyphen, such as one that a proxy has checked.

    :raises Malformed: there are too many, or one is there twice that decides where the
        request ends.
    """
    found: dict[str, str] = {}
    lines = fields[:-4].split(b"\r\n")
    if len(lines) > _MOST_FIELDS:
        raise Malformed(f"There are more than {_MOST_FIELDS} header lines.")
    for line in lines:
        name, _, value = line.partition(b":")
        key = _key(name) if len(name) <= _SHORT else _new_key(name)
        text = value.strip(b" \t").decode("latin-1")
        if key in found:
            if key in _SINGLE:
                raise Malformed(f"The header {name.decode()} is there twice: send one.")
            text = f"{found[key]}, {text}"
        if key:
            found[key] = text
    return found


def _new_key(name: bytes) -> str:
    """Return the name of a field in the environment of WSGI, "" if it has none."""
    key = name.decode().upper().replace("-", "_")
    if b"_" in name or not name:
        return ""
    return key if key in _WITHOUT_PREFIX else f"HTTP_{key}"


_key = functools.lru_cache(maxsize=1024)(_new_key)
