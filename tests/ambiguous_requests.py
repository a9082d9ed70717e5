# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Requests whose end two programs may see in two places (RFC 9112, 11.2)."""

from __future__ import annotations

#: A whole request, with a body whose length or chunks are given.
LENGTH = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def head(*fields: bytes, protocol: bytes = b"HTTP/1.1") -> bytes:
    lines = [b"POST / " + protocol, b"Host: x", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


#: Each is refused, and so is what follows it.
REFUSED = [
    head(b"Content-Length: 5", b"Content-Length: 5"),
    head(b"Content-Length: 3", b"content-length: 5"),
    head(b"Content-Length: 5", b"X: y", b"Content-Length: 0"),
    head(b"Content-Length: 5, 5"),
    head(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    head(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    head(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"),
    head(b"Transfer-Encoding: gzip"),
    head(b"Transfer-Encoding: gzip, chunked"),
    head(b"Transfer-Encoding: chunked, identity"),
    head(b"Transfer-Encoding: xchunked"),
    head(b"Transfer-Encoding: "),
    head(b"Transfer-Encoding:\x0bchunked"),
    head(b"Transfer-Encoding: chunked", protocol=b"HTTP/1.0"),
    head(b"Content-Length : 5"),
    head(b"Content-Length\t: 5"),
    head(b" Content-Length: 5"),
    head(b"X: y", b" Content-Length: 5"),
    head(b"X: y\rContent-Length: 5"),
    head(b"X: y\nContent-Length: 5"),
    head(b"X: y\0"),
    head(b"Host: y"),
    head(b"no field"),
    head(b": 5"),
    *(
        head(b"Content-Length: " + length)
        for length in (b"", b"word", b"-1", b"+5", b"5_0", b"0x5", b"1e3", b"9" * 30)
    ),
    b"GET / HTTP/1.1\nHost: x\n\n",
    *(before + GET for before in (b" ", b"\t", b"\x0b", b" \r\n")),
    *(
        CHUNKED + size + b"\r\n"
        for size in (b"word", b"-5", b"+5", b"0x5", b"5_0", b"", b"5 5", b"5" * 2000)
    ),
    CHUNKED + b"5\n12345\r\n",
    CHUNKED + b"5\r\n12345xx",
    CHUNKED + b"0\r\nno field\r\n",
    CHUNKED + b"0\r\n\n",
    CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
]

#: Each is one request, whatever is before it, in its chunks or its trailers.
READ_AS_ONE = [
    b"\n" + GET,
    b"\r" + GET,
    b"\r\n\r\n\r\n" + GET,
    CHUNKED + b"5;" + b"x" * 2000 + b"\r\n12345\r\n0\r\n\r\n",
    CHUNKED + b"0\r\nX: " + b"x" * 2000 + b"\r\n\r\n",
    CHUNKED + b"0\r\nX: y\r\nHost: y\r\n\r\n",
    head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 5") + b"12345",
    head(b"Connection: Upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked")
    + b"1\r\na\r\n0\r\n\r\n",
    head(b"Connection: Upgrade", b"Upgrade: h2c"),
]
