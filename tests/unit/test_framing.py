# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a request ends, however its bytes come."""

from __future__ import annotations

import pytest

from lunshare.agent.http_framing import Framing, TooLarge

HEAD_MAX, BODY_MAX = 1000, 100
LENGTH = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

WHOLE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    LENGTH % 0,
    LENGTH % 5 + b"12345",
    LENGTH.replace(b"Length: ", b"Length :   ") % 5 + b"\r\n\r\n5",
    b"POST / HTTP/1.1\r\nContent-Length: 3\r\ncontent-length: 5\r\n\r\n12345",
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


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_MAX,
        LENGTH % (BODY_MAX + 1),
        CHUNKED + b"word\r\n",
        CHUNKED + b"-5\r\n",
        CHUNKED + b"5" * 2000,
        b"POST / HTTP/1.1\r\nno field\r\nContent-Length: 5\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: word\r\n\r\n",
    ],
)
def test_a_malformed_request_ends_at_once(request_: bytes) -> None:
    framing = Framing(HEAD_MAX, BODY_MAX)
    assert framing.end(bytearray(request_)) == len(request_)
    assert framing.broken


def test_chunks_beyond_the_limit_are_refused_before_they_arrive() -> None:
    with pytest.raises(TooLarge):
        ends(CHUNKED + b"fffffffffffff\r\n")
    with pytest.raises(TooLarge):
        ends(CHUNKED + b"32\r\n%b\r\n" % (b"x" * 50) * 3)


def test_a_client_that_waits_for_100_continue_is_known() -> None:
    framing = Framing(HEAD_MAX, BODY_MAX)
    asked = LENGTH.replace(b"Host: x", b"Expect: 100-continue") % 5
    assert framing.end(bytearray(asked)) is None
    assert framing.expects
