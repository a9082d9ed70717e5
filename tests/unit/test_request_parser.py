# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What a request says, where it ends, and which are refused, however its bytes come."""

from __future__ import annotations

import pytest

from lunshare.agent.http import request_parser
from lunshare.agent.http.request_parser import (
    HEAD_MAX,
    ParsedRequest,
    Refusal,
    RequestParser,
)
from tests.ambiguous_requests import CHUNKED, GET, LENGTH, READ_AS_ONE, REFUSED

BODY_MAX = 100_000

WHOLE = [
    GET,
    b"\r\n" + GET,
    LENGTH % 0,
    LENGTH % 5 + b"12345",
    LENGTH.replace(b"Length: ", b"Length:   ") % 5 + b"\r\n\r\n5",
    b"POST / HTTP/1.1\r\nHost: x\r\ncontent-LENGTH:5 \t\r\n\r\n12345",
    CHUNKED + b"0\r\n\r\n",
    CHUNKED + b"5\r\n12345\r\n3;more=1\r\n\r\n0\r\n0\r\nTrailer: x\r\n\r\n",
]


class Parsed:
    """What a parser has returned after all bytes."""

    def __init__(self, data: bytes, step: int = 65536, body_max: int = BODY_MAX):
        """``step``: bytes that arrive at once."""
        self.parser = RequestParser(body_max)
        self.requests: list[ParsedRequest] = []
        #: After how many bytes each request was complete.
        self.ends: list[int] = []
        self.refusal: Refusal | None = None
        for start in range(0, len(data), step):
            self.parser.feed(memoryview(data[start : start + step]))
            if not self._takes(start + step):
                return

    def _takes(self, end: int) -> bool:
        """Whether the parser goes on."""
        try:
            while (request := self.parser.next()) is not None:
                self.requests.append(request)
                self.ends.append(end)
        except Refusal as refusal:
            self.refusal = refusal
        return self.refusal is None


def read(line: str, *fields: str) -> ParsedRequest:
    text = "".join(f"{part}\r\n" for part in (line, *fields, ""))
    parsed = Parsed(text.encode("latin-1"))
    if parsed.refusal:
        raise parsed.refusal
    (request,) = parsed.requests
    return request


def refused(line: str, *fields: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read(line, *fields)
    return caught.value


def environ(*fields: str) -> dict[str, str]:
    read_environ = read("GET / HTTP/1.0", *fields).environ
    line = {"REQUEST_METHOD", "SERVER_PROTOCOL", "PATH_INFO", "QUERY_STRING"}
    return {key: value for key, value in read_environ.items() if key not in line}


def test_the_first_line_is_read() -> None:
    assert read("PATCH /v3/a%20b?c=%20d&e HTTP/1.0").environ == {
        "REQUEST_METHOD": "PATCH",
        "SERVER_PROTOCOL": "HTTP/1.0",
        "PATH_INFO": "/v3/a b",
        "QUERY_STRING": "c=%20d&e",
    }


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a%2fb%2Fc%25", "/a%2Fb%2Fc%25"),
        ("/a%252Fb", "/a%252Fb"),
        ("/gr%C3%B6%C3%9Fe", "/gr\xc3\xb6\xc3\x9fe"),
        ("/a%0d%0ab", "/a\r\nb"),
        ("//a/b;c", "//a/b;c"),
        ("/%zz%", "/%25zz%25"),
    ],
)
def test_a_path_is_unquoted_once_and_keeps_a_quoted_slash_and_percent(
    path: str, shown: str
) -> None:
    assert read(f"GET {path} HTTP/1.0").environ["PATH_INFO"] == shown


@pytest.mark.parametrize(
    "line",
    [
        "GET",
        "GET / HTTP/1.1 x",
        "GET /a b HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "GET /gr\xc3\xb6\xc3\x9fe HTTP/1.1",  # it must be quoted (RFC 3986, 2.1)
        "GET / HTTP/1",
        "GET / HTTP/1.11",
        "GET / HTTP/x.y",
        "GET / http/1.1",
        "GET / HTTPS/1.1",
        "get / HTTP/1.1",
        "BREW / HTTP/1.1",
        "GE(T / HTTP/1.1",
        "G\xc4T / HTTP/1.1",
        "GET http://node/v3 HTTP/1.1",
        "GET v3 HTTP/1.1",
        "GET /v3#x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT node:80 HTTP/1.1",
        "GET /a\0 HTTP/1.1",
    ],
)
def test_a_first_line_of_another_form_is_malformed(line: str) -> None:
    assert refused(line, "Host: x").status == 400


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "9.9"])
def test_another_version_is_refused(version: str) -> None:
    assert refused(f"GET / HTTP/{version}", "Host: x").status == 505


