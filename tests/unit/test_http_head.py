# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the head of a request says, and which heads are refused."""

from __future__ import annotations

import pytest

from lunshare.agent.http import http_head
from lunshare.agent.http.http_head import Head, Malformed, OtherVersion


def read(line: str, *fields: str) -> Head:
    block = "".join(f"{each}\r\n" for each in (*fields, ""))
    return http_head.read(f"{line}\r".encode(), block.encode())


def environ(*fields: str) -> dict[str, str]:
    found = read("GET / HTTP/1.0", *fields).environ
    line = {"REQUEST_METHOD", "SERVER_PROTOCOL", "PATH_INFO", "QUERY_STRING"}
    return {key: value for key, value in found.items() if key not in line}


def test_the_first_line_is_read() -> None:
    found = read("PATCH /v3/a%20b?c=%20d&e HTTP/1.0").environ
    assert found == {
        "REQUEST_METHOD": "PATCH",
        "SERVER_PROTOCOL": "HTTP/1.0",
        "PATH_INFO": "/v3/a b",
        "QUERY_STRING": "c=%20d&e",
    }


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a%2fb%2Fc%25", "/a%2Fb%2Fc%"),
        ("/gr%C3%B6%C3%9Fe", "/gr\xc3\xb6\xc3\x9fe"),
        ("/größe", "/gr\xc3\xb6\xc3\x9fe"),
        ("/a%0d%0ab", "/a\r\nb"),
        ("//a/b;c", "//a/b;c"),
        ("/%zz", "/%zz"),
    ],
)
def test_a_path_is_unquoted_once_and_keeps_a_quoted_slash(
    path: str, shown: str
) -> None:
    assert read(f"GET {path} HTTP/1.0").environ["PATH_INFO"] == shown


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET",
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 x",
        "GET /a b HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "GET / HTTP/1",
        "GET / HTTP/1.11",
        "GET / HTTP/x.y",
        "GET / http/1.1",
        "GET / HTTPS/1.1",
        "get / HTTP/1.1",
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
    with pytest.raises(Malformed):
        read(line)


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "9.9"])
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(OtherVersion):
        read(f"GET / HTTP/{version}")


def test_fields_have_the_names_of_wsgi_and_no_space_around_their_values() -> None:
    assert environ(
        "host:node",
        "Content-Type: \t application/json\t",
        "X-Auth-Token: a b:c",
        "X-Empty:",
        "Content-Length: 5",
    ) == {
        "HTTP_HOST": "node",
        "CONTENT_TYPE": "application/json",
        "HTTP_X_AUTH_TOKEN": "a b:c",
        "HTTP_X_EMPTY": "",
        "CONTENT_LENGTH": "5",
    }


def test_a_field_that_is_there_twice_has_both_values() -> None:
    assert environ("X-Roles: a", "x-roles: b") == {"HTTP_X_ROLES": "a, b"}


def test_more_lines_than_any_client_sends_are_refused() -> None:
    assert len(environ(*(f"X-{number}: a" for number in range(256)))) == 256
    for name in ("X-{}", "X"):  # different ones, and one whose values were joined
        with pytest.raises(Malformed, match="more than 256 header lines"):
            environ(*(f"{name.format(number)}: a" for number in range(257)))


def test_a_field_with_an_underscore_is_left_out() -> None:
    assert environ("X_Remote_Uid: 0", "Content_Length: 5", "_: 1") == {}


def test_a_long_name_is_not_remembered() -> None:
    before = http_head._key.cache_info().currsize
    assert environ(f"{'X' * 65}: 1") == {f"HTTP_{'X' * 65}": "1"}
    assert http_head._key.cache_info().currsize == before


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Transfer-Encoding"])
def test_a_field_that_decides_where_the_request_ends_is_there_once(name: str) -> None:
    with pytest.raises(Malformed, match=f"{name.lower()} is there twice"):
        environ(f"{name}: 5", f"{name.lower()}: 5")


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
    with pytest.raises(Malformed, match="needs the header Host"):
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
    with pytest.raises(Malformed, match="Host must be a name"):
        read(f"GET / HTTP/{version}", f"Host: {host}")
