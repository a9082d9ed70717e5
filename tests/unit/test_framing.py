# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a request ends, however its bytes come."""

from __future__ import annotations

import pytest

from lunshare.agent.http.http_framing import Framing, TooLarge
from lunshare.agent.http.http_head import Malformed

HEAD_MAX, BODY_MAX = 1000, 100
LENGTH = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

WHOLE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    LENGTH % 0,
    LENGTH % 5 + b"12345",
    LENGTH.replace(b"Length: ", b"Length:   ") % 5 + b"\r\n\r\n5",
    b"POST / HTTP/1.1\r\nHost: x\r\ncontent-LENGTH:5 \t\r\n\r\n12345",
    CHUNKED + b"0\r\n\r\n",
    CHUNKED + b"5\r\n12345\r\n3;more=1\r\n\r\n0\r\n0\r\nTrailer: x\r\n\r\n",
]


def ends(data: bytes) -> list[int | None]:
    """What is said after each byte."""
    framing, held = Framing(HEAD_MAX, BODY_MAX), bytearray()
    said = []
    for byte in data:
        held.append(byte)
        said.append(framing.end(held))
    return said


@pytest.mark.parametrize("request_", WHOLE)
def test_a_request_ends_with_its_last_byte_and_not_before(request_: bytes) -> None:
    assert ends(request_) == [None] * (len(request_) - 1) + [len(request_)]


@pytest.mark.parametrize("request_", WHOLE)
def test_following_bytes_are_not_part_of_a_request(request_: bytes) -> None:
    framing = Framing(HEAD_MAX, BODY_MAX)
    assert framing.end(bytearray(request_ + b"GET / HTTP")) == len(request_)
    assert not framing.broken


def test_a_request_whose_body_is_too_large_ends_with_its_head() -> None:
    framing, asked = Framing(HEAD_MAX, BODY_MAX), LENGTH % (BODY_MAX + 1)
    assert framing.end(bytearray(asked + b"body")) == len(asked)
    assert framing.broken


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_large_is_refused(end: bytes) -> None:
    asked = b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_MAX + end
    with pytest.raises(TooLarge):
        Framing(HEAD_MAX, BODY_MAX).end(bytearray(asked))
    with pytest.raises(TooLarge):
        ends(asked)


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (WHOLE[0], b""),
        (LENGTH % 5 + b"12345", b"12345"),
        (WHOLE[-1], b"12345\r\n0"),
        (CHUNKED + b"1\r\na\r\n" * 50 + b"0\r\n\r\n", b"a" * 50),
    ],
)
def test_the_body_is_known_at_the_end(request_: bytes, body: bytes) -> None:
    framing, held = Framing(HEAD_MAX, BODY_MAX), bytearray(request_ + b"GET /")
    end = framing.end(held)
    assert end is not None
    assert framing.body(held, end) == body


def head(*fields: bytes, protocol: bytes = b"HTTP/1.1") -> bytes:
    lines = [b"POST / " + protocol, b"Host: x", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


#: Two programs can read each of these in two ways.
AMBIGUOUS = [
    head(b"Content-Length: 5", b"Content-Length: 5"),
    head(b"Content-Length: 3", b"content-length: 5"),
    head(b"Content-Length: 5", b"X: y", b"Content-Length: 0"),
    head(b"Content-Length: 5, 5"),
    head(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    head(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    head(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"),
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
    b"\r\n\r\n",
    *(before + WHOLE[0] for before in (b" ", b"\t", b"\n", b"\r", b"\x0b", b" \r\n")),
    *(
        CHUNKED + size + b"\r\n"
        for size in (b"word", b"-5", b"+5", b"0x5", b"5_0", b"", b"5 5", b"5" * 2000)
    ),
    CHUNKED + b"5;" + b"x" * 2000 + b"\r\n12345\r\n",
    CHUNKED + b"0\r\nX: " + b"x" * 2000 + b"\r\n\r\n",
    CHUNKED + b"5\n12345\r\n",
    CHUNKED + b"5\r\n12345xx",
    CHUNKED + b"0\r\nno field\r\n",
    CHUNKED + b"0\r\n\n",
]


@pytest.mark.parametrize("request_", AMBIGUOUS)
def test_a_request_whose_end_is_ambiguous_is_malformed(request_: bytes) -> None:
    with pytest.raises(Malformed):
        Framing(HEAD_MAX, BODY_MAX).end(bytearray(request_))
    with pytest.raises(Malformed):
        ends(request_)


def test_chunks_beyond_the_limit_are_refused_before_they_arrive() -> None:
    with pytest.raises(TooLarge):
        ends(CHUNKED + b"fffffffffffff\r\n")
    with pytest.raises(TooLarge):
        ends(CHUNKED + b"32\r\n%b\r\n" % (b"x" * 50) * 3)


@pytest.mark.parametrize(
    "part", [b"1\r\na\r\n", b"1;%b\r\na\r\n" % (b"x" * 80), b"0\r\n" + b"X: y\r\n" * 60]
)
def test_what_is_not_data_of_chunks_is_limited_like_a_head(part: bytes) -> None:
    """Else 112 KiB in chunks of one byte take 0.1 s of the thread of all clients."""
    framing, held = Framing(HEAD_MAX, 10 * BODY_MAX), bytearray(CHUNKED + part)
    more = part.removeprefix(b"0\r\n")

    def arrive() -> None:
        for _ in range(300):
            framing.end(held)
            held.extend(more)

    with pytest.raises(TooLarge):
        arrive()
    assert len(held) - len(framing.decoded) < 2 * HEAD_MAX


def test_a_client_that_waits_for_100_continue_is_known() -> None:
    framing = Framing(HEAD_MAX, BODY_MAX)
    asked = LENGTH.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue") % 5
    assert framing.end(bytearray(asked)) is None
    assert framing.expects
    old = asked.replace(b"HTTP/1.1", b"HTTP/1.0")  # which has no 100 Continue
    framing = Framing(HEAD_MAX, BODY_MAX)
    assert framing.end(bytearray(old)) is None
    assert not framing.expects