def test_a_line_without_a_version_is_refused() -> None:
    assert refused("GET /", "Host: x").status == 505


def test_fields_have_the_names_of_wsgi_and_no_space_around_their_values() -> None:
    assert environ(
        "host:node",
        "Content-Type: \t application/json\t",
        "X-Auth-Token: a b:c",
        "X-Empty:",
        "Content-Length: 0",
    ) == {
        "HTTP_HOST": "node",
        "CONTENT_TYPE": "application/json",
        "HTTP_X_AUTH_TOKEN": "a b:c",
        "HTTP_X_EMPTY": "",
        "CONTENT_LENGTH": "0",
    }


def test_a_field_that_is_there_twice_has_both_values() -> None:
    assert environ("X-Roles: a", "x-roles: b") == {"HTTP_X_ROLES": "a, b"}


def test_more_lines_than_any_client_sends_are_refused() -> None:
    assert len(environ(*(f"X-{number}: a" for number in range(256)))) == 256
    for name in ("X-{}", "X"):  # different ones, and one whose values were joined
        with pytest.raises(Refusal, match="more than 256 header lines"):
            environ(*(f"{name.format(number)}: a" for number in range(257)))


def test_a_field_with_an_underscore_is_left_out() -> None:
    assert environ("X_Remote_Uid: 0", "Content_Length: 5", "_: 1") == {}


def test_a_long_name_is_not_remembered() -> None:
    before = request_parser._key.cache_info().currsize
    assert environ(f"{'X' * 65}: 1") == {f"HTTP_{'X' * 65}": "1"}
    assert request_parser._key.cache_info().currsize == before


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Transfer-Encoding"])
def test_a_field_that_decides_where_the_request_ends_is_there_once(name: str) -> None:
    assert refused("GET / HTTP/1.0", f"{name}: 5", f"{name.lower()}: 5").status == 400


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", None, True),
        ("1.1", "Close", False),
        ("1.1", "TE, close", False),
        ("1.1", "keep-alive", True),
        ("1.0", None, False),
        ("1.0", "Keep-Alive", True),
        ("1.0", "close", False),
        ("1.0", "keep-alive, close", False),
    ],
)
def test_whether_a_client_keeps_its_connection(
    version: str, connection: str | None, keeps: bool
) -> None:
    fields = [] if connection is None else [f"Connection: {connection}"]
    assert read(f"GET / HTTP/{version}", "Host: a", *fields).keeps is keeps


def test_http_1_1_needs_a_host_and_http_1_0_does_not() -> None:
    with pytest.raises(Refusal, match="needs the header Host"):
        read("GET / HTTP/1.1")
    assert "HTTP_HOST" not in read("GET / HTTP/1.0").environ


@pytest.mark.parametrize(
    "host",
    [
        "",
        "node",
        "node-1.example.com:8776",
        "NODE_2.example.com.",
        "192.0.2.1:1",
        "192.0.2.1:",
        "[::1]",
        "[fe80::1%25eth0]:8776",
        "[::ffff:192.0.2.1]:65535",
    ],
)
def test_a_host_is_a_name_or_an_address_and_a_port(host: str) -> None:
    assert read("GET / HTTP/1.1", f"Host: {host}").environ["HTTP_HOST"] == host


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "host",
    [
        "a b",
        "a, b",
        "a/b",
        "a:b",
        "a:123456",
        "user@a",
        "127.0.0.1:80@evil",
        "[::1",
        "[::1]a",
        "::1",
        "a\x01",
        "\xe9",
        "a" * 256,
        f"127.0.0.1:{'0' * 60_000}",
        f"[fe80::1%{'a' * 60_000}]",
    ],
)
def test_another_host_is_malformed(version: str, host: str) -> None:
    """What is remembered of it (lunshare/agent/api/access/origins.py) is short."""
    message = refused(f"GET / HTTP/{version}", f"Host: {host}").message
    assert "Host must be a name" in message or "Invalid header value char" in message


@pytest.mark.parametrize("data", WHOLE)
def test_a_request_ends_with_its_last_byte_and_not_before(data: bytes) -> None:
    parsed = Parsed(data, step=1)
    assert parsed.ends == [len(data)]
    assert not parsed.parser.is_begun


@pytest.mark.parametrize("data", WHOLE)
@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
def test_the_next_request_begins_behind_it(data: bytes, step: int) -> None:
    parsed = Parsed(data * 300 + b"GET / HTTP", step)
    assert len(parsed.requests) == 300
    assert {bytes(request.body) for request in parsed.requests} == {
        bytes(Parsed(data).requests[0].body)
    }
    assert parsed.parser.is_begun
    assert parsed.parser.held <= 1024


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (GET, b""),
        (LENGTH % 5 + b"12345", b"12345"),
        (LENGTH % 99_999 + b"x" * 99_999, b"x" * 99_999),
        (WHOLE[-1], b"12345\r\n0"),
        (CHUNKED + b"1\r\na\r\n" * 50 + b"0\r\n\r\n", b"a" * 50),
    ],
)
def test_the_body_is_known_at_the_end(data: bytes, body: bytes) -> None:
    (request,) = Parsed(data + b"GET /").requests
    assert request.body == body


def test_a_request_whose_body_is_too_large_ends_with_its_head() -> None:
    parsed = Parsed(LENGTH % (BODY_MAX + 1) + GET * 100, step=1)
    (request,) = parsed.requests
    assert request.is_cut
    assert parsed.ends == [len(LENGTH % (BODY_MAX + 1))]


@pytest.mark.parametrize("step", [1, 65536])
@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_large_is_refused(end: bytes, step: int) -> None:
    data = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (HEAD_MAX + 1024) + end
    parsed = Parsed(data, step)
    assert parsed.refusal
    assert (parsed.refusal.status, parsed.requests) == (413, [])


@pytest.mark.parametrize("step", [1, 65536])
@pytest.mark.parametrize("data", REFUSED)
def test_a_request_whose_end_is_ambiguous_is_refused(data: bytes, step: int) -> None:
    parsed = Parsed(data + GET, step)
    assert parsed.refusal
    assert (parsed.refusal.status, parsed.requests) == (400, [])


@pytest.mark.parametrize("step", [1, 65536])
@pytest.mark.parametrize("data", READ_AS_ONE)
def test_a_request_in_an_unusual_form_ends_once(data: bytes, step: int) -> None:
    parsed = Parsed(data + GET, step)
    assert parsed.refusal is None
    first, second = parsed.requests
    assert "CONTENT_LENGTH" not in second.environ
    assert second.environ["HTTP_HOST"] == "x"
    assert (bytes(second.body), second.environ["REQUEST_METHOD"]) == (b"", "GET")
    assert bytes(first.body) in (b"", b"12345", b"a")


def test_another_protocol_is_not_begun_and_the_body_belongs_to_its_request() -> None:
    """llhttp ends such a request with its head: the body would be a request."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n"
    data = b"POST / HTTP/1.1\r\nHost: x\r\n" + upgrade % len(GET) + GET
    for step in (1, 30, 65536):
        (request,) = Parsed(data, step).requests
        assert request.body == GET
        assert request.keeps


def test_a_body_in_chunks_beyond_the_limit_is_refused() -> None:
    parsed = Parsed(CHUNKED + b"32\r\n%b\r\n" % (b"x" * 50) * 3, body_max=100)
    assert parsed.refusal
    assert parsed.refusal.status == 413


@pytest.mark.parametrize(
    "part", [b"1\r\na\r\n", b"1;%b\r\na\r\n" % (b"x" * 80), b"0\r\n" + b"X: y\r\n" * 60]
)
def test_what_is_not_data_of_chunks_is_limited_like_a_head(part: bytes) -> None:
    """Else 112 KiB in chunks of one byte take 0.1 s of the thread of all clients."""
    more = part.removeprefix(b"0\r\n") * (HEAD_MAX // 4)
    parsed = Parsed(CHUNKED + part + more)
    assert parsed.refusal
    assert parsed.refusal.status in (400, 413)
    assert parsed.parser.held < 3 * HEAD_MAX


def test_a_client_that_waits_for_100_continue_is_known_once() -> None:
    data = LENGTH.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue") % 5
    parser = Parsed(data).parser
    assert parser.takes_expectation()
    assert not parser.takes_expectation()
    old = data.replace(b"HTTP/1.1", b"HTTP/1.0")  # which has no 100 Continue
    assert not Parsed(old).parser.takes_expectation()
